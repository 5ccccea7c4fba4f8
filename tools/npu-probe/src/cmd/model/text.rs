// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the report as tables of text.

use std::fmt::Write;

use super::ModelReport;
use super::speed::{SpeedReport, SpeedRow};
use super::weights::{WeightGroup, WeightPlace};
use crate::table::{MIB, table};

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

impl ModelReport {
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let files = match self.files {
            1 => String::new(),
            several => format!(" in {several} files"),
        };
        // Writing into a String cannot fail.
        let _ = writeln!(
            text,
            "model    {}, {} tensors{files}, {:.1} MiB",
            self.architecture,
            self.tensors,
            mib(self.file_bytes)
        );
        let _ = writeln!(
            text,
            "profile  {}; the NPU at {} MHz",
            self.profile, self.clock_mhz
        );
        if let Some(reason) = &self.profile_refused {
            let _ = writeln!(text, "         {reason}");
        }
        let _ = match &self.calibrated_on {
            Some(board) => writeln!(
                text,
                "times    calibrated on {board}; other clocks are modelled, and the CPU alone is \
                 as published"
            ),
            None => writeln!(
                text,
                "times    modelled, not measured on this machine; the CPU alone is as published"
            ),
        };
        let rule = match (self.is_budget_given, self.budget_bytes) {
            (true, _) => "from --mem",
            (false, Some(_)) => "half of the available memory",
            (false, None) => "the kernel does not show the available memory",
        };
        let budget = self.budget_bytes.map_or_else(
            || "unlimited".to_owned(),
            |bytes| format!("at most {:.1} MiB", mib(bytes)),
        );
        let _ = writeln!(
            text,
            "memory   {budget} of packed weights ({rule}), on {} file descriptor(s)",
            self.fds
        );
        let _ = writeln!(text, "{}\n", self.fit());
        text.push_str(&table(&self.weight_rows()));
        match (&self.speed, &self.speed_unknown) {
            (Some(speed), _) => speed.write(self.clock_mhz, &mut text),
            (None, why) => {
                let why = why.as_deref().unwrap_or_default();
                let _ = writeln!(text, "\nspeed of the whole graph: unknown, {why}");
            }
        }
        text
    }

    fn fit(&self) -> String {
        let sum = |fits: bool| {
            let groups = self.weights.iter().filter(|group| group.fits() == fits);
            groups.fold((0, 0), |(tensors, bytes), group| {
                (tensors + group.tensors, bytes + group.packed_bytes)
            })
        };
        let fit = format!("{:.1} MiB of packed weights", mib(self.packed_bytes));
        match sum(false) {
            (0, _) => format!("fits     yes, {fit}"),
            (tensors, bytes) => format!(
                "fits     no, only {fit}; {tensors} tensors ({:.1} MiB) stay on the CPU",
                mib(bytes)
            ),
        }
    }

    fn weight_rows(&self) -> Vec<Vec<String>> {
        let heads = [
            "weights",
            "type",
            "n x k",
            "tensors",
            "where",
            "computed in",
            "from rows",
            "MiB",
        ];
        let row = |group: &WeightGroup| {
            let experts = match group.matrices {
                1 => String::new(),
                several => format!(" x {several}"),
            };
            let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            vec![
                group.name.clone(),
                group.type_name.clone(),
                format!("{} x {}{experts}", group.n, group.k),
                group.tensors.to_string(),
                group.place.words().to_owned(),
                or_none(group.computed_in.map(str::to_owned)),
                or_none(group.from_rows.map(|rows| rows.to_string())),
                format!("{:.1}", mib(group.packed_bytes)),
            ]
        };
        let heads = vec![heads.map(str::to_owned).to_vec()];
        heads
            .into_iter()
            .chain(self.weights.iter().map(row))
            .collect()
    }
}

impl WeightPlace {
    const fn words(self) -> &'static str {
        match self {
            Self::Npu => "NPU",
            Self::CpuMemory => "CPU: memory",
            Self::CpuAddresses => "CPU: addresses",
            Self::CpuType => "CPU: type",
            Self::CpuSize => "CPU: size",
            Self::CpuFaster => "CPU: faster",
        }
    }
}

impl SpeedReport {
    fn write(&self, here: u64, text: &mut String) {
        let parts = [
            (
                "prompt processing in tokens/s, by prompt length".to_owned(),
                &self.prompts,
            ),
            (
                format!(
                    "token generation in tokens/s, by parallel sequences of {} tokens",
                    self.parallel_context
                ),
                &self.parallel,
            ),
        ];
        for (title, rows) in parts {
            let mut cells = vec![title, "CPU alone".to_owned()];
            cells.extend(self.clocks_mhz.iter().map(|clock| format!("{clock} MHz")));
            cells.push(format!("largest share, at {here} MHz"));
            let cells = vec![cells];
            let rows = cells.into_iter().chain(rows.iter().map(SpeedRow::cells));
            text.push('\n');
            text.push_str(&table(&rows.collect::<Vec<_>>()));
        }
        if let Some(most) = self.context_length {
            let _ = writeln!(text, "\nthe model's context length is {most} tokens");
        }
    }
}

impl SpeedRow {
    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.count.to_string()];
        let rates = [&self.cpu_alone].into_iter().chain(&self.npu);
        cells.extend(rates.map(|rate| format!("{rate:.1}")));
        cells.push(format!("{}, {:.0} %", self.mostly, self.mostly_percent));
        cells
    }
}
