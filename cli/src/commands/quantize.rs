//! `burn-gguf quantize`: a file with its tensors quantized, and what that did to each.

use std::io::Write;
use std::path::Path;

use burn_gguf::GgmlType;
use burn_gguf::gguf::Gguf;
use burn_gguf::quantize::{
    ImportanceMatrix, Note, QuantConfig, QuantRule, QuantSpec, QuantizeOptions, QuantizePlan,
    QuantizeReport, Recipe, RuleAction, TensorPlan, quantize_file,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::CommandResult;
use crate::args::QuantizeArgs;
use crate::source::resolve;

pub fn run(args: QuantizeArgs) -> CommandResult {
    let gguf = Gguf::open(resolve(&args.input)?)?;
    if let Some(path) = &args.json {
        check_json(&gguf, &args, path)?;
    }
    let options = options(&args)?;
    let report = match args.dry_run {
        true => planned(QuantizePlan::new(&gguf, &options)?),
        false => quantize(&gguf, &args.output, &options)?,
    };
    for rule in &report.plan.unused_rules {
        warn(&format!(
            "the rule \"{rule}\" speaks of no tensor that can be quantized"
        ));
    }
    let requantized = |t: &&TensorPlan| t.notes.contains(&Note::Requantized);
    let requantized = report.plan.tensors.iter().filter(requantized).count();
    if requantized > 0 {
        warn(&format!(
            "{requantized} tensors are quantized already and lose quality twice; quantize the F16, BF16 or F32 model \
             instead where there is one"
        ));
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&as_json(&report, &options))?;
        std::fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))?;
    }
    print(&report, &options, &mut std::io::stdout().lock())?;
    Ok(())
}

fn warn(text: &str) {
    // A closed standard error is nothing to fail for.
    let _ = writeln!(std::io::stderr(), "warning: {text}");
}

/// The report must not take the place of a file that is read or written, and its folder must be there before the work.
fn check_json(gguf: &Gguf, args: &QuantizeArgs, path: &Path) -> CommandResult {
    let shown = path.display();
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(format!("--json {shown}: there is no folder {}", folder.display()).into());
    }
    let place = |path: &Path| {
        std::fs::canonicalize(path)
            .ok()
            .or_else(|| std::path::absolute(path).ok())
    };
    let others = [
        Some(args.output.as_path()),
        args.imatrix.as_deref(),
        args.config.as_deref(),
    ];
    let others = others.into_iter().flatten().chain(gguf.shards());
    match others.into_iter().find(|other| place(other) == place(path)) {
        Some(other) => Err(format!(
            "--json {shown} is {}, which this command reads or writes",
            other.display()
        )
        .into()),
        None => Ok(()),
    }
}

fn options(args: &QuantizeArgs) -> CommandResult<QuantizeOptions> {
    let recipe = args.recipe.as_deref().map(str::parse::<Recipe>);
    let recipe = recipe.transpose()?;
    let config = args.config.as_deref().map(read_config).transpose()?;
    if let (Some(recipe), Some(config)) = (recipe, &config)
        && recipe != Recipe::from(config.spec())
    {
        return Err(format!(
            "{recipe} contradicts the configuration, which says {}; leave one out",
            config.spec()
        )
        .into());
    }
    let mut options = match (&config, recipe) {
        (Some(config), _) => QuantizeOptions::from(config),
        (None, Some(recipe)) => QuantizeOptions::new(recipe),
        (None, None) => return Err("give a type, a recipe or --config".into()),
    };
    let rules = args.rules.iter().map(|text| rule(text));
    let mut rules = rules.collect::<CommandResult<Vec<_>>>()?;
    rules.append(&mut options.rules);
    options.rules = rules;
    options.pure = args.pure;
    options.keep_split = args.keep_split;
    options.output_type = tensor_type(args.output_type.as_deref())?;
    options.token_embedding_type = tensor_type(args.token_embedding_type.as_deref())?;
    let matrix = args.imatrix.as_deref().map(ImportanceMatrix::open);
    options.importance = matrix.transpose()?;
    Ok(options)
}

fn read_config(path: &Path) -> CommandResult<QuantConfig> {
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| failed(&e))?;
    let is_json = |extension: &std::ffi::OsStr| extension.eq_ignore_ascii_case("json");
    match path.extension().is_some_and(is_json) {
        true => Ok(serde_json::from_str(&text).map_err(|e| failed(&e))?),
        false => Ok(toml::from_str(&text).map_err(|e| failed(&e))?),
    }
}

/// `REGEX=TYPE` or `REGEX=skip`.
fn rule(text: &str) -> CommandResult<QuantRule> {
    let (regex, name) = text
        .rsplit_once('=')
        .filter(|(regex, _)| !regex.is_empty())
        .ok_or_else(|| format!("--rule \"{text}\" is not of the form REGEX=TYPE"))?;
    let action = match name.trim().eq_ignore_ascii_case("skip") {
        true => RuleAction::Skip,
        false => RuleAction::Quantize(name.parse()?),
    };
    Ok(QuantRule::new(regex, action)?)
}

fn tensor_type(name: Option<&str>) -> CommandResult<Option<GgmlType>> {
    let spec = name.map(str::parse::<QuantSpec>).transpose()?;
    Ok(spec.map(QuantSpec::ggml_type))
}

