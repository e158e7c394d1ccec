//! From metadata values to Rust types, without loss.

use super::value::{Array, Value};

/// Why a value cannot become the wanted type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// Another kind of value.
    Type,
    /// A number that does not fit.
    Range {
        /// The number.
        value: String,
        /// The number type it does not fit.
        target: &'static str,
    },
    /// Not UTF-8; the index is that of an array's entry.
    NotUtf8(Option<usize>),
}

/// A type that [`Metadata::get`](super::Metadata::get) can return.
///
/// | Rust type | from |
/// |---|---|
/// | integers, `usize` | an integer of any width whose value fits |
/// | `f32`, `f64` | a float of either width (`f32` rounds; a finite value that would become infinite does not fit), or an integer that the float represents exactly |
/// | `bool` | a boolean |
/// | `String`, `&str` | a string of valid UTF-8 |
/// | `&[u8]` | a string, whatever its bytes |
/// | `Vec<T>` | an array whose every element converts to `T` (an empty array of any type) |
/// | `&Array` | an array of any type |
pub trait FromValue<'a>: Sized {
    /// The wanted type, in words, for messages.
    fn expected() -> String;

    /// Converts one value.
    ///
    /// # Errors
    /// The value is of another kind, out of range or not UTF-8.
    fn from_value(value: &'a Value) -> Result<Self, Mismatch>;

    /// Converts every element of an array.
    ///
    /// # Errors
    /// The first element that does not convert.
    fn from_array(array: &'a Array) -> Result<Vec<Self>, Mismatch>;
}

fn out_of_range<T>(value: impl ToString) -> Mismatch {
    Mismatch::Range {
        value: value.to_string(),
        target: std::any::type_name::<T>(),
    }
}

/// The elements of an integer array; `None` for another kind.
fn ints(array: &Array) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
    fn wide<T: Copy + Into<i128>>(v: &[T]) -> Box<dyn Iterator<Item = i128> + '_> {
        Box::new(v.iter().map(|&x| x.into()))
    }
    Some(match array {
        Array::U8(v) => wide(v),
        Array::I8(v) => wide(v),
        Array::U16(v) => wide(v),
        Array::I16(v) => wide(v),
        Array::U32(v) => wide(v),
        Array::I32(v) => wide(v),
        Array::U64(v) => wide(v),
        Array::I64(v) => wide(v),
        empty if empty.is_empty() => Box::new(std::iter::empty()),
        _ => return None,
    })
}

macro_rules! from_value_int {
    ($($ty:ty)*) => {$(
        impl FromValue<'_> for $ty {
            fn expected() -> String {
                "an integer".to_owned()
            }

            fn from_value(value: &Value) -> Result<Self, Mismatch> {
                let wide = value.as_int().ok_or(Mismatch::Type)?;
                <$ty>::try_from(wide).map_err(|_| out_of_range::<$ty>(wide))
            }

            fn from_array(array: &Array) -> Result<Vec<Self>, Mismatch> {
                ints(array)
                    .ok_or(Mismatch::Type)?
                    .map(|wide| <$ty>::try_from(wide).map_err(|_| out_of_range::<$ty>(wide)))
                    .collect()
            }
        }
    )*};
}

from_value_int!(u8 i8 u16 i16 u32 i32 u64 i64 usize);

fn narrow(value: f64) -> Result<f32, Mismatch> {
    let rounded = value as f32;
    if rounded.is_infinite() && value.is_finite() {
        return Err(out_of_range::<f32>(value));
    }
    Ok(rounded)
}

macro_rules! from_value_float {
    ($($ty:ty, $from_f64:expr;)*) => {$(
        impl FromValue<'_> for $ty {
            fn expected() -> String {
                "a number".to_owned()
            }

            fn from_value(value: &Value) -> Result<Self, Mismatch> {
                match value {
                    Value::F32(v) => Ok(<$ty>::from(*v)),
                    Value::F64(v) => $from_f64(*v),
                    other => exact(other.as_int().ok_or(Mismatch::Type)?),
                }
            }

            fn from_array(array: &Array) -> Result<Vec<Self>, Mismatch> {
                match array {
                    Array::F32(v) => Ok(v.iter().map(|&x| <$ty>::from(x)).collect()),
                    Array::F64(v) => v.iter().map(|&x| $from_f64(x)).collect(),
                    other => ints(other).ok_or(Mismatch::Type)?.map(exact).collect(),
                }
            }
        }

        impl Exact for $ty {
            fn exact(value: i128) -> Option<Self> {
                let float = value as $ty;
                (float as i128 == value).then_some(float)
            }
        }
    )*};
}

