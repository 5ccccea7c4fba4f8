// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `GGML_ROCKET_PRECISION=auto` chooses for each size of weights, and what
//! it tells about it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError, RwLock};

use crate::cost::{Cost, PlanTarget};
use crate::precision::{ComputeType, PrecisionChoice};
use crate::quality;
use crate::types::NumberFormat;

/// Picoseconds of a microsecond.
const PS_PER_US: u64 = 1_000_000;

/// Costs of batches of the usual size, by precision and by size of the weights, `n x
/// k`.
type Costs = HashMap<(ComputeType, [usize; 2]), Option<Cost>>;

/// Chooses precisions: the same for the same weights, whenever it is asked and
/// in whatever order, since it knows nothing but sizes and the timing model.
#[derive(Debug)]
pub(crate) struct Chooser {
    choice: PrecisionChoice,
    machine: PlanTarget,
    costs: RwLock<Costs>,
    news: Mutex<BTreeMap<String, News>>,
}

impl Chooser {
    /// Chooses as the user wants, for this machine.
    pub(crate) fn new(choice: PrecisionChoice, machine: PlanTarget) -> Self {
        Self {
            choice,
            machine,
            costs: RwLock::default(),
            news: Mutex::default(),
        }
    }

    /// In what to compute with weights of `n x k`: of what loses little, what
    /// takes the least modelled time with a batch of the usual size; of two
    /// that take the same, the one that loses less.
    pub(crate) fn precision(&self, weights: NumberFormat, size: [usize; 2]) -> ComputeType {
        match self.choice {
            PrecisionChoice::Always(precision) => precision,
            PrecisionChoice::Auto => match quality::allowed(weights, size[1]) {
                // Nothing to choose, and a plan costs time.
                [only] => *only,
                several => several
                    .iter()
                    .copied()
                    .min_by_key(|precision| {
                        self.cost(*precision, size)
                            .map_or(u64::MAX, |cost| cost.call_ps)
                    })
                    .unwrap_or(ComputeType::Fp16),
            },
        }
    }

    /// The modelled time of a batch of the usual size.
    fn cost(&self, precision: ComputeType, size: [usize; 2]) -> Option<Cost> {
        let key = (precision, size);
        // What a panic could leave is a table with fewer entries.
        let costs = self.costs.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = costs.get(&key) {
            return *known;
        }
        drop(costs);
        let rows = self.machine.usual_rows();
        let cost = self.machine.cost(precision, size, rows);
        let mut costs = self.costs.write().unwrap_or_else(PoisonError::into_inner);
        costs.insert(key, cost);
        cost
    }

    /// Remembers for [`Chooser::report`] that `matrices` matrices of a tensor,
    /// `n x k` each, in a format of that name, are on the NPU.
    pub(crate) fn note(
        &self,
        name: &str,
        weights: NumberFormat,
        size: [usize; 2],
        matrices: usize,
    ) {
        if self.choice != PrecisionChoice::Auto {
            return;
        }
        let chosen = self.precision(weights, size);
        let costs = ComputeType::ALL.map(|precision| {
            let cost = self.cost(precision, size)?;
            cost.call_ps.checked_mul(matrices as u64)
        });
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let news = news.entry(name.to_owned()).or_insert_with(|| News {
            allowed: [0; ComputeType::ALL.len()],
            tensors: [0; ComputeType::ALL.len()],
            chosen_ps: Some(0),
            all_ps: [Some(0); ComputeType::ALL.len()],
        });
        news.tensors[chosen as usize] += 1;
        for precision in quality::allowed(weights, size[1]) {
            news.allowed[*precision as usize] += 1;
        }
        let add = |sum: &mut Option<u64>, more: Option<u64>| {
            *sum = sum.zip(more).and_then(|(sum, more)| sum.checked_add(more));
        };
        add(&mut news.chosen_ps, costs[chosen as usize]);
        for (sum, cost) in news.all_ps.iter_mut().zip(costs) {
            add(sum, cost);
        }
    }

