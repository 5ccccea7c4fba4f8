// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe tune`: which plans are the fastest, measured.

use anyhow::{Context, anyhow};
use npu_matmul::plan::{TunedFor, TunedPlans};

use crate::bench::MeasuringConditions;
use crate::exit::{Failure, Verdict};
use crate::flags::{Flags, OperandDtypes, TuneFlags};
use crate::output;
use crate::plans_file;
use crate::report::DeviceReport;
use crate::tune::{PlanTuning, TuneReport};

pub(crate) fn run(flags: &Flags, args: &TuneFlags) -> Result<Verdict, Failure> {
    let measuring = &args.measuring;
    for kind in measuring.kinds() {
        // An entry does not tell what its integers were made of.
        let same = match kind {
            OperandDtypes::Int8 | OperandDtypes::Fp16 | OperandDtypes::Int4 => continue,
            OperandDtypes::W4a8 => "int4 ones of twice the rows",
            OperandDtypes::W8a8 => "int8 ones",
        };
        return Err(Failure::Usage(anyhow!(
            "{kind} products have the plans of {same}: tune those"
        )));
    }
    let machine = measuring.machine();
    let open = || {
        super::open_with(flags, |options| {
            options.timeline = true;
            options.machine = machine;
        })
    };
    let opened = open()?;
    let info = opened.device.info();
    let tuned_for = TunedFor::device(&info, &machine);
    let device = DeviceReport::new(info, opened.why);
    let is_model = device.is_model;
    let fds = measuring.fds(device.cores);
    let threads = measuring.threads()?;
    let mut table = table(args, &tuned_for)?;
    let mut report = TuneReport {
        conditions: MeasuringConditions::look(device, measuring.clock.get(), fds, threads),
        tuned_for,
        measured: TuneReport::measured(is_model),
        products: Vec::new(),
        file: args.out.as_ref().map(|file| file.display().to_string()),
    };
    let say = |text: &str| output::print_unless(flags.json, text);
    say(&report.conditions.text())?;
    say(&format!("times      {}\n", report.measured))?;
    for &shape in measuring.shapes() {
        for &kind in measuring.kinds() {
            let mut case = measuring.case(kind, shape, is_model);
            if is_model {
                // Modelled times are the same each time.
                case.repeat = 1;
            }
            let tuning = PlanTuning {
                case,
                fds,
                threads,
                options: measuring.plan_options(&case),
                count: args.candidates.get(),
            };
            let (tuned, plan) = tuning.run(open)?;
            say(&tuned.text(is_model))?;
            report.products.push(tuned);
            table
                .insert(plan)
                .context("the plan that was measured is refused, which is a bug")
                .map_err(Failure::Device)?;
            // Each as it is known: measuring takes long.
            if let Some(file) = &args.out {
                plans_file::write(file, &table)?;
            }
        }
    }
    match &report.file {
        _ if flags.json => output::print_json(&report)?,
        Some(file) => say(&format!("\n{file}: {} plan(s)\n", table.iter().len()))?,
        None => {}
    }
    Ok(Verdict::Pass)
}

/// The table that is there, or none; it can be written, which is better known
/// before than after.
fn table(args: &TuneFlags, tuned_for: &TunedFor) -> Result<TunedPlans, Failure> {
    let Some(file) = &args.out else {
        return Ok(TunedPlans::new(tuned_for.clone()));
    };
    let table = if file.exists() {
        let table = plans_file::read(file)?;
        table.conditions().check(tuned_for).map_err(|other| {
            Failure::Usage(anyhow!("{}: {other}; write another file", file.display()))
        })?;
        TunedPlans::clone(&table)
    } else {
        TunedPlans::new(tuned_for.clone())
    };
    plans_file::write(file, &table)?;
    Ok(table)
}
