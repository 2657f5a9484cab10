//! Which instructions a coder uses: found at run time, or named.

#![forbid(unsafe_code)]

use super::EcError;
use super::kernel::{self, Kernel};
use std::fmt;

/// Names a back end for every coder that does not name one itself.
pub const BACKEND_VARIABLE: &str = "SDR_EC_BACKEND";

/// A set of instructions, from the slowest to the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Backend {
    /// None beyond the target's baseline.
    Portable,
    /// AArch64 NEON.
    Neon,
    /// x86-64 AVX2.
    Avx2,
    /// x86-64 AVX2 with GFNI.
    Gfni,
    /// x86-64 AVX-512 (F, BW, VL) with GFNI.
    Avx512,
}

impl Backend {
    const ALL: [Self; 5] = [Self::Portable, Self::Neon, Self::Avx2, Self::Gfni, Self::Avx512];

    /// Those that this CPU has, ascending.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|backend| backend.kernel().is_some())
    }

    /// The one named by [`BACKEND_VARIABLE`], or the fastest.
    pub fn chosen() -> Result<Self, EcError> {
        match std::env::var_os(BACKEND_VARIABLE) {
            Some(name) if !name.is_empty() => Self::named(&name.to_string_lossy()),
            _ => Ok(Self::available().last().unwrap_or(Self::Portable)),
        }
    }

    /// The one with this name, if this CPU has it.
    pub fn named(name: &str) -> Result<Self, EcError> {
        Self::available().find(|backend| backend.name() == name).ok_or_else(|| Self::lacking(name))
    }

    /// As in [`BACKEND_VARIABLE`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Gfni => "gfni",
            Self::Avx512 => "avx512",
        }
    }

    /// The error for a back end that is not there.
    pub(super) fn lacking(name: &str) -> EcError {
        let found: Vec<_> = Self::available().map(Self::name).collect();
        EcError::Backend { asked: name.into(), found: found.join(", ") }
    }

    /// Its arithmetic, when this CPU has the instructions.
    pub(super) fn kernel(self) -> Option<&'static dyn Kernel> {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = || is_x86_feature_detected!("avx2");
            let gfni = || is_x86_feature_detected!("gfni");
            let avx512 = || {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
            };
            match self {
                Self::Avx2 if avx2() => return Some(&kernel::x86::Avx2),
                Self::Gfni if avx2() && gfni() => return Some(&kernel::x86::Gfni),
                Self::Avx512 if avx512() && gfni() => return Some(&kernel::x86::Avx512),
                _ => {}
            }
        }
        #[cfg(target_arch = "aarch64")]
        if self == Self::Neon {
            return Some(&kernel::neon::Neon);
        }
        (self == Self::Portable).then_some(&kernel::Portable)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
