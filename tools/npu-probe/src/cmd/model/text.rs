// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the report as tables of text.

use std::fmt::Write;

use npu_matmul::memory::MemoryShares;

use super::ModelReport;
use super::speed::{SpeedReport, SpeedRow};
use super::weights::{WeightGroup, WeightPlace};
use crate::base::table::{mib, table};

impl ModelReport {
    pub(super) fn text(&self) -> String {
        let files = match self.files {
            1 => String::new(),
            several => format!(" in {several} files"),
        };
        let refused = self.profile_refused.as_ref();
        let refused = refused.map(|reason| format!("         {reason}\n"));
        let times = match &self.calibrated_on {
            Some(board) => format!("calibrated on {board}; other clocks are modelled, and"),
            None if self.is_profile_modelled => {
                "modelled: `calibrate` ran on the software model, not on a board;".to_owned()
            }
            None => "modelled, not measured on this machine;".to_owned(),
        };
        let [likely, least] = self.first_touch_s;
        let (budget, rule) = match self.budget_bytes {
            None => (None, "the kernel does not show the available memory"),
            budget if self.is_budget_given => (budget, "from --mem"),
            budget => (budget, "half of the available memory"),
        };
        let budget = budget.map(|bytes| {
            let weights = MemoryShares::of(bytes).weights();
            let (all, weights) = (mib(bytes), mib(weights));
            format!("at most {all:.1} MiB, of this {weights:.1} MiB for packed weights")
        });
        let mut text = format!(
            "model    {}, {} tensors{files}, {:.1} MiB\n\
             profile  {}; the NPU at {} MHz\n\
             {}\
             times    {times} the CPU alone is as published\n\
             memory   {} ({rule}), on {} file descriptor(s)\n\
             {}\n\
             load     the kernel needs {likely:.1} s for new packed weights, at best {least:.1} s; \
             packing them comes on top\n\n",
            self.architecture,
            self.tensors,
            mib(self.file_bytes),
            self.profile,
            self.clock_mhz,
            refused.unwrap_or_default(),
            budget.as_deref().unwrap_or("unlimited"),
            self.fds,
            self.fit()
        );
        let heads = "weights,type,n x k,tensors,where,computed in,from rows,MiB".split(',');
        text.push_str(&table(heads, self.weights.iter().map(WeightGroup::cells)));
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
        let fit = format!("{:.1} MiB of packed weights", mib(self.packed_bytes));
        if self.fits {
            return format!("fits     yes, {fit}");
        }
        let staying = self.weights.iter().filter(|group| !group.fits());
        let (tensors, bytes) = staying.fold((0, 0), |(tensors, bytes), group| {
            (tensors + group.tensors, bytes + group.packed_bytes)
        });
        format!(
            "fits     no, only {fit}; {tensors} tensors ({:.1} MiB) stay on the CPU",
            mib(bytes)
        )
    }
}

impl WeightGroup {
    fn cells(&self) -> Vec<String> {
        let experts = match self.matrices {
            1 => String::new(),
            several => format!(" x {several}"),
        };
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            self.name.clone(),
            self.type_name.clone(),
            format!("{} x {}{experts}", self.n, self.k),
            self.tensors.to_string(),
            self.place.words().to_owned(),
            or_none(self.computed_in.map(str::to_owned)),
            or_none(self.from_rows.map(|rows| rows.to_string())),
            format!("{:.1}", mib(self.packed_bytes)),
        ]
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
        let prompts = "prompt processing in tokens/s, likely (upper bound)".to_owned();
        let parallel = format!(
            "token generation in tokens/s, likely (upper bound), sequences of {} tokens",
            self.parallel_context
        );
        for (title, rows) in [(prompts, &self.prompts), (parallel, &self.parallel)] {
            let mut heads = vec![title, "CPU alone".to_owned()];
            heads.extend(self.clocks_mhz.iter().map(|clock| format!("{clock} MHz")));
            heads.push(format!("largest share, at {here} MHz"));
            text.push('\n');
            text.push_str(&table(heads, rows.iter().map(SpeedRow::cells)));
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
        cells.extend(rates.map(ToString::to_string));
        cells.push(format!("{}, {:.0} %", self.mostly, self.mostly_percent));
        cells
    }
}
