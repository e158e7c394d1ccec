//! Errors of the tensor table and the data.

use burn_gguf::gguf::{Gguf, GgufError, GgufWriter};
use burn_gguf_kernels::GgmlType;

use super::assert_error;
use crate::builder::*;

#[test]
fn duplicate_tensor() {
    assert_error!(
        Builder::new().f32("t", 8).f32("t", 8).error(),
        GgufError::DuplicateTensor { .. },
        "tensor `t` occurs twice"
    );
    assert_error!(
        GgufWriter::new()
            .tensor("t", &[0], GgmlType::F32, vec![])
            .tensor("t", &[0], GgmlType::F32, vec![])
            .to_bytes()
            .unwrap_err(),
        GgufError::DuplicateTensor { .. },
        "tensor `t`"
    );
}

#[test]
fn too_many_dimensions() {
    assert_error!(
        Builder::new()
            .tensor("t", &[1; 5], 0, 0)
            .data([0; 32])
            .error(),
        GgufError::TooManyDimensions { n_dims: 5, .. },
        "tensor `t` has 5 dimensions"
    );
    // A count that no dimensions follow.
    let mut bytes = Builder::new().tensor("t", &[], 0, 0).bytes();
    let at = 24 + 8 + 1;
    bytes[at..at + 4].copy_from_slice(&1_000_000u32.to_le_bytes());
    assert_error!(
        Gguf::from_bytes(bytes.into()).unwrap_err(),
        GgufError::TooManyDimensions {
            n_dims: 1_000_000,
            ..
        },
        "1000000 dimensions"
    );
    assert_error!(
        GgufWriter::new()
            .tensor("t", &[1; 5], GgmlType::F32, vec![0; 4])
            .to_bytes()
            .unwrap_err(),
        GgufError::TooManyDimensions { .. },
        "tensor `t`"
    );
}

#[test]
fn element_count_overflow() {
    for dims in [
        vec![u64::MAX],
        vec![1 << 63],
        vec![1 << 32, 1 << 32],
        vec![1 << 32, 1 << 31],
        vec![0, 1 << 62, 1 << 62],
    ] {
        assert_error!(
            Builder::new().tensor("t", &dims, 24, 0).data([0; 32]).error(),
            GgufError::ElementCountOverflow { shape, .. } if *shape == dims,
            "tensor `t`",
            &format!("{dims:?}")
        );
    }
}

#[test]
fn byte_size_overflow() {
    // 2^62 F64 values.
    assert_error!(
        Builder::new()
            .tensor("t", &[1 << 62], 28, 0)
            .data([0; 32])
            .error(),
        GgufError::ByteSizeOverflow { .. },
        "tensor `t`",
        "F64"
    );
    // Fits in itself, but not behind the header.
    assert_error!(
        Builder::new()
            .tensor("t", &[(1 << 61) - 1], 28, 0)
            .data([0; 32])
            .error(),
        GgufError::ByteSizeOverflow { .. },
        "tensor `t`"
    );
}

#[test]
fn partial_block() {
    for (row, ty) in [(4304, 8), (16, 8), (128, 14), (1, 12)] {
        let file = Builder::new()
            .tensor("t", &[row, 2], ty, 0)
            .data([0; 20000]);
        assert_error!(
            file.error(),
            GgufError::PartialBlock { row: r, .. } if *r == row,
            "tensor `t`",
            &format!("rows of {row} values")
        );
    }
    // A scalar has a row of one.
    assert_error!(
        Builder::new().tensor("t", &[], 8, 0).data([0; 64]).error(),
        GgufError::PartialBlock { row: 1, .. },
        "Q8_0"
    );
    assert_error!(
        GgufWriter::new()
            .tensor("t", &[16], GgmlType::Q8_0, vec![0; 17])
            .to_bytes()
            .unwrap_err(),
        GgufError::PartialBlock { .. },
        "32 values in a Q8_0 block"
    );
}

#[test]
fn offset_mismatch() {
    let two = |first: u64, second: u64| {
        Builder::new()
            .tensor("a", &[4], 0, first)
            .tensor("b", &[4], 0, second)
            .data([0; 256])
    };
    assert!(two(0, 32).open().is_ok());
    for (first, second, offset, expected) in [
        (0, 16, 16, 32), // packed tight
        (0, 0, 0, 32),   // overlapping
        (0, 64, 64, 32), // a gap
        (32, 0, 32, 0),  // out of order
        (32, 64, 32, 0), // not at the start
        (0, u64::MAX - 31, u64::MAX - 31, 32),
    ] {
        assert_error!(
            two(first, second).error(),
            GgufError::OffsetMismatch { offset: o, expected: e, .. } if (*o, *e) == (offset, expected),
            &format!("data offset {offset}, expected {expected}")
        );
    }
    // Two tensors of unknown size cannot share an offset.
    assert_error!(
        Builder::new()
            .tensor("a", &[4], 139, 0)
            .tensor("b", &[4], 139, 0)
            .data([0; 64])
            .error(),
        GgufError::OffsetMismatch { .. },
        "tensor `b`"
    );
}

#[test]
fn misaligned_offset() {
    let file = Builder::new()
        .tensor("a", &[4], 139, 0)
        .tensor("b", &[4], 0, 40)
        .data([0; 256]);
    assert_error!(
        file.error(),
        GgufError::MisalignedOffset { offset: 40, .. },
        "tensor `b`",
        "multiple of the alignment 32"
    );
}

#[test]
fn truncated_data() {
    let file = Builder::new()
        .tensor("a", &[8], 0, 0)
        .tensor("big", &[100], 0, 32)
        .data([0; 32 + 399]);
    let have = file.bytes().len();
    assert_error!(
        file.error(),
        GgufError::TruncatedData { .. },
        "tensor `big`",
        &format!("{} bytes, it has {have}", have + 1)
    );
    // Far beyond the end.
    assert_error!(
        Builder::new()
            .tensor("a", &[1 << 40], 0, 0)
            .data([0; 32])
            .error(),
        GgufError::TruncatedData { .. },
        "tensor `a`"
    );
    // Tensors of unknown size, one that has no byte and one whose successor is beyond the end.
    assert_error!(
        Builder::new().tensor("a", &[4], 139, 0).error(),
        GgufError::TruncatedData { .. },
        "tensor `a`"
    );
    for beyond in [1 << 40, u64::MAX - 31] {
        assert_error!(
            Builder::new()
                .tensor("a", &[4], 139, 0)
                .tensor("b", &[4], 0, beyond)
                .data([0; 32])
                .error(),
            GgufError::TruncatedData { .. },
            "tensor `a`"
        );
    }
}

#[test]
fn truncated_padding() {
    let full = Builder::new().f32("t", 3).bytes();
    let data_end = full.len() - 20;
    for cut in data_end + 1..full.len() {
        assert_error!(
            Gguf::from_bytes(full[..cut].to_vec().into()).unwrap_err(),
            GgufError::TruncatedPadding { .. },
            "the padding after the last tensor",
            &cut.to_string()
        );
    }
    // Some writers leave the last padding out altogether.
    let gguf = Gguf::from_bytes(full[..data_end].to_vec().into()).unwrap();
    assert_eq!(gguf.require("t").unwrap().data().len(), 12);
}
