//! Keys in blocks that are seen or not.

use super::*;

#[test]
fn blocks() {
    let mut rng = Rng::new(20);
    for (tokens, heads, kv, len) in [
        (1, 4, 2, 700),
        (3, 4, 1, 300),
        (70, 2, 1, 300),
        (33, 16, 1, 1400),
        (40, 2, 2, 40),
    ] {
        for (size, one_in) in [
            (1, 3.0),
            (7, 2.0),
            (32, 8.0),
            (96, 2.0),
            (128, 4.0),
            (5000, 1.5),
        ] {
            let case = Case::new(&mut rng, tokens, heads, kv, 24, len);
            let case = case.with_blocks(&mut rng, size, one_in);
            case.check(&causal(24));
            case.check(&AttentionParams {
                window: Some(90),
                softcap: Some(2.0),
                ..causal(24)
            });
            case.check(&AttentionParams {
                causal: false,
                ..causal(24)
            });
        }
    }
}

#[test]
fn blocks_that_nobody_sees_are_not_read() {
    let mut rng = Rng::new(21);
    for tokens in [1, 40] {
        let mut case = Case::new(&mut rng, tokens, 4, 1, 16, 200);
        let words = KeyBlocks::words(200, 8);
        // Every third block, and none but those.
        let row: Vec<u32> = (0..words as u32)
            .map(|w| (0..32).fold(0, |bits, b| bits | u32::from((w * 32 + b) % 3 == 0) << b))
            .collect();
        case.blocks = Some((row.repeat(tokens), 8));
        for (i, (k, v)) in case.k.iter_mut().zip(&mut case.v).enumerate() {
            if i / 16 / 8 % 3 != 0 {
                (*k, *v) = (f32::NAN, f32::NAN);
            }
        }
        case.check(&causal(16));
    }
}

#[test]
fn bad_blocks_are_errors() {
    let mut rng = Rng::new(22);
    let case = Case::new(&mut rng, 2, 2, 2, 4, 70);
    let call = |bits: usize, size: usize| {
        let (bits, mut out) = (vec![0; bits], vec![0.0; case.q.len()]);
        let (k, v) = (KvView::F32(&case.k), KvView::F32(&case.v));
        let blocks = KeyBlocks { bits: &bits, size };
        attention_blocks(&case.q, k, v, &case.shape, &causal(4), blocks, &mut out)
    };
    assert_eq!(call(12, 1), Ok(()));
    assert_eq!(call(4, 64), Ok(()));
    assert_eq!(
        call(12, 64),
        Err(ShapeError::Length {
            what: "bits",
            expected: 4,
            got: 12
        })
    );
    assert_eq!(call(4, 0), Err(ShapeError::Zero { what: "size" }));
}
