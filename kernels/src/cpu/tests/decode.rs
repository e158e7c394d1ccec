//! Decoding, unpacking and row products against the scalar block code.

use super::*;
use crate::cpu::level::{Kernel, Level};
use crate::cpu::{gemv, input, types};

#[test]
fn dequantize_is_the_scalar_code_at_every_level() {
    for &ty in blocks::IMPLEMENTED {
        let bytes = random_blocks(ty, 70000 / ty.block_len(), 3);
        let want = decode_scalar(ty, &bytes);
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        for isa in levels() {
            let mut got = vec![f32::NAN; want.len()];
            crate::cpu::dequantize::dequantize_as(ty, &bytes, &mut got, isa).unwrap();
            assert!(bits(&got) == bits(&want), "{ty} {isa:?}");
        }
        let mut halves = vec![f16::ZERO; want.len()];
        dequantize_f16(ty, &bytes, &mut halves).unwrap();
        assert!(
            halves
                .iter()
                .zip(&want)
                .all(|(a, b)| *a == f16::from_f32(*b)),
            "{ty} to F16"
        );
        let mut halves = vec![half::bf16::ZERO; want.len()];
        dequantize_bf16(ty, &bytes, &mut halves).unwrap();
        assert!(
            halves
                .iter()
                .zip(&want)
                .all(|(a, b)| *a == half::bf16::from_f32(*b)),
            "{ty} to BF16"
        );
    }
}

#[test]
fn gathered_rows_are_dequantized_rows() {
    for &ty in blocks::IMPLEMENTED {
        let (rows, cols) = (6, 512);
        let bytes = random_blocks(ty, rows * cols / ty.block_len(), 3);
        let want = decode_scalar(ty, &bytes);
        let ids = [5, 0, 3, 3];
        let mut got = vec![f32::NAN; ids.len() * cols];
        gather_rows(ty, &bytes, cols, &ids, &mut got).unwrap();
        for (id, got) in ids.iter().zip(got.chunks_exact(cols)) {
            let want = &want[*id as usize * cols..][..cols];
            assert!(
                got.iter()
                    .zip(want)
                    .all(|(a, b)| a.to_bits() == b.to_bits()),
                "{ty} row {id}"
            );
        }
        for (position, id) in [(1, 6), (1, -1), (1, i64::MAX)] {
            let error = gather_rows(ty, &bytes, cols, &[0, id], &mut got[..2 * cols]);
            assert_eq!(error, Err(CpuError::RowOutOfRange { id, position, rows }));
        }
    }
}

/// The fallback of types without a file in `gemv/` must agree with the loops of those with one.
#[test]
fn unpacked_row_products_agree_with_hand_written_ones() {
    struct Both<'a, T>(&'a [u8], &'a [f32], std::marker::PhantomData<T>);
    impl<T: types::CpuCode> Kernel for Both<'_, T> {
        type Output = [[f32; 1]; 2];
        #[inline(always)]
        unsafe fn run<L: Level>(self) -> Self::Output {
            let mut x = input::RowBuffers::default();
            x.quantize(self.1, self.1.len(), Isa::Scalar);
            let x = [x.row(0)];
            // SAFETY: `run` is called with the features of `L`; row and input have equal lengths.
            unsafe {
                [
                    L::row_dot::<T, 1>(self.0, &x),
                    gemv::dot_unpacked::<T, L, 1>(self.0, &x),
                ]
            }
        }
    }
    struct Visit<'a>(&'a [u8], &'a [f32], Isa);
    impl types::TypeVisitor for Visit<'_> {
        type Output = ();
        fn float<T: types::CpuType>(self) {}
        fn code<T: types::CpuCode>(self) {
            // SAFETY: `levels` lists available ones.
            let [[a], [b]] = unsafe {
                self.2
                    .run(Both::<T>(self.0, self.1, std::marker::PhantomData))
            };
            assert!(
                (a - b).abs() <= 1e-4 * b.abs().max(1.0),
                "{} {:?}: {a} is not {b}",
                T::TYPE,
                self.2
            );
        }
    }
    for &ty in blocks::IMPLEMENTED {
        for isa in levels() {
            let bytes = random_blocks(ty, 768 / ty.block_len(), 3);
            types::visit(ty, "test", Visit(&bytes, &noise(768, 4), isa)).unwrap();
        }
    }
}

/// Unpacking by hand must give what the block code gives, bit for bit.
#[test]
fn unpacking_is_the_scalar_code_at_every_level() {
    type Parts = (Vec<u8>, Vec<f32>, Vec<f32>);
    struct Both<'a, T>(&'a [u8], std::marker::PhantomData<T>);
    impl<T: types::CpuCode> Kernel for Both<'_, T> {
        type Output = [Parts; 2];
        #[inline(always)]
        unsafe fn run<L: Level>(self) -> Self::Output {
            let empty = || (vec![0; T::LEN], vec![0.0; 16], vec![0.0; 16]);
            let [mut got, mut want] = [empty(), empty()];
            // SAFETY: `run` is called with the features of `L`; the buffers fit any type.
            unsafe { L::unpack::<T>(self.0, &mut got.0, &mut got.1, &mut got.2) };
            T::unpack_block(self.0, &mut want.0, &mut want.1, &mut want.2);
            [got, want]
        }
    }
    struct Visit<'a>(&'a [u8], Isa);
    impl types::TypeVisitor for Visit<'_> {
        type Output = ();
        fn float<T: types::CpuType>(self) {}
        fn code<T: types::CpuCode>(self) {
            for block in self.0.chunks_exact(T::BYTES) {
                // SAFETY: `levels` lists available ones.
                let [got, want] = unsafe { self.1.run(Both::<T>(block, std::marker::PhantomData)) };
                assert_eq!(got, want, "{} {:?}", T::TYPE, self.1);
            }
        }
    }
    for &ty in blocks::IMPLEMENTED {
        for isa in levels() {
            types::visit(ty, "test", Visit(&random_blocks(ty, 20, 3), isa)).unwrap();
        }
    }
}
