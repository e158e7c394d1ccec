//! The files the tests write.

use std::path::{Path, PathBuf};

use burn_gguf::GgmlType;
use burn_gguf::gguf::{Gguf, GgufWriter, Value};
use burn_gguf_models::vision::discover::{Found, LogLevel, VisionSource, find};
use burn_gguf_models::vision::mmproj::{Mmproj, MmprojError, TextFacts};
use tempfile::TempDir;

/// Width of the text models, and of the towers that fit them.
pub const HIDDEN: u64 = 32;

/// Width of the towers.
pub const WIDTH: u64 = 64;

/// A `qwen3vl_merger` tower of one block whose matrices are of `ty`. `None` removes a key.
#[derive(Clone)]
pub struct Tower {
    pub ty: GgmlType,
    /// Type of the position table.
    pub table: GgmlType,
    pub hidden: u64,
    pub keys: Vec<(String, Option<Value>)>,
    pub tensors: Vec<(String, Vec<u64>, GgmlType)>,
    pub without: Vec<&'static str>,
}

impl Tower {
    pub fn new(ty: GgmlType) -> Self {
        Self {
            ty,
            table: GgmlType::F32,
            hidden: HIDDEN,
            keys: Vec::new(),
            tensors: Vec::new(),
            without: Vec::new(),
        }
    }

    pub fn bf16() -> Self {
        Self::new(GgmlType::BF16)
    }

    pub fn named(ty: GgmlType, name: &str) -> Self {
        Self::new(ty).key("general.name", name)
    }

    pub fn key(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.keys.push((key.to_owned(), Some(value.into())));
        self
    }

    pub fn without_key(mut self, key: &str) -> Self {
        self.keys.push((key.to_owned(), None));
        self
    }

    pub fn tensor(mut self, name: &str, shape: &[u64]) -> Self {
        self.tensors
            .push((name.to_owned(), shape.to_vec(), GgmlType::F32));
        self
    }

    pub fn without(mut self, tensor: &'static str) -> Self {
        self.without.push(tensor);
        self
    }

    pub fn wide(mut self, hidden: u64) -> Self {
        self.hidden = hidden;
        self
    }

    pub fn deepstack(self, layer: usize) -> Self {
        let (merged, hidden) = (4 * WIDTH, self.hidden);
        self.tensor(
            &format!("v.deepstack.{layer}.fc1.weight"),
            &[merged, merged],
        )
        .tensor(
            &format!("v.deepstack.{layer}.fc2.weight"),
            &[merged, hidden],
        )
    }

    pub fn writer(&self) -> GgufWriter<'static> {
        let mut writer = GgufWriter::new();
        writer
            .metadata("general.architecture", "clip")
            .metadata("general.type", "mmproj")
            .metadata("clip.has_vision_encoder", true)
            .metadata("clip.projector_type", "qwen3vl_merger")
            .metadata("clip.use_gelu", true)
            .metadata("clip.vision.embedding_length", WIDTH as u32)
            .metadata("clip.vision.attention.head_count", 2_u32)
            .metadata("clip.vision.feed_forward_length", 2 * WIDTH as u32)
            .metadata("clip.vision.block_count", 1_u32)
            .metadata("clip.vision.projection_dim", self.hidden as u32)
            .metadata("clip.vision.attention.layer_norm_epsilon", 1e-6_f32)
            .metadata("clip.vision.image_size", 64_u32)
            .metadata("clip.vision.patch_size", 16_u32)
            .metadata("clip.vision.spatial_merge_size", 2_u32)
            .metadata("clip.vision.image_mean", vec![0.5_f32; 3])
            .metadata("clip.vision.image_std", vec![0.5_f32; 3]);
        for (key, value) in &self.keys {
            match value {
                Some(value) => writer.set_metadata(key, value.clone()),
                None => writer.remove_metadata(key),
            };
        }
        let (merged, f32) = (4 * WIDTH, GgmlType::F32);
        let own = [
            ("v.patch_embd.weight", vec![16, 16, 3, WIDTH], f32),
            ("v.patch_embd.weight.1", vec![16, 16, 3, WIDTH], f32),
            ("v.position_embd.weight", vec![WIDTH, 16], self.table),
            ("v.blk.0.ln1.weight", vec![WIDTH], f32),
            ("v.blk.0.attn_qkv.weight", vec![WIDTH, 3 * WIDTH], self.ty),
            ("v.blk.0.ffn_up.weight", vec![WIDTH, 2 * WIDTH], self.ty),
            ("v.blk.0.ffn_down.weight", vec![2 * WIDTH, WIDTH], self.ty),
            ("mm.0.weight", vec![merged, merged], self.ty),
            ("mm.2.weight", vec![merged, self.hidden], self.ty),
        ];
        let own = own.map(|(name, shape, ty)| (name.to_owned(), shape, ty));
        for (name, shape, ty) in own.iter().chain(&self.tensors) {
            if !self.without.contains(&name.as_str()) {
                zeros(&mut writer, name, shape, *ty);
            }
        }
        writer
    }

    pub fn read(&self) -> Result<Mmproj, MmprojError> {
        Mmproj::from_gguf(self.gguf())
    }

    pub fn gguf(&self) -> Gguf {
        Gguf::from_bytes(self.writer().to_bytes().unwrap()).unwrap()
    }

    /// What is wrong with it.
    pub fn error(&self) -> String {
        self.read().expect_err("it is refused").to_string()
    }
}

