// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy of this process: what the user set, and what the timing model
//! and the CPU make of the rest.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError, RwLock};

use crate::choice::Chooser;
use crate::config::{Config, DEFAULT_MIN_M, MinRows};
use crate::cost::PlanTarget;
use crate::crossover;
use crate::precision::ComputeType;
use crate::supports::{self, MulMatQuery, Offload, Shape, WeightLocation};
use crate::types::NumberFormat;

/// What a CPU takes for a multiply-add where that cannot be measured,
/// femtoseconds: four A76 at 2.2 GHz with seven of them a clock each, a quarter
/// of what their instructions for dot products of bytes could. Inferred.
const ASSUMED_MAC_FS: u64 = 16_000;

/// Femtoseconds of a picosecond.
const FS_PER_PS: u64 = 1000;

/// What the policy asks of the host about its CPU.
pub(crate) trait HostCpu: Send + Sync {
    /// What its CPU takes for a multiply-add with weights of a format, in
    /// femtoseconds; `rearranged` is whether they lie as that CPU likes them.
    /// `None` if it cannot be measured.
    fn mac_fs(&self, weights: NumberFormat, rearranged: bool) -> Option<u64>;

    /// The host's name of a format.
    fn name(&self, weights: NumberFormat) -> String;

    /// Writes a line to its log.
    fn tell(&self, line: &str);
}

/// Answers [`supports`]'s questions as the user wants, on this machine.
#[derive(Debug)]
pub(crate) struct ProcessPolicy {
    /// Chooses what products are computed in.
    pub(crate) chooser: Chooser,
    rows: Rows,
}

/// The fewest rows of a product that is offloaded.
#[derive(Debug)]
enum Rows {
    /// The same number for all products.
    Fixed(usize),
    /// The number at which the NPU's modelled time is the CPU's measured one.
    Computed(Box<Computed>),
}

impl ProcessPolicy {
    /// As the user wants, on this machine. Without a wish, the number of rows is
    /// computed where `is_real`: on the software model the modelled time is
    /// nobody's, and a fixed number gives the same graphs on each machine.
    pub(crate) fn new(
        config: &Config,
        machine: PlanTarget,
        is_real: bool,
        cpu: Box<dyn HostCpu>,
    ) -> Self {
        let rows = match (config.min_m, is_real) {
            (MinRows::Fixed(rows), _) => Rows::Fixed(rows),
            (MinRows::Default, false) => Rows::Fixed(DEFAULT_MIN_M),
            (MinRows::Default, true) | (MinRows::Computed, _) => {
                Rows::Computed(Box::new(Computed::new(machine.clone(), cpu)))
            }
        };
        Self {
            chooser: Chooser::new(config.precision, machine),
            rows,
        }
    }

    /// From how many rows on products are offloaded, in words.
    pub(crate) fn rows(&self) -> String {
        match &self.rows {
            Rows::Fixed(rows) => format!("products of {rows} rows and more are offloaded"),
            Rows::Computed(computed) => format!(
                "products are offloaded from the number of rows on that takes no longer on the \
                 NPU, modelled at {} MHz, than measured on the CPU",
                computed.machine.megahertz()
            ),
        }
    }

    /// The number of rows in a word, as `GGML_ROCKET_MIN_M` has it.
    pub(crate) fn min_m(&self) -> String {
        match &self.rows {
            Rows::Fixed(rows) => rows.to_string(),
            Rows::Computed(_) => MinRows::COMPUTED.to_owned(),
        }
    }
}

impl supports::Policy for ProcessPolicy {
    fn precision(&self, weights: NumberFormat, size: [usize; 2]) -> ComputeType {
        self.chooser.precision(weights, size)
    }

    fn is_worth(&self, product: &MulMatQuery, offload: &Offload) -> bool {
        match &self.rows {
            Rows::Fixed(rows) => offload.rows() >= *rows,
            Rows::Computed(computed) => computed.is_worth(product, offload),
        }
    }
}

/// All that a number of rows depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Question {
    precision: ComputeType,
    type_id: u32,
    rearranged: bool,
    /// N and K.
    size: [usize; 2],
}

