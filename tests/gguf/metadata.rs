//! Typed getters.

use burn_gguf::gguf::{Array, Value, ValueType};

use crate::builder::*;

#[test]
fn integers_of_any_width() {
    let gguf = sample().open().unwrap();
    let m = gguf.metadata();
    assert_eq!(m.get::<u8>("u8").unwrap(), 200);
    assert_eq!(m.get::<usize>("u8").unwrap(), 200);
    assert_eq!(m.get::<i8>("i8").unwrap(), -128);
    assert_eq!(m.get::<i64>("i8").unwrap(), -128);
    assert_eq!(m.get::<u16>("u16").unwrap(), 60000);
    assert_eq!(m.get::<i32>("i16").unwrap(), -3);
    assert_eq!(m.get::<i64>("u32").unwrap(), 4_000_000_000);
    assert_eq!(m.get::<i16>("i32").unwrap(), -5);
    assert_eq!(m.get::<u64>("u64").unwrap(), u64::MAX);
    assert_eq!(m.get::<i64>("i64").unwrap(), i64::MIN);
}

#[test]
fn floats() {
    let gguf = sample().open().unwrap();
    let m = gguf.metadata();
    assert_eq!(m.get::<f32>("f32").unwrap(), 1.5);
    assert_eq!(m.get::<f64>("f32").unwrap(), 1.5);
    assert_eq!(m.get::<f64>("f64").unwrap(), 0.1);
    assert_eq!(m.get::<f32>("f64").unwrap(), 0.1f32);
    assert_eq!(m.get::<f32>("u8").unwrap(), 200.0);
    assert_eq!(m.get::<f64>("i64").unwrap(), -(2f64.powi(63)));
    assert_eq!(m.get::<Vec<f32>>("numbers").unwrap(), [7.0, 9.0]);
}

#[test]
fn strings_and_bools() {
    let gguf = sample().open().unwrap();
    let m = gguf.metadata();
    assert_eq!(m.architecture().unwrap(), "sample");
    assert_eq!(m.get::<String>("general.architecture").unwrap(), "sample");
    assert!(m.get::<bool>("bool").unwrap());
    assert_eq!(m.get::<Vec<bool>>("bools").unwrap(), [false, true, true]);
    assert_eq!(m.get::<Vec<&str>>("strings").unwrap(), ["a", "", "ünï"]);
    assert_eq!(m.get::<Vec<String>>("strings").unwrap(), ["a", "", "ünï"]);
}

#[test]
fn nested_arrays() {
    let gguf = sample().open().unwrap();
    let m = gguf.metadata();
    let expected: [Vec<u32>; 2] = [vec![1, 2], vec![]];
    assert_eq!(m.get::<Vec<Vec<u32>>>("nested").unwrap(), expected);
    let array = m.get::<&Array>("nested").unwrap();
    assert_eq!(array.element_type(), ValueType::Array);
    assert_eq!(
        *array,
        Array::Array(vec![Array::U8(vec![1, 2]), Array::U8(vec![])])
    );
}

#[test]
fn optional_and_default() {
    let gguf = sample().open().unwrap();
    let m = gguf.metadata();
    assert_eq!(m.get_optional::<u32>("absent").unwrap(), None);
    assert_eq!(m.get_optional::<u32>("u8").unwrap(), Some(200));
    assert_eq!(m.get_or("absent", 7u32).unwrap(), 7);
    assert_eq!(m.get_or("u8", 7u32).unwrap(), 200);
    assert_eq!(m.get_or("absent", "none").unwrap(), "none");
    assert!(m.contains("u8") && !m.contains("absent"));
}

#[test]
fn arrays_are_never_cut() {
    let many: Vec<u8> = (0..5000u32).flat_map(|v| v.to_le_bytes()).collect();
    let gguf = Builder::new()
        .key("many", arrayv(5, 5000, many))
        .open()
        .unwrap();
    let values = gguf.metadata().get::<Vec<u64>>("many").unwrap();
    assert_eq!(values, (0..5000).collect::<Vec<u64>>());
}

#[test]
fn an_empty_array_is_of_any_type() {
    let gguf = Builder::new().key("none", arrayv(5, 0, [])).open().unwrap();
    let m = gguf.metadata();
    assert!(m.get::<Vec<String>>("none").unwrap().is_empty());
    assert!(m.get::<Vec<f32>>("none").unwrap().is_empty());
    assert!(m.get::<Vec<bool>>("none").unwrap().is_empty());
    assert!(m.get::<Vec<Vec<u8>>>("none").unwrap().is_empty());
}

#[test]
fn per_layer_scalar_or_array_in_any_width() {
    let le16: Vec<u8> = [1i16, 0, 3].iter().flat_map(|v| v.to_le_bytes()).collect();
    let le64: Vec<u8> = [8u64, 4, 8].iter().flat_map(|v| v.to_le_bytes()).collect();
    let gguf = Builder::new()
        .key("scalar", i32v(8))
        .key("i16s", arrayv(3, 3, le16))
        .key("u64s", arrayv(10, 3, le64))
        .key("flags", arrayv(7, 3, [1, 0, 1]))
        .key("f", (6, 0.5f32.to_le_bytes().to_vec()))
        .open()
        .unwrap();
    let m = gguf.metadata();
    assert_eq!(m.per_layer::<usize>("scalar", 3).unwrap(), [8, 8, 8]);
    assert_eq!(m.per_layer::<u32>("i16s", 3).unwrap(), [1, 0, 3]);
    assert_eq!(m.per_layer::<u8>("u64s", 3).unwrap(), [8, 4, 8]);
    assert_eq!(
        m.per_layer::<bool>("flags", 3).unwrap(),
        [true, false, true]
    );
    assert_eq!(m.per_layer::<f32>("f", 2).unwrap(), [0.5, 0.5]);
    assert_eq!(m.per_layer_optional::<u32>("absent", 3).unwrap(), None);
    assert!(m.per_layer::<u32>("scalar", 0).unwrap().is_empty());
}

#[test]
fn iteration_is_in_file_order() {
    let gguf = sample().open().unwrap();
    let keys: Vec<_> = gguf.metadata().iter().map(|(k, _)| k).collect();
    assert_eq!(keys[..3], ["general.architecture", "u8", "i8"]);
    assert_eq!(keys.len(), gguf.metadata().len());
    assert_eq!(gguf.metadata().value("u16"), Some(&Value::U16(60000)));
}

#[test]
fn values_print_short() {
    let gguf = sample().open().unwrap();
    let show = |key: &str| gguf.metadata().value(key).unwrap().to_string();
    assert_eq!(show("general.architecture"), "\"sample\"");
    assert_eq!(show("i8"), "-128");
    assert_eq!(show("strings"), "[\"a\", \"\", \"ünï\"]");
    assert_eq!(show("nested"), "[[1, 2], []]");
    let long = Value::from((0u8..100).collect::<Vec<_>>());
    assert_eq!(long.to_string(), "[100 values] [0, 1, 2, 3] ...");
    assert_eq!(long.type_name(), "array of u8");
}
