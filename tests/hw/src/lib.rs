// SPDX-License-Identifier: MIT OR Apache-2.0
//! Driver regression tests: what `rocket` answers to each call, row by row,
//! on a board or on the software model.
//!
//! Each row is a fact observed on the unmodified driver of Linux 7.2, run in QEMU
//! with a modelled NPU behind it. A row that passes on the model and fails on a board
//! has found an error of the model, or a change of the kernel; known differences
//! between kernels are in [`DriverProfile`].
//!
//! Rows send raw ioctls, through an interface of `rocket_uapi` for such tests, so
//! they can make calls that a correct client never makes. Rows that may leave a
//! kernel damaged are *destructive* and run on a board only when asked for.
#![deny(unsafe_code)]

mod bench;
mod busy;
mod calls;
mod check;
#[allow(unsafe_code)]
mod files;
#[allow(unsafe_code)]
mod fork;
pub mod fuzz;
mod hold;
mod kmsg;
mod known;
#[allow(unsafe_code)]
mod probe;
mod program;
#[allow(unsafe_code)]
mod raw;
mod report;
#[allow(unsafe_code)]
mod request;
mod rows;
mod scenario;
#[allow(unsafe_code)]
mod signal;
#[allow(unsafe_code)]
mod submit;

use std::cell::RefCell;
use std::io::{self, Write};
use std::process::ExitCode;

use npu_model::Opened;
use npu_model::driver::DriverProfile;
use rocket_uapi::{Device, DeviceInfo, Selector};
use rustix::system::uname;

pub use check::{NotPassed, RowOutcome};
pub use report::{ReportFormat, RowCounts};
pub use rows::{ROWS, Row};
pub use scenario::Scenario;

use bench::RowBench;
use known::known;
use raw::File;
use report::RowReport;

/// Handles of a row's file are lower: no row has as many.
const ROW_HANDLES: u32 = 64;

/// Exit status if the requested device cannot be used.
pub const NO_DEVICE: u8 = 3;

/// Opens the device of `selector`, else that of `$ROCKET_DEVICE`.
///
/// # Errors
/// The exit status if it cannot be used; the reason is on standard error.
pub fn open_or_exit(selector: Option<Selector>) -> Result<Opened, ExitCode> {
    let selector = selector.unwrap_or_else(Selector::from_env);
    npu_model::open(&selector).map_err(|error| {
        eprintln!("{error}");
        ExitCode::from(NO_DEVICE)
    })
}

/// The device of a row, and the other files that the row opens.
#[derive(Debug)]
pub struct RowContext {
    device: Device,
    info: DeviceInfo,
    others: RefCell<Vec<Device>>,
}

impl RowContext {
    /// The raw calls of the row's file.
    fn file(&self) -> File {
        File::new(&self.device)
    }

    fn bench(&self) -> Result<RowBench, NotPassed> {
        RowBench::new(self.file())
    }

    /// Another file of the device, which stays open until the row has ended.
    fn reopen(&self) -> Result<Device, NotPassed> {
        let device = self.device.reopen()?;
        self.others.borrow_mut().push(device.clone());
        Ok(device)
    }

    /// The raw calls of another file.
    fn other_file(&self) -> Result<File, NotPassed> {
        Ok(File::new(&self.reopen()?))
    }
}

/// The rows to run.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Parts of names; empty: all rows.
    pub names: Vec<String>,
    /// Parts of names of rows to leave out.
    pub except: Vec<String>,
    /// Whether rows that may damage a kernel run on a board.
    pub destructive: bool,
}

impl Choice {
    /// Whether the row was chosen by name.
    #[must_use]
    pub fn names(&self, row: &Row) -> bool {
        let is_in = |names: &[String]| names.iter().any(|name| row.name.contains(name.as_str()));
        (self.names.is_empty() || is_in(&self.names)) && !is_in(&self.except)
    }

    /// A chosen name that no row has, if there is one: probably a typing error.
    #[must_use]
    pub fn unknown_name(&self) -> Option<&str> {
        let known = |name: &String| ROWS.iter().any(|row| row.name.contains(name.as_str()));
        let mut names = self.names.iter().chain(&self.except);
        names.find(|name| !known(name)).map(String::as_str)
    }

    /// The reason not to run the row on this device, of whose kernel this behaviour is
    /// expected, if there is one.
    fn refuses(&self, row: &Row, info: &DeviceInfo, expected: &DriverProfile) -> Option<String> {
        if row.fails_submit && !expected.submit_unwinds && !info.is_model {
            let kernel = expected.name;
            return Some(format!(
                "a failing job takes {kernel} down (bug `null-domain`)"
            ));
        }
        if info.is_model && row.name.starts_with("bug-") {
            return Some("only a real kernel can have this bug".to_owned());
        }
        let danger = row.danger.filter(|_| !self.destructive && !info.is_model);
        danger.map(|danger| format!("{danger}; --destructive runs it anyway"))
    }
}

/// Runs the chosen rows on `device` and writes a report that ends with sums.
///
/// # Errors
/// When `out` cannot be written.
pub fn run(
    device: &Device,
    choice: &Choice,
    format: ReportFormat,
    out: &mut dyn Write,
) -> io::Result<RowCounts> {
    let info = device.info();
    let expected = if info.is_model {
        DriverProfile::default()
    } else {
        DriverProfile::of_release(&uname().release().to_string_lossy())
    };
    let mut remarks = vec![format!(
        "{} ({}), expecting the behaviour of {}",
        info.name,
        info.driver.name.display(),
        expected.name
    )];
    if !hold::is_possible(device) {
        remarks.push(
            "this kernel has no sw_sync (CONFIG_SW_SYNC, debugfs, root): rows use long jobs \
             instead of held ones"
                .to_owned(),
        );
    }
    let chosen = ROWS.iter().filter(|row| choice.names(row));
    let (rows, others): (Vec<&Row>, Vec<&Row>) =
        chosen.partition(|row| !(row.needs_kernel && info.is_model));
    if !others.is_empty() {
        let names: Vec<_> = others.iter().map(|row| row.name).collect();
        remarks.push(format!(
            "left out: {}; the software model has no other processes",
            names.join(", ")
        ));
    }
    let mut report = RowReport::new(out, format, rows.len(), &remarks)?;
    for row in rows {
        let outcome = match choice.refuses(row, &info, &expected) {
            Some(reason) => Err(NotPassed::Skip(reason)),
            None => run_row(row, device, &info),
        };
        let known = if info.is_model {
            None
        } else {
            known(row.name, &expected)
        };
        report.row(row, outcome, known)?;
    }
    report.end()
}

/// Runs a row on a separate file, so that its addresses, handles and damage are its
/// own. Afterwards it closes the handles of the row's files, waits, and closes the
/// files: in this order today's kernels stay alive. [`Device`] then warns that the pages
/// that it kept are closed already.
fn run_row(row: &Row, device: &Device, info: &DeviceInfo) -> RowOutcome {
    let context = RowContext {
        device: device.reopen()?,
        info: info.clone(),
        others: RefCell::default(),
    };
    let outcome = (row.run)(&context);
    let others = context.others.borrow();
    let closed = others
        .iter()
        .chain([&context.device])
        .try_for_each(|device| bench::close_handles(&File::new(device), ROW_HANDLES));
    if !info.is_model {
        bench::settle();
    }
    outcome.and(closed)
}
