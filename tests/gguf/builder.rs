//! GGUF files made by hand, byte by byte, so that any field can be wrong. Independent of `GgufWriter`.

use burn_gguf::gguf::{Gguf, GgufError};

/// A value with its type id, encoded.
pub type Raw = (u32, Vec<u8>);

pub fn u8v(v: u8) -> Raw {
    (0, vec![v])
}

pub fn u16v(v: u16) -> Raw {
    (2, v.to_le_bytes().to_vec())
}

pub fn u32v(v: u32) -> Raw {
    (4, v.to_le_bytes().to_vec())
}

pub fn i32v(v: i32) -> Raw {
    (5, v.to_le_bytes().to_vec())
}

pub fn u64v(v: u64) -> Raw {
    (10, v.to_le_bytes().to_vec())
}

pub fn boolv(v: u8) -> Raw {
    (7, vec![v])
}

pub fn strv(v: impl AsRef<[u8]>) -> Raw {
    (8, string(v))
}

/// An array of `n` elements of type `element`, already encoded.
pub fn arrayv(element: u32, n: u64, encoded: impl AsRef<[u8]>) -> Raw {
    let mut out = element.to_le_bytes().to_vec();
    out.extend(n.to_le_bytes());
    out.extend(encoded.as_ref());
    (9, out)
}

pub fn string(v: impl AsRef<[u8]>) -> Vec<u8> {
    let v = v.as_ref();
    let mut out = (v.len() as u64).to_le_bytes().to_vec();
    out.extend(v);
    out
}

/// A file in the making. Counts can be overridden to lie.
#[derive(Clone)]
pub struct Builder {
    pub magic: [u8; 4],
    pub version: u32,
    pub n_tensors: Option<u64>,
    pub n_keys: Option<u64>,
    pub alignment: usize,
    keys: Vec<u8>,
    key_count: u64,
    tensors: Vec<u8>,
    tensor_count: u64,
    data: Vec<u8>,
}

impl Builder {
    pub fn new() -> Self {
        Builder {
            magic: *b"GGUF",
            version: 3,
            n_tensors: None,
            n_keys: None,
            alignment: 32,
            keys: Vec::new(),
            key_count: 0,
            tensors: Vec::new(),
            tensor_count: 0,
            data: Vec::new(),
        }
    }

    pub fn key(mut self, key: impl AsRef<[u8]>, value: Raw) -> Self {
        self.keys.extend(string(key));
        self.keys.extend(value.0.to_le_bytes());
        self.keys.extend(value.1);
        self.key_count += 1;
        self
    }

    /// A line of the tensor table, with no data.
    pub fn tensor(mut self, name: impl AsRef<[u8]>, dims: &[u64], ty: u32, offset: u64) -> Self {
        self.tensors.extend(string(name));
        self.tensors.extend((dims.len() as u32).to_le_bytes());
        for dim in dims {
            self.tensors.extend(dim.to_le_bytes());
        }
        self.tensors.extend(ty.to_le_bytes());
        self.tensors.extend(offset.to_le_bytes());
        self.tensor_count += 1;
        self
    }

    /// Bytes of the data section, with no padding added.
    pub fn data(mut self, data: impl AsRef<[u8]>) -> Self {
        self.data.extend(data.as_ref());
        self
    }

    /// An F32 tensor of `n` values behind what is there, with padding.
    pub fn f32(self, name: &str, n: usize) -> Self {
        let offset = self.data.len() as u64;
        let mut this = self.tensor(name, &[n as u64], 0, offset);
        for i in 0..n {
            this.data.extend((i as f32 + 0.5).to_le_bytes());
        }
        let padded = this.data.len().next_multiple_of(this.alignment);
        this.data.resize(padded, 0);
        this
    }

    pub fn header(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.n_tensors.unwrap_or(self.tensor_count).to_le_bytes());
        out.extend(self.n_keys.unwrap_or(self.key_count).to_le_bytes());
        out.extend(&self.keys);
        out.extend(&self.tensors);
        out
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        if self.tensor_count > 0 {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend(&self.data);
        }
        out
    }

    pub fn open(&self) -> Result<Gguf, GgufError> {
        Gguf::from_bytes(self.bytes().into())
    }

    /// The error of opening; opening must fail.
    pub fn error(&self) -> GgufError {
        self.open().expect_err("must not open")
    }
}

/// A small valid file with every kind of value, whose last tensor needs no padding.
pub fn sample() -> Builder {
    let strings = [string("a"), string(""), string("ünï")].concat();
    let nested = [arrayv(0, 2, [1, 2]).1, arrayv(0, 0, []).1].concat();
    Builder::new()
        .key("general.architecture", strv("sample"))
        .key("u8", u8v(200))
        .key("i8", (1, vec![0x80]))
        .key("u16", u16v(60000))
        .key("i16", (3, (-3i16).to_le_bytes().to_vec()))
        .key("u32", u32v(4_000_000_000))
        .key("i32", i32v(-5))
        .key("f32", (6, 1.5f32.to_le_bytes().to_vec()))
        .key("bool", boolv(1))
        .key("u64", u64v(u64::MAX))
        .key("i64", (11, i64::MIN.to_le_bytes().to_vec()))
        .key("f64", (12, 0.1f64.to_le_bytes().to_vec()))
        .key("strings", arrayv(8, 3, strings))
        .key("bools", arrayv(7, 3, [0, 1, 1]))
        .key("nested", arrayv(9, 2, nested))
        .key(
            "numbers",
            arrayv(4, 2, [7u32.to_le_bytes(), 9u32.to_le_bytes()].concat()),
        )
        .f32("first", 3)
        .f32("second", 8)
}
