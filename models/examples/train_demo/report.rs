//! What comes out: quantized files, and how they do on pictures they were not trained on.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::Module;
use burn_gguf::gguf::Gguf;
use burn_gguf::quantize::{QuantizeOptions, Recipe, quantize_file};
use burn_gguf_models::demo::{Picture, SIDE, Split};
use burn_gguf_models::vision::processor::ImageProcessor;

use super::batch::{Batch, Words};
use super::learner::Learner;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Held-out pictures of the table; the training looks at the first 256.
const PICTURES: std::ops::Range<u64> = 1000..1500;

/// Prints the numbers of weights.
pub fn sizes(learner: &Learner) {
    println!(
        "{} weights of text, {} of vision",
        learner.text.num_params(),
        learner.tower.num_params()
    );
}

/// Writes both files in Q8_0.
///
/// # Errors
/// If a file cannot be read or written.
pub fn quantize(from: [&std::path::PathBuf; 2], to: [&std::path::PathBuf; 2]) -> Result<(), Error> {
    let options = QuantizeOptions::new("Q8_0".parse::<Recipe>()?);
    let mut bytes = 0;
    for (from, to) in from.into_iter().zip(to) {
        bytes += quantize_file(&Gguf::open(from)?, to, &options, &mut |_| ())?.file_bytes;
    }
    println!("quantized: {:.2} MB", bytes as f64 / 1e6);
    Ok(())
}

/// Prints how many captions of held-out pictures are exact, by what there is to see.
///
/// # Errors
/// If the files cannot be loaded.
pub fn judge(
    files: [&std::path::PathBuf; 2],
    words: &Words,
    processor: &ImageProcessor,
) -> Result<(), Error> {
    let [text, mmproj] = files.map(Gguf::open);
    let learner = Learner::load(&text?, &mmproj?)?;
    let mut table: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for (i, number) in PICTURES.enumerate() {
        let scene = Picture::new(Split::HeldOut, number).scene;
        let prompt = i % words.after.len();
        let batch = Batch::new(Split::HeldOut, number..number + 1, prompt, words, processor)?;
        let exact = usize::from(learner.mistakes(&batch, words)?.iter().all(Option::is_none));
        let objects = scene.first.count + scene.second.map_or(0, |(_, group)| group.count);
        let kind = match scene.second {
            None => "one group".to_owned(),
            Some((relation, _)) => format!("two groups, {}", relation.words()),
        };
        for key in [kind, format!("{objects} objects"), "all".to_owned()] {
            let entry = table.entry(key).or_default();
            entry[0] += exact;
            entry[1] += 1;
        }
    }
    println!("\n| held-out pictures | exact captions | of |\n|---|---|---|");
    for (key, [exact, all]) in table {
        println!(
            "| {key} | {exact} ({:.1} %) | {all} |",
            100.0 * exact as f64 / all as f64
        );
    }
    Ok(())
}

/// Writes a sheet of pictures, and prints their captions.
///
/// # Errors
/// If the file cannot be written.
pub fn sheet(path: &Path) -> Result<(), Error> {
    const ACROSS: u32 = 6;
    let side = SIDE as u32;
    let mut sheet = image::RgbImage::new(ACROSS * side, ACROSS * side);
    for i in 0..ACROSS * ACROSS {
        let picture = Picture::new(Split::Training, i.into());
        println!("{i}: {}", picture.caption());
        let at = [i % ACROSS, i / ACROSS].map(|n| i64::from(n * side));
        image::imageops::replace(&mut sheet, &picture.to_image(), at[0], at[1]);
    }
    Ok(sheet.save(path)?)
}
