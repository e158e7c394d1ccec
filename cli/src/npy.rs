//! NumPy's `.npy` format, version 1.0: little-endian arrays in row-major order.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Writes f32 values of this shape.
pub fn write_f32(path: &Path, shape: &[usize], values: &[f32]) -> Result<(), Error> {
    write(path, "<f4", shape, values.iter().map(|v| v.to_le_bytes()))
}

/// Writes i32 values of this shape.
pub fn write_i32(path: &Path, shape: &[usize], values: &[i32]) -> Result<(), Error> {
    write(path, "<i4", shape, values.iter().map(|v| v.to_le_bytes()))
}

fn write(
    path: &Path,
    descr: &str,
    shape: &[usize],
    values: impl Iterator<Item = [u8; 4]>,
) -> Result<(), Error> {
    let dims: Vec<String> = shape.iter().map(|n| format!("{n},")).collect();
    let dims = dims.join(" ");
    // One dimension needs its comma to be a tuple; more do without the last one.
    let dims = match shape.len() {
        1 => dims.as_str(),
        _ => dims.trim_end_matches(','),
    };
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}");
    // Magic, version, length and header fill a multiple of 64 bytes.
    let padded = (10 + dict.len() + 1).next_multiple_of(64) - 10;
    let create = File::create(path).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    let mut out = BufWriter::new(create);
    out.write_all(b"\x93NUMPY\x01\x00")?;
    out.write_all(&u16::try_from(padded)?.to_le_bytes())?;
    out.write_all(dict.as_bytes())?;
    out.write_all(" ".repeat(padded - dict.len() - 1).as_bytes())?;
    out.write_all(b"\n")?;
    for value in values {
        out.write_all(&value)?;
    }
    out.flush()?;
    Ok(())
}

/// Reads the integers of a `.npy` file of any integer type.
pub fn read_ints(path: &Path) -> Result<Vec<i64>, Error> {
    let bytes = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    parse_ints(&bytes).ok_or_else(|| {
        format!(
            "{} is not a .npy file of integers in row-major order",
            path.display()
        )
        .into()
    })
}

fn parse_ints(bytes: &[u8]) -> Option<Vec<i64>> {
    let rest = bytes.strip_prefix(b"\x93NUMPY")?;
    let (header_len, header_at): (usize, usize) = match rest.first()? {
        1 => (
            u16::from_le_bytes(rest.get(2..4)?.try_into().ok()?) as usize,
            4,
        ),
        2 | 3 => (
            u32::from_le_bytes(rest.get(2..6)?.try_into().ok()?) as usize,
            6,
        ),
        _ => return None,
    };
    let header =
        std::str::from_utf8(rest.get(header_at..header_at.checked_add(header_len)?)?).ok()?;
    let data = rest.get(header_at + header_len..)?;
    if header.contains("'fortran_order': True") {
        return None;
    }
    let descr = header.split("'descr':").nth(1)?.split('\'').nth(1)?;
    let ints = |size: usize, read: fn(&[u8]) -> i64| data.chunks_exact(size).map(read).collect();
    match descr {
        "<i8" => Some(ints(8, |b| {
            i64::from_le_bytes(b.try_into().unwrap_or_default())
        })),
        "<u8" => Some(ints(8, |b| {
            i64::from_le_bytes(b.try_into().unwrap_or_default())
        })),
        "<i4" => Some(ints(4, |b| {
            i32::from_le_bytes(b.try_into().unwrap_or_default()).into()
        })),
        "<u4" => Some(ints(4, |b| {
            u32::from_le_bytes(b.try_into().unwrap_or_default()).into()
        })),
        "<i2" => Some(ints(2, |b| {
            i16::from_le_bytes(b.try_into().unwrap_or_default()).into()
        })),
        "<u2" => Some(ints(2, |b| {
            u16::from_le_bytes(b.try_into().unwrap_or_default()).into()
        })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_round_trip() {
        let path = std::env::temp_dir().join(format!("burn-gguf-npy-{}.npy", std::process::id()));
        write_i32(&path, &[3], &[1, -2, 300_000]).unwrap();
        assert_eq!(read_ints(&path).unwrap(), [1, -2, 300_000]);
        assert!(read_ints(Path::new("/nonexistent.npy")).is_err());
        std::fs::write(&path, b"\x93NUMPY\x01\x00\xff\xff").unwrap();
        assert!(read_ints(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
