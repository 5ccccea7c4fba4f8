// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans of weights that are made again.
//!
//! The layers of a model have matrices of the same few sizes, and a plan tries
//! many cuts against the timing model: milliseconds, which hundreds of matrices
//! add up to seconds.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::dtype::Dtype;
use crate::plan::{PlanError, PlanOptions, WeightPlan};

/// Plans that are kept: several times the different matrices of a model.
const KEPT: usize = 64;

/// All that a plan depends on, for one number of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) dtype: Dtype,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) options: PlanOptions,
}

/// The plans that were used last.
#[derive(Default)]
pub(crate) struct PlanCache(Mutex<VecDeque<(Key, WeightPlan)>>);

impl PlanCache {
    /// The plan of `key`; made by `make` if it is not there. One that cannot be
    /// made is not kept.
    pub(crate) fn get(
        &self,
        key: &Key,
        make: impl FnOnce(&Key) -> Result<WeightPlan, PlanError>,
    ) -> Result<WeightPlan, PlanError> {
        let found = self.with(|kept| {
            let at = kept.iter().position(|(of, _)| of == key)?;
            let entry = kept.remove(at)?;
            let plan = entry.1.clone();
            kept.push_back(entry);
            Some(plan)
        });
        if let Some(plan) = found {
            return Ok(plan);
        }
        // Made outside the lock. Two threads may make the same one; then it is
        // kept twice until it is the oldest.
        let plan = make(key)?;
        self.with(|kept| {
            kept.push_back((key.clone(), plan.clone()));
            if kept.len() > KEPT {
                kept.pop_front();
            }
        });
        Ok(plan)
    }

    fn with<R>(&self, f: impl FnOnce(&mut VecDeque<(Key, WeightPlan)>) -> R) -> R {
        // No critical section leaves the queue half changed, panic or not.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for PlanCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.with(|kept| kept.len());
        f.debug_struct("PlanCache").field("kept", &kept).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Key {
        Key {
            dtype: Dtype::Int8,
            n,
            k: 32,
            options: PlanOptions::default(),
        }
    }

    fn plan(key: &Key) -> Result<WeightPlan, PlanError> {
        WeightPlan::new(key.dtype, key.n, key.k, 1, &key.options)
    }

    /// Whether the plan had to be made; it is the right one in any case.
    fn is_new(cache: &PlanCache, key: &Key) -> bool {
        let mut made = false;
        let make = |key: &Key| {
            made = true;
            plan(key)
        };
        assert_eq!(cache.get(key, make), plan(key));
        made
    }

    #[test]
    fn plans_are_made_once() {
        let cache = PlanCache::default();
        assert!(is_new(&cache, &key(64)));
        assert!(!is_new(&cache, &key(64)));
        // Whatever differs is another plan.
        let others = [
            key(65),
            Key { k: 64, ..key(64) },
            Key {
                dtype: Dtype::Int4,
                ..key(64)
            },
            Key {
                options: PlanOptions {
                    k_tile: Some(32),
                    ..PlanOptions::default()
                },
                ..key(64)
            },
        ];
        for other in &others {
            assert!(is_new(&cache, other));
        }
        assert!(!is_new(&cache, &key(64)));
        // What has no plan stays without.
        for _ in 0..2 {
            let refused = cache.get(&key(0), plan);
            assert_eq!(refused, Err(PlanError::EmptyDimension { dimension: "N" }));
        }
    }

    #[test]
    fn those_that_were_used_last_are_kept() {
        let cache = PlanCache::default();
        for n in 1..=KEPT {
            assert!(is_new(&cache, &key(n)));
        }
        assert!(!is_new(&cache, &key(1)));
        assert!(is_new(&cache, &key(KEPT + 1)));
        assert!(!is_new(&cache, &key(1)));
        assert!(is_new(&cache, &key(2)));
    }
}