/// Numbers of rows, computed once for each format and size: what was answered
/// once is answered again as long as the process lives. Each is told when it is
/// found, since nothing may ever be offloaded because of it.
struct Computed {
    machine: PlanTarget,
    cpu: Box<dyn HostCpu>,
    /// The CPU's time of a multiply-add, by format and by whether it is rearranged:
    /// femtoseconds.
    macs: Mutex<HashMap<(u32, bool), u64>>,
    rows: RwLock<HashMap<Question, usize>>,
}

impl Computed {
    fn new(machine: PlanTarget, cpu: Box<dyn HostCpu>) -> Self {
        Self {
            machine,
            cpu,
            macs: Mutex::default(),
            rows: RwLock::default(),
        }
    }

    fn is_worth(&self, product: &MulMatQuery, offload: &Offload) -> bool {
        let rows = offload.rows();
        if rows < crossover::FEWEST {
            return false;
        }
        let Shape { n, k, matrices, .. } = offload.shape;
        // Those that meet the same weights; of experts as many as it is if all
        // are chosen alike.
        let together = match offload.experts {
            Some(experts) => rows.saturating_mul(experts.used) / matrices[0].max(1),
            None => rows,
        };
        let question = Question {
            precision: offload.precision,
            type_id: product.weights.format.id,
            rearranged: product.place == WeightLocation::Rearranged,
            size: [n, k],
        };
        rows >= crossover::MOST || together >= self.rows(question, product.weights.format)
    }

    /// The fewest rows that pay. A lookup, but for the first time.
    fn rows(&self, question: Question, format: NumberFormat) -> usize {
        let known = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = known.get(&question) {
            return *rows;
        }
        drop(known);
        let mac_fs = self.mac_fs(format, question.rearranged);
        let Question {
            precision, size, ..
        } = question;
        let cpu_row_fs = size[0] as u128 * size[1] as u128 * u128::from(mac_fs);
        let cpu_row_ps = u64::try_from(cpu_row_fs / u128::from(FS_PER_PS)).unwrap_or(u64::MAX);
        let npu_ps = |rows| {
            let cost = self.machine.cost(precision, size, rows)?;
            Some(cost.call_ps)
        };
        let rows = crossover::rows(npu_ps, cpu_row_ps);
        let mut known = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been faster, with the same answer.
        let is_new = known.insert(question, rows).is_none();
        drop(known);
        if is_new {
            let [n, k] = size;
            self.cpu.tell(&format!(
                "{}, {n} x {k}, in {}: offloaded from {rows} rows on",
                self.cpu.name(format),
                precision.name()
            ));
        }
        rows
    }

    /// What the CPU takes for a multiply-add, measured once a format.
    fn mac_fs(&self, format: NumberFormat, rearranged: bool) -> u64 {
        let mut how = None;
        // Others wait: two measurements at a time would spoil each other.
        let mut macs = self.macs.lock().unwrap_or_else(PoisonError::into_inner);
        let fs = *macs.entry((format.id, rearranged)).or_insert_with(|| {
            let measured = self.cpu.mac_fs(format, rearranged);
            how = Some(measured.map_or("assumed", |_| "measured"));
            measured.unwrap_or(ASSUMED_MAC_FS)
        });
        // The program's log may wait for a thread of its own that asks here.
        drop(macs);
        if let Some(how) = how {
            let kind = if rearranged { "rearranged " } else { "" };
            self.cpu.tell(&format!(
                "the CPU takes {}.{:02} ps for a multiply-add with {kind}{} weights ({how})",
                fs / FS_PER_PS,
                fs % FS_PER_PS / 10,
                self.cpu.name(format),
            ));
        }
        fs
    }
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Computed")
            .field("machine", &self.machine)
            .field("macs", &self.macs)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::cost::tests::machine;
    use crate::supports::tests::product;
    use crate::supports::{Policy as _, decide};
    use crate::types::tests::Q8_0;

    /// A CPU of a known speed.
    struct Fake {
        mac_fs: Option<u64>,
        seen: Arc<Seen>,
    }

    /// How often the speed was asked, and what was told.
    #[derive(Default)]
    struct Seen {
        asked: AtomicUsize,
        told: Mutex<Vec<String>>,
    }

