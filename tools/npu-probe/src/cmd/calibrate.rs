// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe calibrate`: measures this board and saves its profile.

use anyhow::anyhow;
use npu_matmul::Profile;

use crate::calibrate::facts::report::FactReport;
use crate::calibrate::{self, CalibrateReport, facts};
use crate::exit::{Failure, Verdict};
use crate::flags::CalibrateFlags;
use crate::output;
use crate::progress::ProgressLine;
use crate::report::DeviceReport;

pub(crate) fn run(args: &CalibrateFlags) -> Result<Verdict, Failure> {
    let names = args.facts();
    // Reports misspelt names before anything runs.
    facts::choose(&names)?;
    let file = match (args.is_whole(), &args.out) {
        (false, _) => None,
        (true, Some(file)) => Some(file.clone()),
        (true, None) => Some(Profile::users_file().ok_or_else(|| {
            Failure::Usage(anyhow!(
                "HOME is not set, so the profile has no default path; use --out FILE"
            ))
        })?),
    };
    let open = || super::open_with(&args.device, |options| options.timeline = true);
    let opened = open()?;
    let device = DeviceReport::new(opened.device.info(), opened.why);
    let progress = ProgressLine::endless("calibrating");
    let say = |text: &str| progress.aside(|| args.report.say(text));
    let tell = |text: &str| progress.aside(|| output::tell(&format!("{text}\n")));
    say(&device.text())?;
    let mut profile = None;
    let keep = |profile: &Profile| match &file {
        Some(file) => calibrate::write(file, profile),
        None => Ok(()),
    };
    if file.is_some() {
        profile = Some(calibrate::measured(&open, &tell, &keep)?);
        tell("contested facts");
    }
    progress.doing("running experiments");
    let facts = facts::settle(&opened.device, &names, args.risky, |fact| {
        if let (Some(profile), Some(settled)) = (&mut profile, fact.verdict()) {
            profile.facts.retain(|fact| fact.id != settled.id);
            profile.facts.push(settled);
            keep(profile)?;
        }
        if args.shows_all() || fact.differs() {
            say(&fact.text())?;
        }
        Ok(())
    })?;
    if let Some(profile) = &mut profile {
        calibrate::extended(&open, profile, &tell, &keep)?;
    }
    drop(progress);
    let report = CalibrateReport {
        settled: !facts.iter().any(FactReport::matches_no_side),
        version: env!("CARGO_PKG_VERSION").into(),
        device,
        facts,
        profile,
        file: file.map(|file| file.display().to_string()),
    };
    args.report.print(&report, || report.text())?;
    Ok(Verdict::of(report.settled))
}
