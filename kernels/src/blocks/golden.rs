//! Reads the golden block files of the tests: tensors `random` and `quantized` with ggml's decoding of each.

use crate::GgmlType;
use std::path::PathBuf;

/// One golden tensor: its raw blocks and what ggml decodes them to.
pub(crate) struct Golden {
    pub name: &'static str,
    pub bytes: Vec<u8>,
    pub values: Vec<f32>,
}

/// The golden tensors of `ty`; empty, with a printed line, where the files are not present.
pub(crate) fn load(ty: GgmlType) -> Vec<Golden> {
    let dir = shared().join("cases/blocks");
    let stem = ty.name().to_lowercase();
    let Ok(file) = std::fs::read(dir.join(format!("{stem}.gguf"))) else {
        println!("skipped: no golden {stem}.gguf in {}", dir.display());
        return Vec::new();
    };
    // The data of the two tensors, each padded to the 32 bytes of GGUF's alignment, ends the file.
    let values =
        ["random", "quantized"].map(|name| read_npy(&dir.join(format!("{stem}.{name}.npy"))));
    let sizes = values
        .each_ref()
        .map(|v| ty.row_bytes(v.len()).expect("whole blocks"));
    let padded = sizes.map(|size| size.next_multiple_of(32));
    let starts = [file.len() - padded[0] - padded[1], file.len() - padded[1]];
    let mut goldens = Vec::new();
    for (i, (name, values)) in ["random", "quantized"].into_iter().zip(values).enumerate() {
        let bytes = file[starts[i]..starts[i] + sizes[i]].to_vec();
        goldens.push(Golden {
            name,
            bytes,
            values,
        });
    }
    goldens
}

fn shared() -> PathBuf {
    std::env::var_os("BURN_GGUF_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    )
}

/// The values of a version 1 `.npy` file of little-endian `f32`.
fn read_npy(path: &std::path::Path) -> Vec<f32> {
    let file = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(&file[..8], b"\x93NUMPY\x01\x00");
    let header = usize::from(u16::from_le_bytes([file[8], file[9]]));
    assert!(String::from_utf8_lossy(&file[10..10 + header]).contains("'<f4'"));
    file[10 + header..]
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}
