//! Broken and enormous files: errors in bounded memory, never a panic.

use std::fs::{self, File};
use std::time::Instant;

use burn_gguf::gguf::{Gguf, GgufError};
use tempfile::TempDir;

use crate::builder::*;
use crate::memory::peak;

/// Reads everything an opened file offers.
fn touch(gguf: &Gguf) -> u64 {
    let mut sum = 0u64;
    for (key, value) in gguf.metadata().iter() {
        sum += (key.len() + value.to_string().len()) as u64;
        let _ = gguf.metadata().get::<u32>(key);
        let _ = gguf.metadata().get::<Vec<String>>(key);
        let _ = gguf.metadata().get::<Vec<i64>>(key);
        let _ = gguf.metadata().per_layer::<f32>(key, 2);
    }
    for tensor in gguf.tensors() {
        sum += tensor.data().iter().map(|&b| u64::from(b)).sum::<u64>();
        sum += tensor.bytes().len() as u64 + tensor.n_elements();
        let _ = tensor.padded_bytes(4);
        let _ = tensor.usable_type();
        sum += format!("{tensor:?}").len() as u64;
    }
    sum
}

#[test]
fn every_prefix_is_an_error() {
    let vocabulary = Builder::new()
        .key("a", u8v(1))
        .key("tokens", arrayv(8, 2, [string("x"), string("yz")].concat()));
    for bytes in [sample().bytes(), vocabulary.bytes()] {
        touch(&Gguf::from_bytes(bytes.clone().into()).unwrap());
        for cut in 0..bytes.len() {
            let error = Gguf::from_bytes(bytes[..cut].to_vec().into())
                .expect_err(&format!("the first {cut} of {} bytes", bytes.len()));
            assert!(!error.to_string().is_empty());
        }
    }
}

#[test]
fn every_prefix_is_an_error_on_disk() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("cut.gguf");
    let bytes = sample().bytes();
    for cut in (0..bytes.len()).step_by(7) {
        fs::write(&path, &bytes[..cut]).unwrap();
        assert!(Gguf::open(&path).is_err(), "the first {cut} bytes");
    }
}

struct XorShift(u64);

impl XorShift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut random = XorShift(0x9E37_79B9_7F4A_7C15);
    let clean = sample().tensor("odd", &[7], 139, 64).data([5; 64]).bytes();
    Gguf::from_bytes(clean.clone().into()).unwrap();
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..40_000 {
        let mut bytes = clean.clone();
        for _ in 0..1 + random.next() % 4 {
            let at = (random.next() % bytes.len() as u64) as usize;
            // Flipped bits, or a byte of an extreme number.
            bytes[at] = match random.next() % 3 {
                0 => bytes[at] ^ (1 << (random.next() % 8)),
                1 => 0xFF,
                _ => random.next() as u8,
            };
        }
        let (result, held) = peak(|| Gguf::from_bytes(bytes.into()).map(|g| touch(&g)));
        assert!(held < 64 * clean.len() + 64 * 1024, "held {held} bytes");
        match result {
            Ok(_) => opened += 1,
            Err(_) => refused += 1,
        }
    }
    // Both happen, or the test tests nothing.
    assert!(opened > 1000 && refused > 1000, "{opened} {refused}");
}

#[test]
fn counts_are_checked_before_allocating() {
    let huge_key = |ty, n: u64| Builder::new().key("k", arrayv(ty, n, [0; 64]));
    let mut keys = sample();
    keys.n_keys = Some(1 << 61);
    let mut tensors = sample();
    tensors.n_tensors = Some(1 << 61);
    let mut files = vec![
        ("keys", keys),
        ("tensors", tensors),
        (
            "string",
            Builder::new().key("k", (8, (1u64 << 40).to_le_bytes().to_vec())),
        ),
        (
            "dimensions",
            Builder::new().tensor("t", &[1 << 50], 0, 0).data([0; 32]),
        ),
    ];
    for ty in 0..=12 {
        files.push(("array 2^60", huge_key(ty, 1 << 60)));
        files.push(("array 2^33", huge_key(ty, 1 << 33)));
    }
    for (what, file) in files {
        let bytes = bytes::Bytes::from(file.bytes());
        let (result, held) = peak(|| Gguf::from_bytes(bytes).map(|_| ()));
        assert!(result.is_err(), "{what}");
        assert!(held < 16 * 1024, "{what}: held {held} bytes");
    }
}

#[test]
fn counts_that_could_be_true_are_not_trusted_either() {
    // A megabyte of zeros: room for 80 000 keys, but the first is already empty.
    let mut file = Builder::new();
    file.n_keys = Some(80_000);
    let mut bytes = file.header();
    bytes.resize(1 << 20, 0);
    let (result, held) = peak(|| Gguf::from_bytes(bytes.into()).map(|_| ()));
    assert!(
        matches!(result, Err(GgufError::EmptyKey { .. })),
        "{result:?}"
    );
    assert!(held < 16 * 1024, "held {held} bytes");
}

