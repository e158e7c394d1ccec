//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

#[derive(Parser)]
#[command(
    name = "burn-gguf",
    version,
    about = "Run, inspect and benchmark GGUF models on Burn devices"
)]
pub struct Cli {
    /// CPU threads (default: one a core)
    #[arg(short = 't', long, global = true)]
    pub threads: Option<usize>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Let the model that comes with this program describe a picture
    Demo(DemoArgs),
    /// Generate text from a prompt, or chat
    Run(RunArgs),
    /// Show a file's metadata and tensors, and whether we run it
    Inspect(InspectArgs),
    /// List the devices of this build and machine
    Devices,
    /// Measure prompt and generation speed
    Bench(BenchArgs),
    /// Write the logits of a prompt as .npy files
    Logits(LogitsArgs),
    /// Print the prompt that a conversation becomes
    Template(TemplateArgs),
    /// Show what a model sees of an image
    Vision(VisionCommandArgs),
    /// Turn text into token ids, or ids into text
    Tokenize(TokenizeArgs),
    /// Measure on a text which inputs of each weight matter, for quantization
    Imatrix(ImatrixArgs),
    /// Write a tensor's dequantized values as a .npy file
    Tensor(TensorArgs),
    /// Write a file with its tensors quantized
    Quantize(QuantizeArgs),
    /// Run every operation on every block type on every device against an oracle, and time them
    Matrix(MatrixArgs),
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum ArithmeticArg {
    /// Weights dequantized in registers, float activations
    Exact,
    /// Activations in 8 bits, integer products, where the device has them
    #[default]
    Fast,
}

impl From<ArithmeticArg> for burn_gguf::Arithmetic {
    fn from(value: ArithmeticArg) -> Self {
        match value {
            ArithmeticArg::Exact => Self::Exact,
            ArithmeticArg::Fast => Self::Fast,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum CacheArg {
    #[default]
    F32,
    F16,
}

/// A model and how to run it.
#[derive(Args, Clone)]
pub struct ModelArgs {
    /// A GGUF file (any shard of a split one), or `owner/repo[:file]` with the `hub` feature
    pub model: String,
    /// Device: flex, ndarray, vulkan, webgpu, metal, cuda, rocm, with an optional index as in cuda:1 (for vulkan,
    /// webgpu and metal an index counts discrete GPUs); several, comma separated, take runs of layers
    #[arg(long)]
    pub device: Option<String>,
    /// The share of the layers of each device, by their bytes, as in 3,1 (default: equal shares)
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "N,N..",
        allow_negative_numbers = true
    )]
    pub split: Vec<f32>,
    /// A device for the experts: `cpu`, or any other; on the CPU they stay in the file's map
    #[arg(long, value_name = "DEVICE")]
    pub experts: Option<String>,
    /// Arithmetic of block-quantized products
    #[arg(long, value_enum, default_value_t)]
    pub arithmetic: ArithmeticArg,
    /// Context in tokens (default: the model's own)
    #[arg(short = 'c', long = "ctx")]
    pub context: Option<usize>,
    /// Prompt tokens in one forward pass
    #[arg(long, default_value_t = 512)]
    pub chunk: usize,
    /// Element type of the key/value cache
    #[arg(long, value_enum, default_value_t)]
    pub cache: CacheArg,
    /// A low-rank adapter to apply, and how strongly (default 1); several add up
    #[arg(long, value_name = "FILE[:SCALE]")]
    pub lora: Vec<String>,
    #[command(flatten)]
    pub vision: VisionArgs,
}

/// How a model reads images.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Images")]
pub struct VisionArgs {
    /// The mmproj file (default: the one that lies beside the model or in the folder above)
    #[arg(long, value_name = "FILE", conflicts_with = "no_vision")]
    pub mmproj: Option<PathBuf>,
    /// Load no mmproj file
    #[arg(long, alias = "text-only")]
    pub no_vision: bool,
    /// What the weights of the mmproj file become in memory
    #[arg(long, value_enum, default_value_t)]
    pub mmproj_dtype: MmprojDtypeArg,
    /// Fewest tokens of an image
    #[arg(long, value_name = "N")]
    pub image_min_tokens: Option<u32>,
    /// Most tokens of an image
    #[arg(long, value_name = "N")]
    pub image_max_tokens: Option<u32>,
    /// Whose sizes, padding and resampling of images are followed
    #[arg(long, value_enum, default_value_t)]
    pub image_style: StyleArg,
    /// A setting of the image processor (may be given several times)
    #[arg(long = "processor", value_name = "KEY=VALUE")]
    pub processor: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum MmprojDtypeArg {
    /// BF16; quantized weights are dequantized
    #[default]
    Bf16,
    F16,
    F32,
    /// As the file has them
    Packed,
}

impl From<MmprojDtypeArg> for burn_gguf_models::vision::MmprojDtype {
    fn from(value: MmprojDtypeArg) -> Self {
        match value {
            MmprojDtypeArg::Bf16 => Self::Bf16,
            MmprojDtypeArg::F16 => Self::F16,
            MmprojDtypeArg::F32 => Self::F32,
            MmprojDtypeArg::Packed => Self::Packed,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum StyleArg {
    /// The original model's processor
    #[default]
    Transformers,
    /// llama.cpp's letterboxes, for comparison
    #[value(name = "llama.cpp", alias = "llama-cpp")]
    LlamaCpp,
}

impl From<StyleArg> for burn_gguf_models::vision::processor::ProcessorStyle {
    fn from(value: StyleArg) -> Self {
        match value {
            StyleArg::Transformers => Self::Transformers,
            StyleArg::LlamaCpp => Self::LlamaCpp,
        }
    }
}

#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The prompt; without it, an interactive chat starts
    #[arg(short, long)]
    pub prompt: Option<String>,
    /// An image that goes before the prompt: a file or a data URL (may be given several times)
    #[arg(long, value_name = "IMAGE")]
    pub image: Vec<String>,
    /// A video that goes before the prompt: a GIF, or a folder of frames
    #[arg(long, value_name = "PATH")]
    pub video: Vec<PathBuf>,
    /// Frames a second of folders of frames
    #[arg(long, default_value_t = 2.0, value_name = "N")]
    pub video_fps: f64,
    /// A system message
    #[arg(long)]
    pub system: Option<String>,
    /// Most tokens to generate (default: to the end of the answer)
    #[arg(short = 'n', long = "max-tokens")]
    pub max_tokens: Option<usize>,
    /// 0 is greedy
    #[arg(long, default_value_t = 0.8, allow_negative_numbers = true)]
    pub temp: f32,
    /// Choose among the k most likely tokens; 0 is all
    #[arg(long, default_value_t = 40)]
    pub top_k: usize,
    /// Choose among the most likely tokens that make up this probability
    #[arg(long, default_value_t = 0.95, allow_negative_numbers = true)]
    pub top_p: f32,
    /// Drop tokens less likely than this share of the best one
    #[arg(long, default_value_t = 0.05, allow_negative_numbers = true)]
    pub min_p: f32,
    /// Penalty on tokens seen lately; 1 is none
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub repeat_penalty: f32,
    /// How many tokens the penalty looks back
    #[arg(long, default_value_t = 64)]
    pub repeat_last_n: usize,
    /// Seed (default: a new one, printed with the statistics)
    #[arg(long)]
    pub seed: Option<u64>,
    /// End the answer at this text (may be given several times)
    #[arg(long = "stop")]
    pub stop: Vec<String>,
    /// Feed the prompt as it is, without the chat template
    #[arg(long)]
    pub raw: bool,
    /// Where to keep what was read: a file that is there is gone on from, and it is written when the prompt is read (at the
    /// end of a chat)
    #[arg(long, value_name = "FILE")]
    pub prompt_cache: Option<PathBuf>,
    /// Do not print statistics
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Args)]
pub struct DemoArgs {
    /// A picture of coloured shapes: a file or a data URL (default: one is drawn)
    #[arg(long, value_name = "IMAGE", conflicts_with = "seed")]
    pub image: Option<String>,
    /// Which picture is drawn (default: another one each time)
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Write the picture as PNG
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// What to ask; the model knows a few requests only
    #[arg(short, long)]
    pub prompt: Option<String>,
    /// Device: flex, ndarray, vulkan, webgpu, metal, cuda, rocm, with an optional index
    #[arg(long)]
    pub device: Option<String>,
    /// Arithmetic of block-quantized products
    #[arg(long, value_enum, default_value_t)]
    pub arithmetic: ArithmeticArg,
}

#[derive(Args)]
pub struct InspectArgs {
    /// A GGUF file
    pub model: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct BenchArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Prompt tokens; 0 skips the test
    #[arg(short = 'p', long = "n-prompt", default_value_t = 512)]
    pub n_prompt: usize,
    /// Tokens to generate; 0 skips the test
    #[arg(short = 'n', long = "n-gen", default_value_t = 64)]
    pub n_gen: usize,
    /// Tokens already in the cache
    #[arg(short = 'd', long = "n-depth", default_value_t = 0)]
    pub n_depth: usize,
    /// Repetitions of each test
    #[arg(short = 'r', long, default_value_t = 3)]
    pub repetitions: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct LogitsArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub input: LogitsInput,
    /// An image, for a `<__media__>` in the prompt or a run of -1 in the token file (may be given several times)
    #[arg(long, value_name = "IMAGE")]
    pub image: Vec<String>,
    /// As --image, a picture that is resized already and goes past the processor
    #[arg(long, value_name = "FILE", conflicts_with = "image")]
    pub pixels_from: Vec<PathBuf>,
    /// Tokens to generate greedily after the prompt
    #[arg(long, default_value_t = 0)]
    pub decode: usize,
    /// Folder for tokens.npy, logits.npy, decode_tokens.npy, decode_logits.npy; with images for vl_ids.npy (-1 at image
    /// rows), vl_logits.npy (text rows), vl_decode_tokens.npy, vl_decode_logits.npy, image_embd.npy, pixel_values.npy
    #[arg(long)]
    pub out: PathBuf,
}

#[derive(Args)]
pub struct TemplateArgs {
    /// A GGUF file with a chat template
    pub model: String,
    /// A JSON file: a list of messages, or an object with `messages`, `tools` and variables of the template
    pub messages: PathBuf,
    /// Do not end the prompt in the beginning of an answer
    #[arg(long)]
    pub no_generation_prompt: bool,
    /// A named template of the file instead of its default one
    #[arg(long)]
    pub name: Option<String>,
}

#[derive(Args)]
pub struct VisionCommandArgs {
    /// A GGUF file: a model with an mmproj file beside it, or the mmproj file
    pub model: String,
    /// The image: a file or a data URL
    pub image: String,
    /// Write the resized picture with the grids of patches and tokens as PNG
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Run the tower this many times, too, and say how long it takes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub encode: usize,
    /// Device of the tower
    #[arg(long)]
    pub device: Option<String>,
    /// Arithmetic of its products
    #[arg(long, value_enum, default_value_t)]
    pub arithmetic: ArithmeticArg,
    #[command(flatten)]
    pub vision: VisionArgs,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct LogitsInput {
    /// Token ids, comma separated
    #[arg(long, value_delimiter = ',')]
    pub tokens: Option<Vec<u32>>,
    /// A .npy file of token ids, -1 where the rows of an image go
    #[arg(long)]
    pub tokens_file: Option<PathBuf>,
    /// Text; special tokens are recognised and BOS is added where the model wants it; `<__media__>` is the place of an
    /// image
    #[arg(long)]
    pub prompt: Option<String>,
}

#[derive(Args)]
pub struct TokenizeArgs {
    /// A GGUF file with a tokenizer
    pub model: String,
    #[command(flatten)]
    pub input: TokenizeInput,
    /// Recognise special tokens in the text
    #[arg(long)]
    pub parse_special: bool,
    /// Add BOS and EOS where the model wants them
    #[arg(long)]
    pub bos: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct TokenizeInput {
    /// The text
    pub text: Option<String>,
    /// A file with the text
    #[arg(long)]
    pub file: Option<PathBuf>,
    /// Token ids to turn back into text, comma separated
    #[arg(long, value_delimiter = ',')]
    pub decode: Option<Vec<u32>>,
}

#[derive(Args)]
pub struct TensorArgs {
    /// A GGUF file
    pub file: String,
    /// The tensor's name
    pub name: String,
    /// The .npy file to write
    #[arg(long)]
    pub out: PathBuf,
}

#[derive(Args)]
pub struct QuantizeArgs {
    /// A GGUF file (any shard of a split one)
    pub input: String,
    /// The file to write
    pub output: PathBuf,
    /// A recipe (Q4_K_M, IQ3_XS, MXFP4_MOE, F16, COPY, ...) or a tensor type
    #[arg(value_name = "TYPE|RECIPE", required_unless_present = "config")]
    pub recipe: Option<String>,
    /// An importance matrix, as `imatrix` or llama-imatrix collects it
    #[arg(long, value_name = "FILE")]
    pub imatrix: Option<PathBuf>,
    /// Quantize the tensors whose name the regular expression finds something in to this type, or leave them (`skip`);
    /// may be given several times
    #[arg(long = "rule", value_name = "REGEX=TYPE")]
    pub rules: Vec<String>,
    /// A quantization configuration with rules, TOML or JSON; rules on the command line come first
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The same type for every tensor, without the recipe's mix
    #[arg(long)]
    pub pure: bool,
    /// The type of the output matrix
    #[arg(long, value_name = "TYPE")]
    pub output_type: Option<String>,
    /// The type of the token embeddings
    #[arg(long, value_name = "TYPE")]
    pub token_embedding_type: Option<String>,
    /// Write as many shards as are read, and not one file
    #[arg(long)]
    pub keep_split: bool,
    /// Write the report as JSON to this file, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Only say what would become of each tensor
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
pub struct ImatrixArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The text
    #[arg(short, long)]
    pub file: PathBuf,
    /// The GGUF file to write
    #[arg(short, long, default_value = "imatrix.gguf")]
    pub output: PathBuf,
    /// Most chunks (default: the whole text)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Tokens of a chunk, each read from an empty cache
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub chunk_size: u32,
    /// Recognise special tokens in the text
    #[arg(long)]
    pub parse_special: bool,
    /// Measure the output head too
    #[arg(long)]
    pub process_output: bool,
}

#[derive(Args)]
pub struct MatrixArgs {
    /// Devices, comma separated or repeated (default: all compiled in that this machine has)
    #[arg(long, value_delimiter = ',')]
    pub device: Vec<String>,
    /// Block types as ggml spells them, comma separated or repeated (default: all)
    #[arg(long, value_delimiter = ',')]
    pub types: Vec<String>,
    /// Operations or groups of them, comma separated or repeated (default: all)
    #[arg(long, value_delimiter = ',')]
    pub ops: Vec<String>,
    /// Run the product of all sizes on every device, not on the CPU only
    #[arg(long)]
    pub full: bool,
    /// Runs of each timed product, of which the median counts; 0 times nothing
    #[arg(short = 'r', long, default_value_t = 5)]
    pub runs: usize,
    /// Write a row for each operation, type, device and shape as a JSON array
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the picture: one page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write tables of types and layer operations by device
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}
