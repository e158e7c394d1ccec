//! Metadata values as the file stores them.

use std::borrow::Cow;
use std::fmt;
use std::str::Utf8Error;

use bytes::Bytes;

/// The type of a metadata value or of an array's elements, with GGUF's ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    /// Every type, by ascending id.
    pub const ALL: [ValueType; 13] = [
        ValueType::U8,
        ValueType::I8,
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::Bool,
        ValueType::String,
        ValueType::Array,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    /// The type with this id in a GGUF file (0..=12).
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// The id a GGUF file stores.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// The name used in messages: `u32`, `string`, ...
    pub const fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::String => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }

    /// The fewest bytes one value takes in a file: its size, or that of its length fields.
    pub(super) const fn min_bytes(self) -> u64 {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::U64 | ValueType::I64 | ValueType::F64 | ValueType::String => 8,
            ValueType::Array => 12,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A string of a GGUF file: bytes that should be, but need not be, UTF-8 (some tokenizers store raw bytes).
///
/// A string read from a file shares the file's memory.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct GgufString(Bytes);

impl GgufString {
    /// Wraps the bytes of a string (without its length).
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        GgufString(bytes.into())
    }

    /// The bytes as stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text.
    ///
    /// # Errors
    /// The bytes are not UTF-8.
    pub fn to_str(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.0)
    }

    /// The text with U+FFFD for what is not UTF-8.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl fmt::Debug for GgufString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string_lossy(), f)
    }
}

/// The text, with U+FFFD for what is not UTF-8.
impl fmt::Display for GgufString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_string_lossy(), f)
    }
}

impl From<&str> for GgufString {
    fn from(text: &str) -> Self {
        GgufString(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for GgufString {
    fn from(text: String) -> Self {
        GgufString(text.into())
    }
}

/// An array of strings in its file encoding, so that a vocabulary of 262 144 tokens opens without an allocation each.
///
/// Walk it with [`iter`](StringArray::iter); for random access collect the iterator.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct StringArray {
    /// Length-prefixed strings, `len` of them and nothing after: the constructors guarantee it.
    encoded: Bytes,
    len: usize,
}

impl StringArray {
    /// `encoded` must hold exactly `len` length-prefixed strings.
    pub(super) fn from_encoded(encoded: Bytes, len: usize) -> Self {
        StringArray { encoded, len }
    }

    pub(super) fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The strings' bytes, in order.
    pub fn iter(&self) -> StringIter<'_> {
        StringIter {
            rest: &self.encoded,
            left: self.len,
        }
    }
}

impl fmt::Debug for StringArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(String::from_utf8_lossy))
            .finish()
    }
}

impl<'a> IntoIterator for &'a StringArray {
    type Item = &'a [u8];
    type IntoIter = StringIter<'a>;

    fn into_iter(self) -> StringIter<'a> {
        self.iter()
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for StringArray {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut encoded = Vec::new();
        let mut len = 0;
        for string in strings {
            let string = string.as_ref();
            encoded.extend((string.len() as u64).to_le_bytes());
            encoded.extend(string);
            len += 1;
        }
        StringArray {
            encoded: encoded.into(),
            len,
        }
    }
}

/// Iterates over the bytes of each string of a [`StringArray`].
#[derive(Clone, Debug)]
pub struct StringIter<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Iterator for StringIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.rest.split_first_chunk::<8>()?;
        let (string, rest) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
        self.rest = rest;
        self.left -= 1;
        Some(string)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for StringIter<'_> {}

/// An array of metadata values, all of one type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(StringArray),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Runs `$body` with `$v` bound to the elements, whatever their type.
macro_rules! for_any_array {
    ($array:expr, $v:ident => $body:expr) => {
        match $array {
            Array::U8($v) => $body,
            Array::I8($v) => $body,
            Array::U16($v) => $body,
            Array::I16($v) => $body,
            Array::U32($v) => $body,
            Array::I32($v) => $body,
            Array::F32($v) => $body,
            Array::Bool($v) => $body,
            Array::String($v) => $body,
            Array::Array($v) => $body,
            Array::U64($v) => $body,
            Array::I64($v) => $body,
            Array::F64($v) => $body,
        }
    };
}

