// SPDX-License-Identifier: MIT OR Apache-2.0
//! How rows ended, for people and for test runners.

use std::io::{self, Write};

use crate::check::{NotPassed, RowOutcome};
use crate::known::KnownBug;
use crate::rows::Row;

/// The format of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportFormat {
    /// Lines for people.
    #[default]
    Text,
    /// KTAP, version 1 (Linux, Documentation/dev-tools/ktap.rst), with the
    /// directives XFAIL and XPASS and the sums of kselftest (kselftest.h).
    Ktap,
}

/// Numbers of rows, by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Rows on which the driver does what is expected.
    pub passed: usize,
    /// Rows on which it does not.
    pub failed: usize,
    /// Rows that could not run here.
    pub skipped: usize,
    /// Rows that fail because of a known bug of this kernel.
    pub known: usize,
    /// Rows that pass, although a known bug of this kernel should make them fail.
    pub unexpected: usize,
}

pub(crate) struct RowReport<'a> {
    out: &'a mut dyn Write,
    format: ReportFormat,
    summary: RowCounts,
    count: usize,
}

impl<'a> RowReport<'a> {
    /// Begins a report of `rows` rows; `remarks` are for people.
    pub(crate) fn new(
        out: &'a mut dyn Write,
        format: ReportFormat,
        rows: usize,
        remarks: &[String],
    ) -> io::Result<Self> {
        let mark = match format {
            ReportFormat::Text => "",
            ReportFormat::Ktap => {
                writeln!(out, "KTAP version 1\n1..{rows}")?;
                "# "
            }
        };
        for remark in remarks {
            writeln!(out, "{mark}{remark}")?;
        }
        Ok(Self {
            out,
            format,
            summary: RowCounts::default(),
            count: 0,
        })
    }

    pub(crate) fn row(
        &mut self,
        row: &Row,
        outcome: RowOutcome,
        known: Option<KnownBug>,
    ) -> io::Result<()> {
        self.count += 1;
        let sums = &mut self.summary;
        let bug = known.map_or("", |known| known.bug);
        let (word, counter, reason) = match (outcome, known) {
            (Ok(()), Some(known)) if known.always => ("XPASS", &mut sums.unexpected, String::new()),
            (Ok(()), _) => ("PASS", &mut sums.passed, String::new()),
            (Err(NotPassed::Skip(reason)), _) => ("SKIP", &mut sums.skipped, reason),
            (Err(NotPassed::Fail(reason)), Some(_)) => ("XFAIL", &mut sums.known, reason),
            (Err(NotPassed::Fail(reason)), None) => ("FAIL", &mut sums.failed, reason),
        };
        *counter += 1;
        let reason = reason.replace('\n', " ");
        let because = match word {
            "PASS" => String::new(),
            "FAIL" => format!("{reason} (row: {})", row.what),
            "SKIP" => reason,
            "XPASS" => format!("without {bug}, which is expected here"),
            _ => format!("{bug}: {reason}"),
        };
        let (out, name, number) = (&mut self.out, row.name, self.count);
        match (self.format, word) {
            (ReportFormat::Text, "PASS") => writeln!(out, "{word} {name}"),
            (ReportFormat::Text, _) => writeln!(out, "{word} {name}: {because}"),
            (ReportFormat::Ktap, "PASS") => writeln!(out, "ok {number} {name}"),
            (ReportFormat::Ktap, "FAIL") => writeln!(out, "# {because}\nnot ok {number} {name}"),
            (ReportFormat::Ktap, _) => writeln!(out, "ok {number} {name} # {word} {because}"),
        }
    }

    /// Ends the report with the sums.
    pub(crate) fn end(self) -> io::Result<RowCounts> {
        let RowCounts {
            passed,
            failed,
            skipped,
            known,
            unexpected,
        } = self.summary;
        match self.format {
            ReportFormat::Text => {
                write!(
                    self.out,
                    "{passed} passed, {failed} failed, {skipped} skipped"
                )?;
                for (number, what) in [
                    (known, "known to fail"),
                    (unexpected, "passed unexpectedly"),
                ] {
                    if number > 0 {
                        write!(self.out, ", {number} {what}")?;
                    }
                }
                writeln!(self.out)?;
            }
            ReportFormat::Ktap => writeln!(
                self.out,
                "# Totals: pass:{passed} fail:{failed} xfail:{known} xpass:{unexpected} \
                 skip:{skipped} error:0"
            )?,
        }
        Ok(self.summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ROWS;

    fn text(format: ReportFormat) -> String {
        let mut out = Vec::new();
        let mut report = RowReport::new(&mut out, format, 5, &["on a board".to_owned()]).unwrap();
        let fail = || Err(NotPassed::Fail("1, expected\n2".to_owned()));
        let known = |always| Some(KnownBug { always, bug: "b" });
        let row = &ROWS[0];
        report.row(row, Ok(()), None).unwrap();
        report.row(row, fail(), None).unwrap();
        let skip = Err(NotPassed::Skip("no".to_owned()));
        report.row(row, skip, None).unwrap();
        report.row(row, fail(), known(true)).unwrap();
        report.row(row, Ok(()), known(true)).unwrap();
        report.row(row, Ok(()), known(false)).unwrap();
        report.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_runner_can_read_it() {
        let what = ROWS[0].what;
        let wanted = format!(
            "KTAP version 1\n1..5\n# on a board\nok 1 version\n# 1, expected 2 (row: {what})\n\
             not ok 2 version\nok 3 version # SKIP no\nok 4 version # XFAIL b: 1, expected 2\n\
             ok 5 version # XPASS without b, which is expected here\nok 6 version\n\
             # Totals: pass:2 fail:1 xfail:1 xpass:1 skip:1 error:0\n"
        );
        assert_eq!(text(ReportFormat::Ktap), wanted);
    }

    #[test]
    fn people_get_a_line_a_row() {
        let text = text(ReportFormat::Text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[4], "XFAIL version: b: 1, expected 2");
        let sums = "2 passed, 1 failed, 1 skipped, 1 known to fail, 1 passed unexpectedly";
        assert_eq!(lines[7], sums);
    }
}
