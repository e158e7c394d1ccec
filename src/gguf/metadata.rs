//! The key-value metadata of a GGUF.

use std::collections::HashMap;

use super::convert::{FromValue, Mismatch};
use super::error::{FileName, GgufError};
use super::value::Value;

/// The metadata of a GGUF, in file order, with typed getters.
#[derive(Clone, Debug)]
pub struct Metadata {
    file: FileName,
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

/// Equal keys and values in the same order; the file does not matter.
impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Metadata {
    /// Fails on a duplicate key.
    pub(super) fn new(file: FileName, entries: Vec<(String, Value)>) -> Result<Self, GgufError> {
        let mut index = HashMap::new();
        for (i, (key, _)) in entries.iter().enumerate() {
            if index.insert(key.clone(), i).is_some() {
                return Err(GgufError::DuplicateKey {
                    file,
                    key: key.clone(),
                });
            }
        }
        Ok(Metadata {
            file,
            entries,
            index,
        })
    }

    /// The value of `key`, converted without loss (see [`FromValue`]).
    ///
    /// # Errors
    /// [`MissingKey`](GgufError::MissingKey), [`WrongType`](GgufError::WrongType),
    /// [`OutOfRange`](GgufError::OutOfRange), [`StringNotUtf8`](GgufError::StringNotUtf8).
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        self.get_optional(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`get`](Metadata::get), `None` if the key is absent.
    ///
    /// # Errors
    /// As `get`, except `MissingKey`.
    pub fn get_optional<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, GgufError> {
        self.value(key)
            .map(|value| T::from_value(value).map_err(|m| self.mismatch::<T>(key, value, m)))
            .transpose()
    }

    /// Like [`get`](Metadata::get), `default` if the key is absent.
    ///
    /// # Errors
    /// As `get`, except `MissingKey`: a present value of the wrong type is still an error.
    pub fn get_or<'a, T: FromValue<'a>>(&'a self, key: &str, default: T) -> Result<T, GgufError> {
        Ok(self.get_optional(key)?.unwrap_or(default))
    }

    /// One value for each of `layers` layers: a scalar holds for all, an array must have exactly `layers` entries.
    ///
    /// # Errors
    /// As [`get`](Metadata::get), and [`LayerCount`](GgufError::LayerCount).
    pub fn per_layer<'a, T: FromValue<'a> + Clone>(
        &'a self,
        key: &str,
        layers: usize,
    ) -> Result<Vec<T>, GgufError> {
        self.per_layer_optional(key, layers)?
            .ok_or_else(|| self.missing(key))
    }

    /// Like [`per_layer`](Metadata::per_layer), `None` if the key is absent.
    ///
    /// # Errors
    /// As `per_layer`, except `MissingKey`.
    pub fn per_layer_optional<'a, T: FromValue<'a> + Clone>(
        &'a self,
        key: &str,
        layers: usize,
    ) -> Result<Option<Vec<T>>, GgufError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let converted = match value {
            Value::Array(array) if array.len() != layers => {
                return Err(GgufError::LayerCount {
                    file: self.file.clone(),
                    key: key.to_owned(),
                    layers,
                    found: array.len(),
                });
            }
            Value::Array(array) => T::from_array(array),
            scalar => T::from_value(scalar).map(|v| vec![v; layers]),
        };
        converted
            .map(Some)
            .map_err(|m| self.mismatch::<T>(key, value, m))
    }

    /// The value as stored.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    /// Whether the key is present.
    pub fn contains(&self, key: &str) -> bool {
        self.index.contains_key(key)
    }

    /// Keys and values in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of `general.architecture`.
    ///
    /// # Errors
    /// As [`get`](Metadata::get).
    pub fn architecture(&self) -> Result<&str, GgufError> {
        self.get("general.architecture")
    }

    /// Where the metadata was read, for messages.
    pub fn file(&self) -> &FileName {
        &self.file
    }

    fn missing(&self, key: &str) -> GgufError {
        GgufError::MissingKey {
            file: self.file.clone(),
            key: key.to_owned(),
        }
    }

    fn mismatch<'a, T: FromValue<'a>>(
        &self,
        key: &str,
        value: &Value,
        mismatch: Mismatch,
    ) -> GgufError {
        let file = self.file.clone();
        let key = key.to_owned();
        match mismatch {
            Mismatch::Type => GgufError::WrongType {
                file,
                key,
                expected: T::expected(),
                found: value.type_name(),
            },
            Mismatch::Range { value, target } => GgufError::OutOfRange {
                file,
                key,
                value,
                target,
            },
            Mismatch::NotUtf8(index) => GgufError::StringNotUtf8 { file, key, index },
        }
    }
}