fn quantize(gguf: &Gguf, out: &Path, options: &QuantizeOptions) -> CommandResult<QuantizeReport> {
    let total = gguf.tensors().map(|t| t.byte_len() as u64).sum();
    let bar = ProgressBar::new(total);
    let style = "{bar:30} {bytes}/{total_bytes} {eta} {msg}";
    bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
    let report = quantize_file(gguf, out, options, &mut |progress| {
        bar.set_position(progress.bytes_done);
        bar.set_message(progress.tensor.to_string());
    });
    bar.finish_and_clear();
    Ok(report?)
}

/// The report of a dry run.
fn planned(plan: QuantizePlan) -> QuantizeReport {
    QuantizeReport {
        rmse: vec![None; plan.tensors.len()],
        plan,
        files: Vec::new(),
        file_bytes: 0,
    }
}

fn rows(report: &QuantizeReport) -> impl Iterator<Item = (&TensorPlan, Option<f64>)> {
    let rmse = report.rmse.iter().copied();
    report.plan.tensors.iter().zip(rmse)
}

fn print(
    report: &QuantizeReport,
    options: &QuantizeOptions,
    out: &mut impl Write,
) -> std::io::Result<()> {
    let width = report.plan.tensors.iter().map(|t| t.name.len());
    let width = width.max().unwrap_or(0).max("tensor".len());
    writeln!(
        out,
        "{:<width$}  {:<20} {:<8} {:<8} {:>10}  note",
        "tensor", "shape", "from", "to", "RMSE"
    )?;
    for (tensor, rmse) in rows(report) {
        let shape = format!("{:?}", tensor.shape);
        let rmse = rmse.map_or_else(|| "-".to_string(), |e| format!("{e:.3e}"));
        let notes: Vec<_> = tensor.notes.iter().map(Note::to_string).collect();
        let line = format!(
            "{:<width$}  {shape:<20} {:<8} {:<8} {rmse:>10}  {}",
            tensor.name,
            from(tensor),
            tensor.to.map_or("=", GgmlType::name),
            notes.join(", ")
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    let (before, after) = (report.plan.bytes_from(), report.plan.bytes_to());
    writeln!(
        out,
        "\n{}: {} -> {} of tensors ({:.1} %), {:.3} -> {:.3} bits a weight",
        options.recipe,
        mib(before),
        mib(after),
        after as f64 * 100.0 / before.max(1) as f64,
        bits(before, &report.plan),
        bits(after, &report.plan),
    )?;
    if let Some((tensor, rmse)) = report.worst() {
        writeln!(
            out,
            "worst RMSE: {rmse:.3e} of {} ({})",
            tensor.name,
            tensor.to.map_or("=", GgmlType::name)
        )?;
    }
    let count = |is: fn(&Note) -> bool| {
        let tensors = report.plan.tensors.iter();
        tensors.filter(|t| t.notes.iter().any(is)).count()
    };
    for (count, what) in [
        (
            count(|n| matches!(n, Note::Fallback { .. })),
            "got another type: their rows do not fill the blocks of the recipe's",
        ),
        (
            count(|n| *n == Note::UniformImportance),
            "were quantized with uniform importance: give --imatrix for better ones",
        ),
        (
            count(|n| *n == Note::ImportanceAdvised),
            "would be better with --imatrix",
        ),
    ] {
        if count > 0 {
            writeln!(out, "{count} tensors {what}")?;
        }
    }
    if report.files.is_empty() {
        return writeln!(out, "dry run: nothing was written");
    }
    writeln!(
        out,
        "written: {} ({})",
        files(report).join(", "),
        mib(report.file_bytes)
    )
}

fn as_json(report: &QuantizeReport, options: &QuantizeOptions) -> serde_json::Value {
    let tensors: Vec<_> = rows(report)
        .map(|(tensor, rmse)| {
            json!({
                "name": tensor.name,
                "shape": tensor.shape,
                "from": from(tensor),
                "to": tensor.to.map_or(from(tensor), GgmlType::name),
                "copied": tensor.to.is_none(),
                "bytes_from": tensor.bytes_from,
                "bytes_to": tensor.bytes_to,
                "rmse": rmse,
                "notes": tensor.notes.iter().map(Note::to_string).collect::<Vec<_>>(),
            })
        })
        .collect();
    let (before, after) = (report.plan.bytes_from(), report.plan.bytes_to());
    json!({
        "recipe": options.recipe.name(),
        "dry_run": report.files.is_empty(),
        "files": files(report),
        "file_bytes": report.file_bytes,
        "bytes_from": before,
        "bytes_to": after,
        "bits_per_weight_from": bits(before, &report.plan),
        "bits_per_weight_to": bits(after, &report.plan),
        "worst": report.worst().map(|(t, rmse)| json!({"tensor": t.name, "rmse": rmse})),
        "unused_rules": report.plan.unused_rules,
        "tensors": tensors,
    })
}

fn files(report: &QuantizeReport) -> Vec<String> {
    let files = report.files.iter();
    files.map(|f| f.display().to_string()).collect()
}

fn from(tensor: &TensorPlan) -> &'static str {
    tensor.from.map_or("unknown", GgmlType::name)
}

fn bits(bytes: u64, plan: &QuantizePlan) -> f64 {
    bytes as f64 * 8.0 / plan.values().max(1) as f64
}

fn mib(bytes: u64) -> String {
    format!("{:.2} MiB", bytes as f64 / (1 << 20) as f64)
}
