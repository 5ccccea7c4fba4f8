// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modelled run times of tasks, computed from their register values.
//!
//! ```text
//! registers, enable mask --TaskWork::of--> bytes and clocks (integers)
//! TaskWork + Machine     --spans---------> when each engine works, one task alone
//! Jobs + Machine         --schedule------> several jobs on several cores
//! ```
//!
//! Everything here is *modelled*: no figure is measured. The parameters of a
//! [`Machine`] name their measurements. `docs/timing-figures.md` compares the model
//! with every published figure that it can express, and says where it fails.

#[cfg(feature = "chrome")]
mod chrome;
mod counts;
mod job;
mod machine;
mod queue;
mod running;
mod schedule;
mod spans;
mod work;

#[cfg(feature = "chrome")]
pub use chrome::{ChromeEvent, Track};
pub use counts::EngineBytes;
pub use job::{JobTime, ScheduledJob, TaskTime, Timeline};
pub use machine::{Dram, DriverCosts, Machine, seconds};
pub use schedule::{ScheduleError, schedule};
pub use spans::{Parts, Span, Stage};
pub use work::{TaskWork, WorkError};
