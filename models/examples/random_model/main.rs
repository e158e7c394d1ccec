//! Writes models with random weights in the shapes of real families, small enough to time anywhere.
//!
//! usage: `cargo run --release -p burn-gguf-models --example random_model -- ARCHITECTURE OUT.gguf [RECIPE]`
//!
//! Widths of heads, the number of experts in use and the order of layers are those of the real models; there are fewer and
//! smaller experts, and fewer layers. RECIPE is `Q4_K_M` if it is not given. OUT.gguf.bf16 exists while it is quantized.

mod families;
mod gemma4;
mod shapes;
mod vocabulary;
mod weights;

use std::path::Path;

use burn_gguf::gguf::{Gguf, GgufWriter};
use burn_gguf::quantize::{QuantizeOptions, Recipe, quantize_file};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (architecture, out, recipe) = match args.as_slice() {
        [architecture, out] => (architecture, Path::new(out), "Q4_K_M"),
        [architecture, out, recipe] => (architecture, Path::new(out), recipe.as_str()),
        _ => {
            let known = families::NAMES.join(", ");
            return Err(format!(
                "usage: random_model ARCHITECTURE OUT.gguf [RECIPE]; architectures: {known}"
            )
            .into());
        }
    };
    let options = QuantizeOptions::new(recipe.parse::<Recipe>()?);
    let mut file = GgufWriter::new();
    families::write(architecture, &mut file)?;
    let wide = out.with_added_extension("bf16");
    file.write_file(&wide)?;
    let result = Gguf::open(&wide).map_err(Into::into).and_then(|gguf| {
        quantize_file(&gguf, out, &options, &mut |_| {}).map_err(Box::<dyn std::error::Error>::from)
    });
    std::fs::remove_file(&wide)?;
    let report = result?;
    let values = report.plan.values() as f64 / 1e6;
    let bytes = report.file_bytes as f64 / 1e6;
    println!("{}: {values:.0} M values, {bytes:.0} MB", out.display());
    Ok(())
}
