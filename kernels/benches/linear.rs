//! Speed of `linear` by type, activation rows and threads.
//!
//! `cargo bench -p burn-gguf-kernels --bench linear -- [TYPE...] [--isa NAME] [--exact] [--threads N] [--cpu-time]`
//!
//! One activation row is multiplied with a matrix larger than the caches (the head of a 0.5B model), where the rate
//! of reading weights counts, and with a small one; more rows with one feed-forward matrix of that model. Best of
//! several runs; compare only lines of one run on a machine with nothing else to do. On a busy one, `--threads 1
//! --cpu-time` gives the mean processor time of a call.

use burn_gguf_kernels::GgmlType;
use burn_gguf_kernels::cpu::{Arithmetic, Isa, Matrix, is_supported, linear_many_at};
use std::time::{Duration, Instant};

/// Rows, columns and activation rows of each measurement.
const SHAPES: [(usize, usize, usize); 7] = [
    (151936, 768, 1),
    (896, 1024, 1),
    (151936, 768, 3),
    (4864, 1024, 8),
    (4864, 1024, 64),
    (4864, 1024, 512),
    (1024, 4864, 512),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value_of = |flag: &str| {
        args.iter()
            .position(|arg| arg == flag)
            .and_then(|i| args.get(i + 1))
    };
    let isa = value_of("--isa").map_or(Isa::current(), |name| {
        *Isa::ALL
            .iter()
            .find(|isa| isa.name() == name)
            .expect("--isa scalar, avx2 or avx512vnni")
    });
    let cpu_time = args.iter().any(|arg| arg == "--cpu-time");
    let exact = args.iter().any(|arg| arg == "--exact");
    let arithmetic = if exact {
        Arithmetic::Exact
    } else {
        Arithmetic::Fast
    };
    let most_threads =
        value_of("--threads").map_or(2, |n| n.parse().expect("--threads takes a number"));
    let named: Vec<GgmlType> = GgmlType::ALL
        .iter()
        .copied()
        .filter(|ty| args.iter().any(|arg| arg == ty.name()))
        .collect();
    let types = if named.is_empty() {
        GgmlType::ALL.to_vec()
    } else {
        named
    };
    println!("{isa:?} {arithmetic:?}");
    println!(
        "{:6} {:>7} {:>5} {:>4} {:>2} {:>10} {:>8} {:>7}",
        "type", "rows", "cols", "n", "t", "us", "GMAC/s", "GB/s"
    );
    let pools: Vec<_> = (1..=most_threads)
        .map(|n| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(n)
                .build()
                .expect("a thread pool")
        })
        .collect();
    for ty in types.into_iter().filter(|ty| is_supported(*ty)) {
        for (rows, cols, n) in SHAPES {
            let Some(row_bytes) = ty.row_bytes(cols) else {
                continue;
            };
            // Small numbers of any type: no scale is infinite or NaN, whatever its place.
            let bytes: Vec<u8> = (0..rows * row_bytes).map(|i| (i % 0x3b) as u8).collect();
            let x: Vec<f32> = (0..n * cols).map(|i| (i % 97) as f32 - 48.0).collect();
            let mut y = vec![0.0; n * rows];
            let matrix = Matrix {
                ty,
                bytes: &bytes,
                rows,
                cols,
            };
            for pool in &pools {
                let best = pool.install(|| {
                    measure(cpu_time, || {
                        linear_many_at(isa, &[matrix], &x, n, &mut [&mut y], arithmetic)
                            .expect("good arguments");
                    })
                });
                let seconds = best.as_secs_f64();
                println!(
                    "{:6} {rows:7} {cols:5} {n:4} {:2} {:10.1} {:8.1} {:7.2}",
                    ty.name(),
                    pool.current_num_threads(),
                    seconds * 1e6,
                    (rows * cols * n) as f64 / seconds * 1e-9,
                    bytes.len() as f64 / seconds * 1e-9,
                );
            }
        }
    }
}

/// The shortest of at least 3 calls that together last a fifth of a second; with `mean`, the processor time of the
/// calling thread per call instead, which other processes do not lengthen as much.
fn measure(mean: bool, mut call: impl FnMut()) -> Duration {
    call();
    let (start, busy) = (
        Instant::now(),
        if mean { busy_time() } else { Duration::ZERO },
    );
    let mut best = Duration::MAX;
    for round in 1.. {
        let before = Instant::now();
        call();
        best = best.min(before.elapsed());
        if round >= 3 && start.elapsed() > Duration::from_millis(300) {
            return if mean {
                (busy_time() - busy) / round
            } else {
                best
            };
        }
    }
    unreachable!("the loop has no end of its own")
}

/// Processor time of this thread so far (Linux).
fn busy_time() -> Duration {
    let stat =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("--cpu-time needs Linux");
    let nanoseconds = stat
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("nanoseconds first");
    Duration::from_nanos(nanoseconds)
}
