//! `--device A,B`, `--split` and `--experts`.

use super::{fails, fixture, ok};

const PROMPT: [&str; 8] = ["--raw", "-p", "the", "-n", "4", "--temp", "0", "-q"];

fn run(model: &str, more: &[&str]) -> String {
    ok(&[&["run", model][..], &PROMPT, more].concat())
}

#[test]
fn one_device_twice_computes_the_same() {
    let (dense, experts) = (
        fixture("qwen3/model-q4_k_m.gguf"),
        fixture("qwen3moe/model-q4_k_m.gguf"),
    );
    assert_eq!(
        run(&dense, &["--device", "flex"]),
        run(&dense, &["--device", "flex,flex", "--split", "1,3"])
    );
    assert_eq!(
        run(&experts, &["--device", "flex"]),
        run(&experts, &["--device", "flex", "--experts", "cpu"])
    );
}

#[test]
fn devices_and_shares_that_make_no_sense_are_refused() {
    let model = fixture("qwen3/model-q4_k_m.gguf");
    let text = |more: &[&str]| fails(&[&["run", &model][..], &PROMPT, more].concat(), 1);
    let wrong = text(&["--device", "flex,flex", "--split", "1"]);
    assert!(wrong.contains("1 shares for 2 devices"), "{wrong}");
    let wrong = text(&["--device", "flex,flex", "--split", "1,-1"]);
    assert!(wrong.contains("-1"), "{wrong}");
    let wrong = text(&["--device", "flex,abacus"]);
    assert!(wrong.contains("abacus"), "{wrong}");
    let wrong = text(&["--device", "flex", "--experts", "abacus"]);
    assert!(wrong.contains("abacus"), "{wrong}");
    let wrong = text(&["--device", "flex", "--experts", "cpu"]);
    assert!(wrong.contains("no experts"), "{wrong}");
    let many = ["flex"; 100].join(",");
    let wrong = text(&["--device", &many]);
    assert!(wrong.contains("100 devices"), "{wrong}");
}
