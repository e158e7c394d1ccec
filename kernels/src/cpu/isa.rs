//! Which instructions to use: found once per process, the only place that asks.

#[cfg(target_arch = "x86_64")]
use super::level::{Avx2, Avx512};
use super::level::{Kernel, Scalar};
use std::sync::OnceLock;

/// A level of vector instructions, in ascending order of speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Portable code.
    Scalar,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, VL and VNNI.
    Avx512Vnni,
}

impl Isa {
    /// Every level, slowest first.
    pub const ALL: &'static [Isa] = &[Isa::Scalar, Isa::Avx2, Isa::Avx512Vnni];

    /// The level all operations run at: the best available one, or a lower one that the environment variable
    /// `BURN_GGUF_ISA` (`scalar`, `avx2`, `avx512vnni`) named when the first operation ran.
    pub fn current() -> Isa {
        static CURRENT: OnceLock<Isa> = OnceLock::new();
        *CURRENT.get_or_init(|| {
            let wanted = std::env::var("BURN_GGUF_ISA").ok();
            let named = |isa: &Isa| {
                wanted
                    .as_deref()
                    .is_some_and(|name| name.eq_ignore_ascii_case(isa.name()))
            };
            let mut available = Isa::ALL.iter().copied().filter(|isa| isa.is_available());
            available
                .clone()
                .find(named)
                .or(available.next_back())
                .unwrap_or(Isa::Scalar)
        })
    }

    /// The spelling `BURN_GGUF_ISA` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512Vnni => "avx512vnni",
        }
    }

    /// Whether this CPU can run the level.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            match self {
                Isa::Scalar => true,
                Isa::Avx2 => avx2,
                Isa::Avx512Vnni => {
                    avx2 && is_x86_feature_detected!("avx512f")
                        && is_x86_feature_detected!("avx512bw")
                        && is_x86_feature_detected!("avx512vl")
                        && is_x86_feature_detected!("avx512vnni")
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Isa::Scalar
        }
    }

    /// Runs a kernel compiled for this level.
    ///
    /// # Safety
    /// The level must be available.
    pub(super) unsafe fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            // SAFETY: portable code.
            Isa::Scalar => unsafe { kernel.run::<Scalar>() },
            // SAFETY: the caller says the CPU has the features.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { Avx2::run(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => unsafe { Avx512::run(kernel) },
            // SAFETY: never available here; portable code in any case.
            #[cfg(not(target_arch = "x86_64"))]
            _ => unsafe { kernel.run::<Scalar>() },
        }
    }
}
