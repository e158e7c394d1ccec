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
    replace(path, |out| {
        out.write_all(b"\x93NUMPY\x01\x00")?;
        out.write_all(&u16::try_from(padded).unwrap_or(u16::MAX).to_le_bytes())?;
        out.write_all(dict.as_bytes())?;
        out.write_all(" ".repeat(padded - dict.len() - 1).as_bytes())?;
        out.write_all(b"\n")?;
        for value in values {
            out.write_all(&value)?;
        }
        Ok(())
    })
    .map_err(|e| format!("cannot write {}: {e}", path.display()).into())
}

/// Writes a file beside `path` and renames it there, so that a full disk leaves what was there before. Devices and
/// pipes are written to directly.
fn replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let special = std::fs::metadata(path).is_ok_and(|m| !m.is_file());
    let scratch = match special {
        true => path.to_path_buf(),
        false => path.with_added_extension(format!("{}.tmp", std::process::id())),
    };
    let written = File::create(&scratch).and_then(|file| {
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.flush()
    });
    match (special, written) {
        (true, written) => written,
        (false, Ok(())) => std::fs::rename(&scratch, path),
        (false, Err(error)) => {
            let _ = std::fs::remove_file(&scratch);
            Err(error)
        }
    }
}

/// Reads the integers of a `.npy` file of any integer type.
pub fn read_ints(path: &Path) -> Result<Vec<i64>, Error> {
    let bytes = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    parse_ints(&bytes).map_err(|reason| format!("{}: {reason}", path.display()).into())
}

fn parse_ints(bytes: &[u8]) -> Result<Vec<i64>, String> {
    let (header, data) = split(bytes).ok_or("not a .npy file, or cut off in its header")?;
    if header.contains("'fortran_order': True") {
        return Err("the array is in column-major order".to_string());
    }
    let descr = header
        .split("'descr':")
        .nth(1)
        .and_then(|rest| rest.split('\'').nth(1))
        .ok_or("its header names no type")?;
    let shape = header
        .split("'shape':")
        .nth(1)
        .and_then(|rest| rest.split_once('('))
        .and_then(|(_, rest)| rest.split_once(')'))
        .map(|(dims, _)| dims)
        .ok_or("its header names no shape")?;
    let count = shape
        .split(',')
        .map(str::trim)
        .filter(|dim| !dim.is_empty())
        .try_fold(1usize, |n, dim| n.checked_mul(dim.parse().ok()?))
        .ok_or_else(|| format!("shape ({shape}) makes no sense"))?;
    let ints = |size: usize, read: fn(&[u8]) -> Option<i64>| {
        if count.checked_mul(size) != Some(data.len()) {
            return Err(format!(
                "shape ({shape}) of type {descr} does not fit its {} bytes of data",
                data.len()
            ));
        }
        data.chunks_exact(size)
            .map(|b| read(b).ok_or_else(|| "a value is out of range".to_string()))
            .collect()
    };
    match descr {
        "<i8" => ints(8, |b| Some(i64::from_le_bytes(b.try_into().ok()?))),
        "<u8" => ints(8, |b| {
            i64::try_from(u64::from_le_bytes(b.try_into().ok()?)).ok()
        }),
        "<i4" => ints(4, |b| Some(i32::from_le_bytes(b.try_into().ok()?).into())),
        "<u4" => ints(4, |b| Some(u32::from_le_bytes(b.try_into().ok()?).into())),
        "<i2" => ints(2, |b| Some(i16::from_le_bytes(b.try_into().ok()?).into())),
        "<u2" => ints(2, |b| Some(u16::from_le_bytes(b.try_into().ok()?).into())),
        "|u1" => ints(1, |b| b.first().map(|&v| v.into())),
        other => Err(format!("type {other} is not a little-endian integer")),
    }
}

/// Header text and data.
fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let rest = bytes.strip_prefix(b"\x93NUMPY")?;
    let (len, at): (usize, usize) = match rest.first()? {
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
    let end = at.checked_add(len)?;
    Some((
        std::str::from_utf8(rest.get(at..end)?).ok()?,
        rest.get(end..)?,
    ))
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
        let whole = std::fs::read(&path).unwrap();
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(read_ints(&path).is_err(), "cut to {len} bytes");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
