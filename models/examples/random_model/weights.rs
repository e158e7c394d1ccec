//! Random tensors, of a size that keeps activations near 1.

use std::io::{self, Write};

use burn_gguf::GgmlType;
use burn_gguf::gguf::GgufWriter;

/// Numbers that follow from a name alone.
struct Random(u64);

impl Random {
    fn of(name: &str) -> Self {
        let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01B3);
        Self(name.bytes().fold(0xCBF2_9CE4_8422_2325, hash) | 1)
    }

    /// Uniform in `-1.0..1.0`, by xorshift64*.
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40;
        bits as f32 / (1 << 23) as f32 - 1.0
    }
}

/// A matrix, or a stack of them, in BF16: products keep the size of their inputs.
pub fn matrix(file: &mut GgufWriter<'_>, name: &str, shape: &[u64]) {
    let scale = (3.0 / shape[0] as f32).sqrt();
    let count: u64 = shape.iter().product();
    let seed = name.to_owned();
    file.tensor_with(name, shape, GgmlType::BF16, move |out| {
        let mut random = Random::of(&seed);
        let mut chunk = Vec::with_capacity(1 << 16);
        for _ in 0..count {
            let value = random.next() * scale;
            chunk.extend(((value.to_bits() >> 16) as u16).to_le_bytes());
            if chunk.len() >= 1 << 16 {
                out.write_all(&chunk)?;
                chunk.clear();
            }
        }
        out.write_all(&chunk)
    });
}

/// Values `f(x)` with `x` uniform in `-1.0..1.0`, in F32.
pub fn values(
    file: &mut GgufWriter<'_>,
    name: &str,
    shape: &[u64],
    f: impl Fn(f32) -> f32 + 'static,
) {
    let count: u64 = shape.iter().product();
    let seed = name.to_owned();
    file.tensor_with(
        name,
        shape,
        GgmlType::F32,
        move |out: &mut dyn Write| -> io::Result<()> {
            let mut random = Random::of(&seed);
            let bytes: Vec<u8> = (0..count)
                .flat_map(|_| f(random.next()).to_le_bytes())
                .collect();
            out.write_all(&bytes)
        },
    );
}

/// A norm's weights, near 1.
pub fn norm(file: &mut GgufWriter<'_>, name: &str, width: u64) {
    values(file, name, &[width], |x| 1.0 + 0.1 * x);
}

/// Just these values, in F32.
pub fn list(file: &mut GgufWriter<'_>, name: &str, values: Vec<f32>) {
    let shape = [values.len() as u64];
    file.tensor_with(name, &shape, GgmlType::F32, move |out| {
        values
            .iter()
            .try_for_each(|x| out.write_all(&x.to_le_bytes()))
    });
}
