//! Where a model comes from: a path, or a repository of the Hugging Face hub.

use std::path::PathBuf;

/// The file of a MODEL argument.
pub fn resolve(model: &str) -> Result<PathBuf, Box<dyn std::error::Error + Send + Sync>> {
    let path = PathBuf::from(model);
    if path.exists() || !looks_like_repository(model) {
        return Ok(path);
    }
    download(model)
}

/// `owner/repo` or `owner/repo:file`, and not a path that merely does not exist.
fn looks_like_repository(model: &str) -> bool {
    let (repo, _) = model.split_once(':').unwrap_or((model, ""));
    let parts: Vec<_> = repo.split('/').collect();
    parts.len() == 2
        && parts.iter().all(|p| !p.is_empty() && !p.starts_with('.'))
        && !repo.ends_with(".gguf")
}

#[cfg(feature = "hub")]
fn download(model: &str) -> Result<PathBuf, Box<dyn std::error::Error + Send + Sync>> {
    use hf_hub::api::sync::ApiBuilder;

    let (repo, file) = match model.split_once(':') {
        Some((repo, file)) => (repo, Some(file.to_string())),
        None => (model, None),
    };
    let api = ApiBuilder::from_env().build()?.model(repo.to_string());
    let files: Vec<String> = api
        .info()?
        .siblings
        .into_iter()
        .map(|s| s.rfilename)
        .filter(|name| name.ends_with(".gguf") && !name.contains("mmproj"))
        .collect();
    let chosen = match file {
        Some(file) => files.iter().find(|f| **f == file).cloned().ok_or_else(|| {
            format!(
                "{repo} has no file \"{file}\"; it has: {}",
                files.join(", ")
            )
        })?,
        None => default_file(&files).ok_or_else(|| format!("{repo} has no GGUF file"))?,
    };
    // A split model needs all its shards beside the first.
    let shards = shards(&chosen, &files);
    let mut first = None;
    for shard in &shards {
        let path = api.get(shard)?;
        first.get_or_insert(path);
    }
    first.ok_or_else(|| format!("{repo}: nothing was downloaded").into())
}

/// Q4_K_M where there is one, else the first file.
#[cfg(feature = "hub")]
fn default_file(files: &[String]) -> Option<String> {
    files
        .iter()
        .find(|f| f.to_ascii_lowercase().contains("q4_k_m"))
        .or(files.first())
        .cloned()
}

#[cfg(feature = "hub")]
fn shards(chosen: &str, files: &[String]) -> Vec<String> {
    let Some((stem, count)) = chosen
        .strip_suffix(".gguf")
        .and_then(|s| s.rsplit_once("-of-"))
        .and_then(|(head, count)| head.rsplit_once('-').map(|(stem, _)| (stem, count)))
    else {
        return vec![chosen.to_string()];
    };
    let mut set: Vec<String> = files
        .iter()
        .filter(|f| f.starts_with(stem) && f.ends_with(&format!("-of-{count}.gguf")))
        .cloned()
        .collect();
    set.sort();
    set
}

#[cfg(not(feature = "hub"))]
fn download(model: &str) -> Result<PathBuf, Box<dyn std::error::Error + Send + Sync>> {
    Err(format!(
        "no file \"{model}\"; to load from the Hugging Face hub, build with the `hub` feature"
    )
    .into())
}

#[cfg(test)]
mod tests {
    use super::looks_like_repository;

    #[test]
    fn repositories_are_told_from_paths() {
        assert!(looks_like_repository("Qwen/Qwen3-0.6B-GGUF"));
        assert!(looks_like_repository(
            "Qwen/Qwen3-0.6B-GGUF:Qwen3-0.6B-Q8_0.gguf"
        ));
        assert!(!looks_like_repository("./model.gguf"));
        assert!(!looks_like_repository("models/model.gguf"));
        assert!(!looks_like_repository("/models/a/b"));
    }
}
