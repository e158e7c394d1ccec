//! The README's table of families is what the registry says.

use burn_gguf_models::families::families;

const BEGIN: &str =
    "<!-- families: generated from the registry, checked by models/tests/registry.rs -->\n";
const END: &str = "<!-- end of families -->";

#[test]
fn the_readme_lists_the_registry() {
    let readme = include_str!("../../README.md");
    let table = readme
        .split_once(BEGIN)
        .and_then(|(_, rest)| rest.split_once(END))
        .expect("the README has the markers of the table")
        .0;
    let mut expected =
        String::from("\n| architecture | models | beyond a plain Llama stack |\n|---|---|---|\n");
    for family in families() {
        expected += &format!(
            "| `{}` | {} | {} |\n",
            family.architecture,
            family.models,
            family.parts.join(", ")
        );
    }
    expected.push('\n');
    assert!(
        table == expected,
        "the README's table should be:\n{expected}"
    );
}