    /// A line for each format of which tensors were noted since the last call.
    pub(crate) fn report(&self) -> Vec<String> {
        let news = {
            let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *news)
        };
        let rows = self.machine.usual_rows();
        news.iter()
            .map(|(name, news)| news.line(name, rows))
            .collect()
    }
}

/// Tensors of one format.
#[derive(Debug)]
struct News {
    /// Number of tensors for which each precision could be chosen.
    allowed: [u64; ComputeType::ALL.len()],
    /// Number of tensors that are computed in each precision.
    tensors: [u64; ComputeType::ALL.len()],
    /// Modelled time of all as they are computed; `None` if it is not known.
    chosen_ps: Option<u64>,
    /// The modelled time if all were computed in one precision.
    all_ps: [Option<u64>; ComputeType::ALL.len()],
}

impl News {
    fn line(&self, name: &str, rows: usize) -> String {
        let total: u64 = self.tensors.iter().sum();
        let plural = if total == 1 { "" } else { "s" };
        let chosen: Vec<String> = ComputeType::ALL
            .iter()
            .zip(self.tensors)
            .filter(|(_, count)| *count > 0)
            .map(|(precision, count)| match count == total {
                true => precision.name().to_owned(),
                false => format!("{} ({count})", precision.name()),
            })
            .collect();
        let mut line = format!(
            "{name}, {total} tensor{plural}: {}, {} modelled for {rows} rows",
            chosen.join(" and "),
            Milliseconds(self.chosen_ps)
        );
        let mut separator = ';';
        for (precision, ps) in ComputeType::ALL.iter().zip(self.all_ps) {
            if self.tensors[*precision as usize] == total {
                continue;
            }
            let excluded = match total - self.allowed[*precision as usize] {
                0 => String::new(),
                all if all == total => " (loses too much)".to_owned(),
                some => format!(" (loses too much for {some})"),
            };
            // Writing into a String cannot fail.
            let _ = write!(
                line,
                "{separator} {} {}{excluded}",
                precision.name(),
                Milliseconds(ps)
            );
            separator = ',';
        }
        line
    }
}

/// A time in words.
struct Milliseconds(Option<u64>);

