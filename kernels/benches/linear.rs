//! Speed of `linear` by type, activation rows and threads.
//!
//! `cargo bench -p burn-gguf-kernels --bench linear -- [TYPE...] [--isa NAME] [--exact] [--threads N] [--cpu-time]
//! [--shape ROWSxCOLSxTOKENS]... [--ms N]`
//!
//! By default a square and a feed-forward matrix of a 7B model, both ways round, times 1 and 512 activation rows: at
//! one row the rate of reading weights counts, at 512 that of multiplying. Best of several runs; compare only lines of
//! one run on a machine with nothing else to do. On a busy one, `--threads 1 --cpu-time` gives the processor time of
//! a call.

use burn_gguf_kernels::GgmlType;
use burn_gguf_kernels::cpu::{Arithmetic, Isa, Matrix, is_supported, linear_many_at};
use std::time::{Duration, Instant};

/// Rows, columns and activation rows of each measurement.
const SHAPES: [[usize; 3]; 6] = [
    [4096, 4096, 1],
    [14336, 4096, 1],
    [4096, 14336, 1],
    [4096, 4096, 512],
    [14336, 4096, 512],
    [4096, 14336, 512],
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
    let number = |flag, default| {
        value_of(flag).map_or(default, |n| n.parse().expect("a number after the flag"))
    };
    let (threads, milliseconds) = (number("--threads", 2), number("--ms", 300));
    let shapes: Vec<[usize; 3]> = args
        .windows(2)
        .filter(|pair| pair[0] == "--shape")
        .map(|pair| parse_shape(&pair[1]).expect("--shape ROWSxCOLSxTOKENS"))
        .collect();
    let shapes = if shapes.is_empty() {
        SHAPES.to_vec()
    } else {
        shapes
    };
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
    println!("# {isa:?} {arithmetic:?}");
    println!(
        "# {:6} {:>7} {:>6} {:>4} {:>2} {:>11} {:>8} {:>7}",
        "type", "rows", "cols", "n", "t", "us", "GMAC/s", "GB/s"
    );
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .expect("a thread pool");
    for ty in types.into_iter().filter(|ty| is_supported(*ty)) {
        for &[rows, cols, n] in &shapes {
            let Some(row_bytes) = ty.row_bytes(cols) else {
                continue;
            };
            let bytes = noise(rows * row_bytes);
            let x: Vec<f32> = (0..n * cols).map(|i| (i % 97) as f32 - 48.0).collect();
            let mut y = vec![0.0; n * rows];
            let matrix = Matrix {
                ty,
                bytes: &bytes,
                rows,
                cols,
            };
            let best = pool.install(|| {
                measure(cpu_time, Duration::from_millis(milliseconds as u64), || {
                    linear_many_at(isa, &[matrix], &x, n, &mut [&mut y], arithmetic)
                        .expect("good arguments");
                })
            });
            let seconds = best.as_secs_f64();
            println!(
                "{:8} {rows:7} {cols:6} {n:4} {threads:2} {:11.1} {:8.2} {:7.2}",
                ty.name(),
                seconds * 1e6,
                (rows * cols * n) as f64 / seconds * 1e-9,
                bytes.len() as f64 / seconds * 1e-9,
            );
        }
    }
}

/// `ROWSxCOLSxTOKENS`.
fn parse_shape(text: &str) -> Option<[usize; 3]> {
    let sizes: Vec<usize> = text
        .split('x')
        .map(|n| n.parse().ok())
        .collect::<Option<_>>()?;
    sizes.try_into().ok()
}

/// Bytes from a linear congruential generator. Some scales are infinite or NaN with them, which costs no time.
fn noise(len: usize) -> Vec<u8> {
    let mut seed = 1u64;
    (0..len)
        .map(|_| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 56) as u8
        })
        .collect()
}

/// The shortest of at least 2 calls that together last `least`; with `busy`, the mean processor time of the calling
/// thread, which other processes do not lengthen as much.
fn measure(busy: bool, least: Duration, mut call: impl FnMut()) -> Duration {
    call();
    let (start, mut best) = (Instant::now(), Duration::MAX);
    let before_all = if busy { busy_time() } else { Duration::ZERO };
    for round in 1.. {
        let before = Instant::now();
        call();
        best = best.min(before.elapsed());
        if round >= 2 && start.elapsed() > least {
            return if busy {
                (busy_time() - before_all) / round
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
