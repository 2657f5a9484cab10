//! The mutants. Each takes one protection of the design away; the tests beside it are what notices.

/// A fault put into one place of the code.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// What it breaks.
    pub(crate) why: &'static str,
    pub(super) file: &'static str,
    /// Must be in the file exactly once.
    pub(super) find: &'static str,
    pub(super) replace: &'static str,
    /// In each of these some test must fail.
    pub(super) tests: &'static [Tests],
}

/// A test program, and which of its tests to run: those with `filter` in their name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tests {
    /// An integration test of a package, or the unit tests of its library.
    Host { package: &'static str, test: Option<&'static str>, filter: &'static str },
    /// Unit tests of the SDK under loom.
    Loom { filter: &'static str },
}

impl Tests {
    /// What to call them in a table.
    pub(super) fn name(self) -> String {
        match self {
            Self::Host { package, test: Some(test), .. } => format!("{package} {test}"),
            Self::Host { package, test: None, filter } => format!("{package} {filter}"),
            Self::Loom { filter } => format!("loom {filter}"),
        }
    }
}

/// Whole messages through two contexts and a simulated net.
const LIFE_CYCLE: Tests = Tests::Host { package: "sdr-tests", test: Some("life_cycle"), filter: "" };

const fn unit(package: &'static str, filter: &'static str) -> Tests {
    Tests::Host { package, test: None, filter }
}

/// All of them.
pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "one_key_for_all_generations",
        why: "the fabric places a late packet of an older generation into the slot's new buffer",
        file: "netem/src/sim/nic.rs",
        find: "Some(Some(key)) if packets > 0 && key.at.generation == d.generation => {",
        replace: "Some(Some(key)) if packets > 0 => {",
        tests: &[unit("netem", "sim::tests::keys::"), LIFE_CYCLE],
    },
    Mutant {
        name: "no_generation_check",
        why: "the engine sets bits of the slot's new receive for a late packet of an older generation",
        file: "sdr-sdk/src/engine/table.rs",
        find: "s.stamp.load(Ordering::Acquire) == stamp(ARMED, run.generation)",
        replace: "s.stamp.load(Ordering::Acquire) & ARMED != 0",
        tests: &[unit("sdr-sdk", "engine::table::"), LIFE_CYCLE],
    },
    Mutant {
        name: "publish_on_duplicate",
        why: "a packet that comes twice publishes its chunk although others are missing",
        file: "sdr-sdk/src/bitmap.rs",
        find: "let fresh = mask & !old;",
        replace: "let fresh = mask & !old;
            if old & mask != 0 {
                done.chunks += self.publish(word, u64::MAX, mask);
            }",
        tests: &[unit("sdr-sdk", "bitmap::"), LIFE_CYCLE],
    },
    Mutant {
        name: "reuse_without_drain",
        why: "a slot and generation are granted again while packets of their last use may be on the way",
        file: "sdr-sdk/src/slots.rs",
        find: "
            && self.next.minus(self.reuse()).before(self.drained)",
        replace: "",
        tests: &[LIFE_CYCLE],
    },
    Mutant {
        name: "retire_without_worker_counter",
        why: "bits are taken back while a worker stands between its check of the slot and its OR",
        file: "sdr-sdk/src/engine/table.rs",
        find: "passed &= *seen == 0;",
        replace: "passed |= *seen == 0;",
        tests: &[Tests::Loom { filter: "loom_no_stale_bit_after_a_grace" }],
    },
];
