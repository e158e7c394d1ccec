//! `data:` URLs (RFC 2397).

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{alphabet, engine::general_purpose};

use super::{ImageError, Origin};

/// Whether text is a `data:` URL.
pub(super) fn is_data_url(text: &str) -> bool {
    text.get(..5)
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

/// The bytes of a `data:` URL, at most `limit`. The media type is not believed.
pub(super) fn decode(url: &str, origin: &Origin, limit: u64) -> Result<Vec<u8>, ImageError> {
    let malformed = |reason: String| ImageError::DataUrl {
        origin: origin.clone(),
        reason,
    };
    let rest = url
        .get(5..)
        .filter(|_| is_data_url(url))
        .ok_or_else(|| malformed("it lacks `data:`".into()))?;
    let (head, data) = rest
        .split_once(',')
        .ok_or_else(|| malformed("it has no comma before the data".into()))?;
    if data.len() as u64 / 4 > limit {
        return Err(ImageError::TooManyBytes {
            origin: origin.clone(),
            limit,
        });
    }
    let plain = percent_decode(data.as_bytes()).map_err(malformed)?;
    let bytes = if head
        .rsplit(';')
        .next()
        .is_some_and(|last| last.trim().eq_ignore_ascii_case("base64"))
    {
        let text: Vec<u8> = plain
            .into_iter()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        let url_safe = text.iter().any(|byte| matches!(byte, b'-' | b'_'));
        let alphabet = if url_safe {
            &alphabet::URL_SAFE
        } else {
            &alphabet::STANDARD
        };
        let config: GeneralPurposeConfig =
            general_purpose::PAD.with_decode_padding_mode(DecodePaddingMode::Indifferent);
        GeneralPurpose::new(alphabet, config)
            .decode(text)
            .map_err(|error| malformed(format!("base64: {error}")))?
    } else {
        plain
    };
    if bytes.len() as u64 > limit {
        return Err(ImageError::TooManyBytes {
            origin: origin.clone(),
            limit,
        });
    }
    Ok(bytes)
}

fn percent_decode(data: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(data.len());
    let mut at = 0;
    while at < data.len() {
        if data[at] == b'%' {
            let code = data
                .get(at + 1..at + 3)
                .and_then(|code| std::str::from_utf8(code).ok());
            let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
            out.push(byte.ok_or_else(|| {
                format!("a `%` at offset {at} of the data without two hexadecimal digits")
            })?);
            at += 3;
        } else {
            out.push(data[at]);
            at += 1;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(url: &str) -> Result<Vec<u8>, ImageError> {
        decode(url, &Origin::of_data_url(url), 1 << 20)
    }

    #[test]
    fn forms_of_the_same_bytes() {
        let forms = [
            "data:image/png;base64,+/8A",
            "DATA:;base64,%2B%2F8A",
            "data:image/png;charset=x;BASE64,-_8A",
            "data:;base64,+/\n 8A",
            "data:application/octet-stream,%fb%FF%00",
        ];
        for form in forms {
            assert_eq!(bytes(form).unwrap(), [0xfb, 0xff, 0], "{form}");
        }
        assert_eq!(bytes("data:;base64,AAA").unwrap(), [0, 0]);
    }

    #[test]
    fn malformed_ones_say_why() {
        let cases = [
            ("data:image/png;base64", "no comma"),
            ("data:image/png;base64,A*==", "base64"),
            ("data:image/png;base64,A", "base64"),
            ("data:image/png,%4", "`%` at offset 0"),
        ];
        for (url, reason) in cases {
            let error = bytes(url).unwrap_err();
            assert!(matches!(error, ImageError::DataUrl { .. }), "{error}");
            assert!(error.to_string().contains(reason), "{error}");
        }
        let long = format!("data:;base64,{}", "A".repeat(100));
        let refused = decode(&long, &Origin::of_data_url(&long), 60);
        assert!(matches!(
            refused,
            Err(ImageError::TooManyBytes { limit: 60, .. })
        ));
    }
}
