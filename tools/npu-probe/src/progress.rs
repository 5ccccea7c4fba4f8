// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far long work is: a line on standard error, where that is a terminal. Pipes and
//! files see nothing of it, nor does anybody of work that is done in a moment.

use std::io::{IsTerminal, stderr};
use std::thread;
use std::time::Duration;

use indicatif::style::TemplateError;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that takes no longer has no line.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two pictures of the line.
const TICK: Duration = Duration::from_millis(200);

/// The line of work of which nobody knows how much it is, and of counted steps.
const ENDLESS: &str = "{spinner} {msg}, {elapsed}";
const COUNTED: &str = "{spinner} {msg} [{bar:30}] {pos} of {len}, {elapsed}";

/// The line, until it is dropped.
pub(crate) struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// Of work of which nobody knows how much it is.
    pub(crate) fn endless(what: &str) -> Self {
        Self::start(ProgressBar::no_length(), ENDLESS, what)
    }

    /// Of so many steps.
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

    /// Says what is done now.
    pub(crate) fn doing(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Says that so many steps are done.
    pub(crate) fn reached(&self, steps: u64) {
        self.0.set_position(steps);
    }

    /// One more step is done.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// Does what writes to the terminal while the line is out of the way.
    pub(crate) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.0.suspend(write)
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// ASCII, as serial consoles have it.
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
