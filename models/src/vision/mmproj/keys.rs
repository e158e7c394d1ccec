//! Keys of a tower, in a file of its own or in a text file.

use burn_gguf::gguf::{FromValue, Gguf};

use super::MmprojError;

/// Reads keys under `clip.vision.`, and in a text file under `ARCHITECTURE.vision.` too.
pub(super) struct Keys<'a> {
    pub gguf: &'a Gguf,
    architecture: Option<&'a str>,
}

impl<'a> Keys<'a> {
    pub fn clip(gguf: &'a Gguf) -> Self {
        Self {
            gguf,
            architecture: None,
        }
    }

    pub fn embedded(gguf: &'a Gguf, architecture: &'a str) -> Self {
        Self {
            gguf,
            architecture: Some(architecture),
        }
    }

    pub fn is_embedded(&self) -> bool {
        self.architecture.is_some()
    }

    /// The key as the file spells it.
    pub fn full(&self, key: &str) -> String {
        let clip = format!("clip.vision.{key}");
        let own = self.architecture.map(|a| format!("{a}.vision.{key}"));
        own.filter(|own| {
            !self.gguf.metadata().contains(&clip) && self.gguf.metadata().contains(own)
        })
        .unwrap_or(clip)
    }

    pub fn get<T: FromValue<'a>>(&self, key: &str) -> Result<Option<T>, MmprojError> {
        Ok(self.gguf.metadata().get_optional(&self.full(key))?)
    }

    /// A key that must be there; in a text file, `derived` stands in for it.
    pub fn required<T: FromValue<'a>>(
        &self,
        key: &str,
        derived: Option<T>,
    ) -> Result<T, MmprojError> {
        match (self.get(key)?, derived) {
            (Some(value), _) => Ok(value),
            (None, Some(derived)) if self.is_embedded() => Ok(derived),
            _ => Ok(self.gguf.metadata().get(&self.full(key))?),
        }
    }

    /// A flag of the whole file, `clip.KEY`.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, MmprojError> {
        Ok(self.gguf.metadata().get_optional(&format!("clip.{key}"))?)
    }

    pub fn invalid(&self, key: &str, value: impl ToString, reason: impl ToString) -> MmprojError {
        MmprojError::InvalidValue {
            file: self.gguf.file().clone(),
            key: self.full(key),
            value: value.to_string(),
            reason: reason.to_string(),
        }
    }

    /// That a number is 1 at least and `limit` at most.
    pub fn within(
        &self,
        key: &str,
        value: usize,
        limit: u64,
        why: &str,
    ) -> Result<(), MmprojError> {
        match value {
            0 => Err(self.invalid(key, value, "it must be above 0")),
            _ if value as u64 > limit => Err(self.invalid(key, value, why)),
            _ => Ok(()),
        }
    }
}
