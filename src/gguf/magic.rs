//! What a file is when it is not a GGUF.

/// A hint (starting with a separator) for the well-known files that get mistaken for a GGUF; empty if unknown.
pub(super) fn recognise(head: &[u8]) -> &'static str {
    let text = head.trim_ascii_start();
    let starts = |prefix: &str| {
        text.get(..prefix.len())
            .is_some_and(|t| t.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    if starts("version https://git-lfs") {
        " (a Git LFS pointer; run `git lfs pull` to get the file itself)"
    } else if starts("<!doctype") || starts("<html") || starts("<head") {
        " (an HTML page; the download got a web page instead of the file, use its raw or `resolve` link)"
    } else if starts("<?xml") {
        " (an XML document, likely a server's error message; download the file again)"
    } else if head.starts_with(b"PK\x03\x04") {
        " (a zip archive, likely a PyTorch checkpoint; convert it to GGUF first)"
    } else if head.len() >= 2 && head[0] == 0x80 && (2..=5).contains(&head[1]) {
        " (a Python pickle, likely a PyTorch checkpoint; convert it to GGUF first)"
    } else if head.len() >= 9 && head[5..8] == [0, 0, 0] && head[8] == b'{' {
        " (a safetensors file; convert it to GGUF first)"
    } else if head.starts_with(&[0x1f, 0x8b]) || head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        " (a compressed file; unpack it first)"
    } else if head.starts_with(b"lmgg") || head.starts_with(b"tjgg") || head.starts_with(b"fmgg") {
        " (a ggml model from before GGUF; get a GGUF conversion)"
    } else if starts("{") {
        " (JSON text, likely a server's error message or a config; download the file again)"
    } else {
        ""
    }
}

/// The first four bytes, readable: `"PK\x03\x04"`.
pub(super) fn show(head: &[u8]) -> String {
    format!("\"{}\"", head[..head.len().min(4)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_files_are_named() {
        let mut safetensors = 1234u64.to_le_bytes().to_vec();
        safetensors.extend(b"{\"a\":");
        let cases: [(&[u8], &str); 11] = [
            (
                b"version https://git-lfs.github.com/spec/v1\noid",
                "Git LFS",
            ),
            (b"\n<!DOCTYPE html><html>", "HTML"),
            (b"<HTML>", "HTML"),
            (b"<?xml version='1.0'?><Error>", "XML"),
            (b"PK\x03\x04\0\0", "zip"),
            (b"\x80\x02}q", "pickle"),
            (&safetensors, "safetensors"),
            (b"\x1f\x8b\x08", "compressed"),
            (b"tjgg\x01\0\0\0", "before GGUF"),
            (b"{\"error\":\"not found\"}", "JSON"),
            (b"\x7fELF", ""),
        ];
        for (head, expected) in cases {
            let hint = recognise(head);
            assert!(hint.contains(expected), "{head:?}: {hint}");
            assert_eq!(hint.is_empty(), expected.is_empty(), "{head:?}: {hint}");
        }
    }

    #[test]
    fn shows_bytes_and_characters() {
        assert_eq!(show(b"PK\x03\x04rest"), "\"PK\\x03\\x04\"");
        assert_eq!(show(b"a"), "\"a\"");
    }
}