/// A tensor of zeros. A type whose blocks are longer than the rows becomes Q8_0, as in files of real quantizers.
pub fn zeros(writer: &mut GgufWriter<'_>, name: &str, shape: &[u64], ty: GgmlType) {
    let row = shape[0] as usize;
    let ty = match ty.row_bytes(row) {
        Some(_) => ty,
        None => GgmlType::Q8_0,
    };
    let rows: u64 = shape[1..].iter().product();
    let bytes = ty.row_bytes(row).unwrap() * rows as usize;
    writer.tensor(name, shape, ty, vec![0_u8; bytes]);
}

/// A text model with the tokens around images, of `architecture`.
pub fn text(architecture: &str, keys: &[(&str, Value)]) -> GgufWriter<'static> {
    let mut writer = GgufWriter::new();
    writer
        .metadata("general.architecture", architecture)
        .metadata("general.type", "model")
        .metadata(format!("{architecture}.embedding_length"), HIDDEN as u32)
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata(
            "tokenizer.ggml.tokens",
            vec![
                "a",
                "<|vision_start|>",
                "<|vision_end|>",
                "<|image>",
                "<image|>",
            ],
        );
    for (key, value) in keys {
        writer.set_metadata(key, value.clone());
    }
    zeros(
        &mut writer,
        "token_embd.weight",
        &[HIDDEN, 5],
        GgmlType::F32,
    );
    writer
}

/// A `qwen35` text model that is called `name`.
pub fn qwen(name: &str) -> GgufWriter<'static> {
    match name {
        "" => text("qwen35", &[]),
        name => text("qwen35", &[("general.name", name.into())]),
    }
}

/// The tokens of a file.
pub fn tokens(text: &Gguf) -> Vec<String> {
    let tokens: Vec<&[u8]> = text.metadata().get("tokenizer.ggml.tokens").unwrap();
    tokens
        .into_iter()
        .map(|token| String::from_utf8_lossy(token).into_owned())
        .collect()
}

/// Finds a tower as a program would.
pub fn find_in(text: &Gguf, source: &VisionSource) -> Result<Found, MmprojError> {
    let tokens = tokens(text);
    let has_token = |token: &str| tokens.iter().any(|t| t == token);
    let facts = TextFacts {
        architecture: text.metadata().architecture().unwrap(),
        image_width: burn_gguf_models::vision::mmproj::image_width(text).unwrap(),
        has_token: &has_token,
    };
    find(text, &facts, source)
}

/// A folder of files that goes away with the test.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn text(self, name: &str, writer: &GgufWriter<'_>) -> Self {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        writer.write_file(path).unwrap();
        self
    }

    pub fn tower(self, name: &str, tower: &Tower) -> Self {
        self.text(name, &tower.writer())
    }

    pub fn raw(self, name: &str, bytes: &[u8]) -> Self {
        std::fs::write(self.path(name), bytes).unwrap();
        self
    }

    /// The outcome for the model of this name.
    pub fn find(&self, model: &str) -> Outcome {
        let text = Gguf::open(self.path(model)).unwrap();
        Outcome::new(find_in(&text, &VisionSource::Auto).unwrap(), self.0.path())
    }
}

/// What was found, with the folder's path taken out of all texts.
#[derive(Debug)]
pub struct Outcome {
    /// The file's name.
    pub file: Option<String>,
    pub lines: Vec<String>,
    pub warnings: Vec<String>,
    pub load_line: String,
    pub reason: Option<String>,
}

impl Outcome {
    pub fn new(found: Found, folder: &Path) -> Self {
        let here = |text: &str| {
            let text = text.replace(&format!("{}/", folder.display()), "");
            text.replace(&folder.display().to_string(), "FOLDER")
        };
        let level = |level| {
            let lines = found.log.iter().filter(move |line| line.level == level);
            lines.map(|line| here(&line.text)).collect()
        };
        Self {
            lines: level(LogLevel::Info),
            warnings: level(LogLevel::Warning),
            load_line: here(&found.load_line("F32").text),
            reason: found.reason.as_deref().map(here),
            file: found
                .mmproj
                .as_ref()
                .map(|m| here(&m.gguf().file().to_string())),
        }
    }

    /// Asserts the file, or text only, and all lines.
    pub fn is(&self, file: Option<&str>, lines: &[&str], warnings: &[&str]) {
        assert_eq!(self.file.as_deref(), file, "{self:#?}");
        assert_eq!(self.lines, lines, "{self:#?}");
        assert_eq!(self.warnings, warnings, "{self:#?}");
        assert_eq!(self.reason.is_none(), file.is_some(), "{self:#?}");
    }
}