trait Exact: Sized {
    fn exact(value: i128) -> Option<Self>;
}

fn exact<T: Exact>(value: i128) -> Result<T, Mismatch> {
    T::exact(value).ok_or_else(|| out_of_range::<T>(value))
}

from_value_float! {
    f32, narrow;
    f64, Ok::<f64, Mismatch>;
}

impl FromValue<'_> for bool {
    fn expected() -> String {
        "a bool".to_owned()
    }

    fn from_value(value: &Value) -> Result<Self, Mismatch> {
        match value {
            Value::Bool(v) => Ok(*v),
            _ => Err(Mismatch::Type),
        }
    }

    fn from_array(array: &Array) -> Result<Vec<Self>, Mismatch> {
        match array {
            Array::Bool(v) => Ok(v.clone()),
            empty if empty.is_empty() => Ok(Vec::new()),
            _ => Err(Mismatch::Type),
        }
    }
}

impl<'a> FromValue<'a> for &'a [u8] {
    fn expected() -> String {
        "a string".to_owned()
    }

    fn from_value(value: &'a Value) -> Result<Self, Mismatch> {
        match value {
            Value::String(v) => Ok(v.as_bytes()),
            _ => Err(Mismatch::Type),
        }
    }

    fn from_array(array: &'a Array) -> Result<Vec<Self>, Mismatch> {
        match array {
            Array::String(v) => Ok(v.iter().collect()),
            empty if empty.is_empty() => Ok(Vec::new()),
            _ => Err(Mismatch::Type),
        }
    }
}

impl<'a> FromValue<'a> for &'a str {
    fn expected() -> String {
        "a string".to_owned()
    }

    fn from_value(value: &'a Value) -> Result<Self, Mismatch> {
        std::str::from_utf8(<&[u8]>::from_value(value)?).map_err(|_| Mismatch::NotUtf8(None))
    }

    fn from_array(array: &'a Array) -> Result<Vec<Self>, Mismatch> {
        match array {
            Array::String(v) => v
                .iter()
                .enumerate()
                .map(|(i, s)| std::str::from_utf8(s).map_err(|_| Mismatch::NotUtf8(Some(i))))
                .collect(),
            empty if empty.is_empty() => Ok(Vec::new()),
            _ => Err(Mismatch::Type),
        }
    }
}

impl FromValue<'_> for String {
    fn expected() -> String {
        "a string".to_owned()
    }

    fn from_value(value: &Value) -> Result<Self, Mismatch> {
        <&str>::from_value(value).map(str::to_owned)
    }

    fn from_array(array: &Array) -> Result<Vec<Self>, Mismatch> {
        Ok(<&str>::from_array(array)?
            .into_iter()
            .map(str::to_owned)
            .collect())
    }
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Vec<T> {
    fn expected() -> String {
        format!("an array, each element {}", T::expected())
    }

    fn from_value(value: &'a Value) -> Result<Self, Mismatch> {
        match value {
            Value::Array(array) => T::from_array(array),
            _ => Err(Mismatch::Type),
        }
    }

    fn from_array(array: &'a Array) -> Result<Vec<Self>, Mismatch> {
        match array {
            Array::Array(v) => v.iter().map(T::from_array).collect(),
            empty if empty.is_empty() => Ok(Vec::new()),
            _ => Err(Mismatch::Type),
        }
    }
}

impl<'a> FromValue<'a> for &'a Array {
    fn expected() -> String {
        "an array".to_owned()
    }

    fn from_value(value: &'a Value) -> Result<Self, Mismatch> {
        match value {
            Value::Array(array) => Ok(array),
            _ => Err(Mismatch::Type),
        }
    }

    fn from_array(array: &'a Array) -> Result<Vec<Self>, Mismatch> {
        match array {
            Array::Array(v) => Ok(v.iter().collect()),
            empty if empty.is_empty() => Ok(Vec::new()),
            _ => Err(Mismatch::Type),
        }
    }
}