impl std::fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            None => f.write_str("impossible"),
            Some(ps) => {
                let us = ps.div_ceil(PS_PER_US);
                write!(f, "{}.{:02} ms", us / 1000, us % 1000 / 10)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::tests::machine;
    use crate::supports::MAX_INT8_K;
    use crate::types::FormatClass;

    /// Blocks of 32 elements in so many bytes.
    fn blocks(block_bytes: usize) -> NumberFormat {
        NumberFormat {
            id: u32::MAX,
            block_elements: 32,
            block_bytes,
            class: FormatClass::Quantised,
        }
    }

    const Q4_0: usize = 18;
    const Q8_0: usize = 34;

    fn auto() -> Chooser {
        Chooser::new(PrecisionChoice::Auto, machine())
    }

    #[test]
    fn the_least_time_wins_among_what_loses_little() {
        let chooser = auto();
        let size = [1024, 1024];
        let time = |precision| chooser.cost(precision, size).unwrap().call_ps;
        // That this is so is the model's; that it decides is what is tested.
        assert!(time(ComputeType::Int8) < time(ComputeType::Int8Hadamard));
        assert!(time(ComputeType::Int8Hadamard) < time(ComputeType::Fp16));
        assert_eq!(
            chooser.precision(blocks(Q4_0), size),
            ComputeType::Int8Hadamard
        );
        assert_eq!(chooser.precision(blocks(Q8_0), size), ComputeType::Fp16);
        // So few output channels that the rotation costs more than it saves.
        let narrow = [16, 4096];
        let time = |precision| chooser.cost(precision, narrow).unwrap().call_ps;
        assert!(time(ComputeType::Fp16) < time(ComputeType::Int8Hadamard));
        assert_eq!(chooser.precision(blocks(Q4_0), narrow), ComputeType::Fp16);
    }

    #[test]
    fn the_order_of_questions_does_not_matter() {
        let sizes = [[64, 64], [768, 256], [16, 4096], [256, 768]];
        let (forth, back) = (auto(), auto());
        let forth = sizes.map(|size| forth.precision(blocks(Q4_0), size));
        let mut reversed = sizes;
        reversed.reverse();
        let mut back = reversed.map(|size| back.precision(blocks(Q4_0), size));
        back.reverse();
        assert_eq!(forth, back);
    }

    #[test]
    fn what_has_no_plan_is_left_to_floats() {
        let deep = [64, MAX_INT8_K + 32];
        assert_eq!(auto().precision(blocks(Q4_0), deep), ComputeType::Fp16);
        let nonsense = [usize::MAX, 64];
        assert_eq!(auto().precision(blocks(Q4_0), nonsense), ComputeType::Fp16);
    }

    #[test]
    fn the_user_is_not_asked_twice() {
        let chooser = Chooser::new(PrecisionChoice::Always(ComputeType::W4A8), machine());
        assert_eq!(chooser.precision(blocks(Q8_0), [64, 64]), ComputeType::W4A8);
        chooser.note("q8_0", blocks(Q8_0), [64, 64], 1);
        assert!(chooser.report().is_empty());
    }

    #[test]
    fn each_format_gets_a_line_with_all_times_once() {
        let chooser = auto();
        chooser.note("q8_0", blocks(Q8_0), [256, 256], 1);
        chooser.note("q4_0", blocks(Q4_0), [1024, 1024], 1);
        chooser.note("q4_0", blocks(Q4_0), [1024, 1024], 4);
        chooser.note("q4_0", blocks(Q4_0), [16, 4096], 1);
        let lines = chooser.report();
        let [q4_0, q8_0] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert!(
            q4_0.starts_with("q4_0, 3 tensors: fp16 (1) and int8-hadamard (2), "),
            "{q4_0}"
        );
        assert!(q4_0.contains(" ms modelled for 512 rows; fp16 "), "{q4_0}");
        assert_eq!(q4_0.matches("(loses too much)").count(), 3, "{q4_0}");
        assert!(q8_0.starts_with("q8_0, 1 tensor: fp16, "), "{q8_0}");
        assert_eq!(q8_0.matches("(loses too much)").count(), 4, "{q8_0}");
        assert!(chooser.report().is_empty());
    }

    #[test]
    fn a_format_may_be_allowed_more_in_some_sizes() {
        // Blocks of 64 and of 4096.
        let (hardly, well) = ([1024, 2880], [1024, 4096]);
        for sizes in [[hardly, well], [well, hardly]] {
            let chooser = auto();
            for size in sizes {
                chooser.note("q4_0", blocks(Q4_0), size, 1);
            }
            let line = chooser.report().pop().unwrap();
            let begin = "q4_0, 2 tensors: fp16 (1) and int8-hadamard (1), ";
            assert!(line.starts_with(begin), "{line}");
            let rotated = line.split_once(", int8-hadamard ").unwrap().1;
            let rotated = rotated.split(',').next().unwrap();
            assert!(rotated.ends_with(" (loses too much for 1)"), "{line}");
        }
    }

    #[test]
    fn times_are_summed_over_tensors_and_matrices() {
        let news = |notes: &[usize]| {
            let chooser = auto();
            for matrices in notes {
                chooser.note("q4_0", blocks(Q4_0), [1024, 1024], *matrices);
            }
            let mut news = chooser.news.lock().unwrap();
            news.remove("q4_0").unwrap()
        };
        let (one, six) = (news(&[1]), news(&[2, 4]));
        assert_eq!(six.chosen_ps, one.chosen_ps.map(|ps| 6 * ps));
        assert_eq!(six.all_ps, one.all_ps.map(|ps| ps.map(|ps| 6 * ps)));
        assert_eq!(
            six.chosen_ps,
            six.all_ps[ComputeType::Int8Hadamard as usize]
        );
    }

    #[test]
    fn times_have_units() {
        assert_eq!(Milliseconds(Some(12_345_678_901)).to_string(), "12.34 ms");
        assert_eq!(Milliseconds(Some(1)).to_string(), "0.00 ms");
        assert_eq!(Milliseconds(None).to_string(), "impossible");
    }
}
