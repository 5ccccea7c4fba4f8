// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measured choices as a file: JSON, its format is in docs/matmul.md.
//!
//! Such a file comes from whoever sends it. It is refused as a whole if anything
//! in it makes no sense: it was written by a program, so it is damaged.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{PlanSizes, TunedFor, TunedKey, TunedPlan, TunedPlans};
use crate::dtype::{Dtype, Results};
use crate::plan::PlanError;

/// Most bytes of a file: some thousand products.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// What the file calls itself.
const FORMAT: &str = "npu-matmul plans";

/// The version that is written, and the only one that is read.
const VERSION: u64 = 1;

/// Why there are no plans in a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunedError {
    /// It cannot be read.
    #[error("cannot read it: {0}")]
    Read(#[from] io::Error),
    /// It is a directory, a pipe, a device.
    #[error("it is not a regular file")]
    NotAFile,
    /// It is longer than any table that is written.
    #[error("it is longer than {FILE_BYTES_MAX} bytes")]
    TooLong,
    /// It is not JSON, or JSON of something else.
    #[error("it is no table of plans: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON with another name.
    #[error("it is no table of plans: its format is {found:?}, not {FORMAT:?}")]
    Format {
        /// The name.
        found: String,
    },
    /// A version that is not known here.
    #[error("its version is {found}, and this program reads {VERSION}; tune again with it")]
    Version {
        /// The version.
        found: u64,
    },
    /// An INT4 plan without a depth, or another one with it.
    #[error("plan {index}: int4_depth is for int4 plans, and these need it")]
    Int4Depth {
        /// Which plan, from 0.
        index: usize,
    },
    /// Sizes that cannot be planned so.
    #[error("plan {index} is not legal: {source}")]
    Illegal {
        /// Which plan, from 0.
        index: usize,
        /// Why the sizes are not legal.
        source: PlanError,
    },
    /// Two plans for the same.
    #[error("plan {index} is for the same product as one before it")]
    Twice {
        /// The later one, from 0.
        index: usize,
    },
}

/// What every version has.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    format: String,
    version: u64,
    conditions: TunedFor,
    plans: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: Dtype,
    results: Results,
    m: usize,
    k: usize,
    n: usize,
    devices: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    int4_depth: Option<usize>,
    choice: PlanSizes,
    predicted_ns: u64,
    measured_ns: u64,
}

impl From<&TunedPlan> for Entry {
    fn from(plan: &TunedPlan) -> Self {
        let TunedPlan {
            key,
            choice,
            predicted_ns,
            measured_ns,
        } = *plan;
        Self {
            dtype: key.dtype,
            results: key.results,
            m: key.m,
            k: key.k,
            n: key.n,
            devices: key.devices,
            int4_depth: key.int4_depth,
            choice,
            predicted_ns,
            measured_ns,
        }
    }
}

impl From<Entry> for TunedPlan {
    fn from(entry: Entry) -> Self {
        Self {
            key: TunedKey {
                dtype: entry.dtype,
                results: entry.results,
                m: entry.m,
                k: entry.k,
                n: entry.n,
                devices: entry.devices,
                int4_depth: entry.int4_depth,
            },
            choice: entry.choice,
            predicted_ns: entry.predicted_ns,
            measured_ns: entry.measured_ns,
        }
    }
}

impl TunedPlans {
    /// Reads a table from a file.
    ///
    /// # Errors
    /// What is wrong with the file or with the table in it.
    pub fn read(path: &Path) -> Result<Self, TunedError> {
        // A pipe would be waited for.
        if !fs::metadata(path)?.is_file() {
            return Err(TunedError::NotAFile);
        }
        let mut json = Vec::new();
        File::open(path)?
            .take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut json)?;
        Self::from_json(&json)
    }

    /// Makes a table of its JSON.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_json(json: &[u8]) -> Result<Self, TunedError> {
        if json.len() as u64 > FILE_BYTES_MAX {
            return Err(TunedError::TooLong);
        }
        let Head { format, version } = serde_json::from_slice(json)?;
        if format != FORMAT {
            return Err(TunedError::Format { found: format });
        }
        if version != VERSION {
            return Err(TunedError::Version { found: version });
        }
        let table: Table = serde_json::from_slice(json)?;
        let mut plans = Self::new(table.conditions);
        for (index, entry) in table.plans.into_iter().enumerate() {
            let plan = TunedPlan::from(entry);
            if plan.key.int4_depth.is_some() != (plan.key.dtype == Dtype::Int4) {
                return Err(TunedError::Int4Depth { index });
            }
            if plans.get(&plan.key).is_some() {
                return Err(TunedError::Twice { index });
            }
            plans
                .insert(plan)
                .map_err(|source| TunedError::Illegal { index, source })?;
        }
        Ok(plans)
    }

    /// The table as JSON, which [`TunedPlans::from_json`] reads.
    ///
    /// # Errors
    /// [`TunedError::TooLong`] with more plans than a file may have.
    pub fn to_json(&self) -> Result<String, TunedError> {
        let table = Table {
            format: FORMAT.to_owned(),
            version: VERSION,
            conditions: self.conditions().clone(),
            plans: self.iter().map(Entry::from).collect(),
        };
        let json = serde_json::to_string_pretty(&table)? + "\n";
        if json.len() as u64 > FILE_BYTES_MAX {
            return Err(TunedError::TooLong);
        }
        Ok(json)
    }
}