impl Array {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        for_any_array!(self, v => v.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the elements.
    pub fn element_type(&self) -> ValueType {
        match self {
            Array::U8(_) => ValueType::U8,
            Array::I8(_) => ValueType::I8,
            Array::U16(_) => ValueType::U16,
            Array::I16(_) => ValueType::I16,
            Array::U32(_) => ValueType::U32,
            Array::I32(_) => ValueType::I32,
            Array::F32(_) => ValueType::F32,
            Array::Bool(_) => ValueType::Bool,
            Array::String(_) => ValueType::String,
            Array::Array(_) => ValueType::Array,
            Array::U64(_) => ValueType::U64,
            Array::I64(_) => ValueType::I64,
            Array::F64(_) => ValueType::F64,
        }
    }

    /// The first `limit` elements, comma separated, in brackets.
    fn write_elements(&self, f: &mut fmt::Formatter<'_>, limit: usize) -> fmt::Result {
        fn list<T: fmt::Debug>(
            f: &mut fmt::Formatter<'_>,
            items: impl Iterator<Item = T>,
        ) -> fmt::Result {
            f.debug_list().entries(items).finish()
        }
        match self {
            Array::String(v) => list(f, v.iter().take(limit).map(String::from_utf8_lossy)),
            Array::Array(v) => {
                f.write_str("[")?;
                for (i, inner) in v.iter().take(limit).enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    inner.write_elements(f, limit)?;
                }
                f.write_str("]")
            }
            Array::U8(v) => list(f, v.iter().take(limit)),
            Array::I8(v) => list(f, v.iter().take(limit)),
            Array::U16(v) => list(f, v.iter().take(limit)),
            Array::I16(v) => list(f, v.iter().take(limit)),
            Array::U32(v) => list(f, v.iter().take(limit)),
            Array::I32(v) => list(f, v.iter().take(limit)),
            Array::F32(v) => list(f, v.iter().take(limit)),
            Array::Bool(v) => list(f, v.iter().take(limit)),
            Array::U64(v) => list(f, v.iter().take(limit)),
            Array::I64(v) => list(f, v.iter().take(limit)),
            Array::F64(v) => list(f, v.iter().take(limit)),
        }
    }
}

/// All elements up to 16, otherwise the count and the first four: `[373 values] ["<pad>", "<eos>", ...`.
impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FULL: usize = 16;
        const HEAD: usize = 4;
        if self.len() <= FULL {
            self.write_elements(f, FULL)
        } else {
            write!(f, "[{} values] ", self.len())?;
            self.write_elements(f, HEAD)?;
            f.write_str(" ...")
        }
    }
}

/// One metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(GgufString),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    /// The type the file stores.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// The type in words: `u32`, `array of string`.
    pub fn type_name(&self) -> String {
        match self {
            Value::Array(array) => format!("array of {}", array.element_type()),
            other => other.value_type().name().to_owned(),
        }
    }

    /// The number, if this is an integer of any width.
    pub fn as_int(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// The text, if this is a string of valid UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(s) => s.to_str().ok(),
            _ => None,
        }
    }
}

/// Strings quoted, arrays shortened (see [`Array`]).
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(v) => v.fmt(f),
            Value::I8(v) => v.fmt(f),
            Value::U16(v) => v.fmt(f),
            Value::I16(v) => v.fmt(f),
            Value::U32(v) => v.fmt(f),
            Value::I32(v) => v.fmt(f),
            Value::F32(v) => v.fmt(f),
            Value::Bool(v) => v.fmt(f),
            Value::String(v) => fmt::Debug::fmt(v, f),
            Value::Array(v) => v.fmt(f),
            Value::U64(v) => v.fmt(f),
            Value::I64(v) => v.fmt(f),
            Value::F64(v) => v.fmt(f),
        }
    }
}

macro_rules! value_from {
    ($($rust:ty => $variant:ident;)*) => {$(
        impl From<$rust> for Value {
            fn from(value: $rust) -> Self {
                Value::$variant(value)
            }
        }

        impl From<Vec<$rust>> for Value {
            fn from(values: Vec<$rust>) -> Self {
                Value::Array(Array::$variant(values))
            }
        }

        impl From<&[$rust]> for Value {
            fn from(values: &[$rust]) -> Self {
                Value::Array(Array::$variant(values.to_vec()))
            }
        }
    )*};
}

value_from! {
    u8 => U8;
    i8 => I8;
    u16 => U16;
    i16 => I16;
    u32 => U32;
    i32 => I32;
    f32 => F32;
    bool => Bool;
    Array => Array;
    u64 => U64;
    i64 => I64;
    f64 => F64;
}

impl From<GgufString> for Value {
    fn from(text: GgufString) -> Self {
        Value::String(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::String(text.into())
    }
}

impl From<StringArray> for Value {
    fn from(strings: StringArray) -> Self {
        Value::Array(Array::String(strings))
    }
}

impl From<Vec<String>> for Value {
    fn from(strings: Vec<String>) -> Self {
        strings.iter().collect::<StringArray>().into()
    }
}

impl From<Vec<&str>> for Value {
    fn from(strings: Vec<&str>) -> Self {
        strings.iter().collect::<StringArray>().into()
    }
}

impl From<&[&str]> for Value {
    fn from(strings: &[&str]) -> Self {
        strings.iter().collect::<StringArray>().into()
    }
}
