// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows the progress of long work: a line on standard error, if that is a terminal. Short
//! work shows none.

use std::io::{IsTerminal, stderr};
use std::thread;
use std::time::Duration;

use indicatif::style::TemplateError;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is shorter than this shows no line.
const PATIENCE: Duration = Duration::from_secs(1);

const TICK: Duration = Duration::from_millis(200);

/// Templates of the line, for work of unknown length and for counted steps.
const ENDLESS: &str = "{spinner} {msg}, {elapsed}";
const COUNTED: &str = "{spinner} {msg} [{bar:30}] {pos} of {len}, {elapsed}";

/// The progress line; it disappears when this is dropped.
pub(crate) struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// A line for work of unknown length.
    pub(crate) fn endless(what: &str) -> Self {
        Self::start(ProgressBar::no_length(), ENDLESS, what)
    }

    /// A line for a number of steps.
    pub(crate) fn of(steps: u64, what: &str) -> Self {
        Self::start(ProgressBar::new(steps), COUNTED, what)
    }

    fn start(bar: ProgressBar, template: &str, what: &str) -> Self {
        bar.set_draw_target(ProgressDrawTarget::hidden());
        if stderr().is_terminal() {
            if let Ok(style) = style(template) {
                bar.set_style(style);
            }
            bar.set_message(what.to_owned());
            let later = bar.clone();
            // Without a thread there is no line.
            let _ = thread::Builder::new().spawn(move || {
                thread::sleep(PATIENCE);
                if !later.is_finished() {
                    later.set_draw_target(ProgressDrawTarget::stderr());
                    later.enable_steady_tick(TICK);
                }
            });
        }
        Self(bar)
    }

    pub(crate) fn doing(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    pub(crate) fn reached(&self, steps: u64) {
        self.0.set_position(steps);
    }

    /// Counts one more finished step.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// Runs code that writes to the terminal, with the line hidden.
    pub(crate) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.0.suspend(write)
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A style in ASCII, for serial consoles.
fn style(template: &str) -> Result<ProgressStyle, TemplateError> {
    let style = ProgressStyle::with_template(template)?;
    Ok(style.tick_chars("|/-\\ ").progress_chars("=> "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_style_and_pipes_have_no_line() {
        assert!(style(ENDLESS).is_ok() && style(COUNTED).is_ok());
        let progress = ProgressLine::of(2, "steps");
        progress.step();
        assert!(progress.0.is_hidden() && progress.0.position() == 1);
    }
}