    impl HostCpu for Fake {
        fn mac_fs(&self, _: NumberFormat, _: bool) -> Option<u64> {
            self.seen.asked.fetch_add(1, Ordering::Relaxed);
            self.mac_fs
        }

        fn name(&self, _: NumberFormat) -> String {
            "q8_0".to_owned()
        }

        fn tell(&self, line: &str) {
            self.seen.told.lock().unwrap().push(line.to_owned());
        }
    }

    fn policy(min_m: MinRows, is_real: bool, mac_fs: Option<u64>) -> (ProcessPolicy, Arc<Seen>) {
        let config = Config {
            min_m,
            ..Config::default()
        };
        let seen = Arc::<Seen>::default();
        let cpu = Fake {
            mac_fs,
            seen: Arc::clone(&seen),
        };
        let policy = ProcessPolicy::new(&config, machine(), is_real, Box::new(cpu));
        (policy, seen)
    }

    /// The fewest rows of a product of 1024 x 2048 weights that are offloaded.
    fn fewest(policy: &ProcessPolicy) -> i64 {
        let offloaded = |m: &i64| decide(&product(Q8_0, *m, 1024, 2048), policy).is_ok();
        (1..=600).find(offloaded).unwrap()
    }

    #[test]
    fn on_the_model_the_number_is_fixed_and_nothing_is_measured() {
        let (policy, measured) = policy(MinRows::Default, false, Some(1));
        assert_eq!(fewest(&policy), 32);
        assert_eq!(measured.asked.load(Ordering::Relaxed), 0);
        assert!(policy.rows().contains("32 rows"));
    }

    #[test]
    fn the_user_has_the_last_word() {
        for is_real in [false, true] {
            let (policy, measured) = policy(MinRows::Fixed(7), is_real, Some(1));
            assert_eq!(fewest(&policy), 7);
            assert_eq!(policy.min_m(), "7");
            assert_eq!(measured.asked.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_slow_cpu_offloads_earlier_and_a_token_never() {
        let mut last = 600;
        // From a CPU that the NPU never reaches to one that any NPU beats.
        for mac_fs in [1, 2_000, 8_000, 32_000, 128_000, 1_000_000_000] {
            let (policy, measured) = policy(MinRows::Default, true, Some(mac_fs));
            let rows = fewest(&policy);
            assert!(rows <= last, "{mac_fs}: {rows} after {last}");
            assert_eq!(measured.asked.load(Ordering::Relaxed), 1, "{mac_fs}");
            last = rows;
        }
        assert_eq!(last, 2);
        let (fast, _) = policy(MinRows::Computed, false, Some(1));
        assert_eq!(fewest(&fast), 512);
    }

    #[test]
    fn what_cannot_be_measured_is_assumed_and_said() {
        let (unknown, seen) = policy(MinRows::Default, true, None);
        let (known, _) = policy(MinRows::Default, true, Some(ASSUMED_MAC_FS));
        assert_eq!(fewest(&unknown), fewest(&known));
        // Once, however often it is asked, and before anything is offloaded.
        let lines = seen.told.lock().unwrap();
        let [cpu, rows] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert!(cpu.ends_with("(assumed)"), "{cpu}");
        assert!(rows.starts_with("q8_0, 1024 x 2048, in fp16: "), "{rows}");
    }

    #[test]
    fn rows_of_experts_are_shared_out() {
        // A CPU for which the number is somewhere in the middle.
        let (policy, _) = policy(MinRows::Computed, false, Some(16_000));
        let dense = product(Q8_0, 64, 1024, 2048);
        let offload = supports::computable(&dense, &policy).unwrap();
        let pays = |m: usize, experts: Option<supports::ExpertChoice>| {
            let mut offload = offload;
            offload.shape.m = m;
            offload.shape.matrices = [8, 1];
            offload.experts = experts;
            policy.is_worth(&dense, &offload)
        };
        let two_of_eight = Some(supports::ExpertChoice { used: 2, given: 1 });
        let fewest = (2..512).find(|m| pays(*m, None)).unwrap();
        assert!((2..128).contains(&fewest));
        assert!(!pays(4 * fewest - 1, two_of_eight));
        assert!(pays(4 * fewest, two_of_eight));
        assert!(pays(crossover::MOST, two_of_eight));
    }
}