#[test]
fn memory_is_bounded_by_the_file() {
    // Nested empty arrays: the most memory per byte of file.
    let inner = arrayv(0, 0, []).1.repeat(100_000);
    let bytes = bytes::Bytes::from(Builder::new().key("k", arrayv(9, 100_000, inner)).bytes());
    let size = bytes.len();
    let (result, held) = peak(|| Gguf::from_bytes(bytes));
    assert!(result.is_ok());
    assert!(held < 12 * size, "held {held} bytes for a file of {size}");
}

/// A sparse file of one header and `size` bytes of data; `None` where the file system cannot.
fn sparse(dir: &TempDir, builder: &Builder, data: u64) -> Option<std::path::PathBuf> {
    let path = dir.path().join("sparse.gguf");
    let header = builder.header();
    fs::write(&path, &header).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let size = (header.len() as u64).next_multiple_of(32) + data;
    if let Err(e) = file.set_len(size) {
        println!("skipped: the file system refuses a sparse file of {size} bytes: {e}");
        return None;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if file.metadata().unwrap().blocks() > 1 << 20 {
            println!("skipped: the file system stores holes");
            return None;
        }
    }
    Some(path)
}

/// Pages of this process in memory.
fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

#[test]
fn a_file_of_100_gb_opens_in_milliseconds() {
    let dir = TempDir::new().unwrap();
    let rows = 25u64 << 10;
    let layer = (rows << 10) * 4;
    let mut file = Builder::new().key("general.architecture", strv("huge"));
    for i in 0..1000u64 {
        file = file.tensor(format!("blk.{i}"), &[1024, rows], 0, i * layer);
    }
    let Some(path) = sparse(&dir, &file, 1000 * layer) else {
        return;
    };
    let before = resident_bytes();
    let start = Instant::now();
    let (gguf, held) = peak(|| Gguf::open(&path));
    let took = start.elapsed();
    let gguf = gguf.unwrap();
    assert!(gguf.file_size() > 100_000_000_000, "{}", gguf.file_size());
    assert_eq!(gguf.tensors().len(), 1000);
    println!(
        "opened {} bytes in {took:?}, {held} bytes held",
        gguf.file_size()
    );
    assert!(took.as_millis() < 500, "took {took:?}");
    assert!(held < 4 << 20, "held {held} bytes");
    match (before, resident_bytes()) {
        // Other tests run in this process; the bound is wide for them and far below the file.
        (Some(before), Some(after)) => assert!(after < before + (256 << 20)),
        _ => println!("skipped: resident memory is not known here"),
    }
    // The last bytes are where the offsets say.
    let last = gguf.require("blk.999").unwrap();
    assert_eq!(last.byte_range().end as u64, gguf.file_size());
    assert_eq!(last.data()[last.byte_len() - 4..], [0; 4]);
}

#[test]
fn a_tensor_past_4_gib_is_read_where_it_is() {
    use std::io::{Seek, SeekFrom, Write};
    let dir = TempDir::new().unwrap();
    let big = 5u64 << 30;
    let file = Builder::new()
        .tensor("big", &[big], 24, 0)
        .tensor("small", &[8], 24, big);
    let Some(path) = sparse(&dir, &file, big + 8) else {
        return;
    };
    let mut handle = File::options().write(true).open(&path).unwrap();
    handle.seek(SeekFrom::End(-8)).unwrap();
    handle.write_all(b"at 5 GiB").unwrap();
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!(gguf.require("small").unwrap().data(), b"at 5 GiB");
    assert_eq!(gguf.require("big").unwrap().byte_len() as u64, big);
}

#[test]
fn a_large_vocabulary_opens_fast_and_small() {
    let tokens: Vec<u8> = (0..262_144)
        .flat_map(|i| string(format!("token{i}")))
        .collect();
    let merges: Vec<u8> = (0..500_000)
        .flat_map(|i| string(format!("a{i} b{i}")))
        .collect();
    let scores: Vec<u8> = (0..262_144)
        .flat_map(|i| (-(i as f32)).to_le_bytes())
        .collect();
    let bytes = bytes::Bytes::from(
        Builder::new()
            .key("tokens", arrayv(8, 262_144, tokens))
            .key("merges", arrayv(8, 500_000, merges))
            .key("scores", arrayv(6, 262_144, scores))
            .bytes(),
    );
    let start = Instant::now();
    let (gguf, held) = peak(|| Gguf::from_bytes(bytes).unwrap());
    let opened = start.elapsed();
    let tokens: Vec<&str> = gguf.metadata().get("tokens").unwrap();
    let merges: Vec<String> = gguf.metadata().get("merges").unwrap();
    println!(
        "opened in {opened:?}, read in {:?}",
        start.elapsed() - opened
    );
    assert_eq!((tokens.len(), tokens[262_143]), (262_144, "token262143"));
    assert_eq!(
        (merges.len(), &*merges[499_999]),
        (500_000, "a499999 b499999")
    );
    // The scores only: strings stay where they are.
    assert!(held < 2 << 20, "held {held} bytes");
    assert!(opened.as_millis() < 1000, "took {opened:?}");
}
