// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds complaints in the console output of the guest's kernel.

use std::path::PathBuf;

/// A line of the console with one of these words is a complaint.
const COMPLAINTS: &str = include_str!("../../../tests/hw/expected/complaints.txt");

/// Warnings that known kernel bugs cause.
const EXPECTED: &str = include_str!("../../../tests/hw/expected/console.txt");

/// Lines that are shown after a failure.
const TAIL: usize = 25;

/// Lines for people about the complaints: each with its count, whatever its time and process, and
/// the known bug that causes it. Also returns whether all have a known bug. `patches` are applied
/// to the kernel; each has the name of the bug that it fixes.
pub(super) fn summary(console: &str, patches: &[PathBuf]) -> (Vec<String>, bool) {
    let mut found: Vec<(&str, usize)> = Vec::new();
    for line in console.lines() {
        // Removes `[ 1.234567] ` and anything that a program has left before it on the line.
        let line = line.split_once("] ").map_or(line, |(_, rest)| rest).trim();
        // Removes the processor, and the offset in a function.
        let line = [", CPU#", "+0x"]
            .into_iter()
            .fold(line, |line, mark| line.split(mark).next().unwrap_or(line));
        if entries(COMPLAINTS).any(|word| line.contains(word)) {
            match found.iter_mut().find(|(known, _)| *known == line) {
                Some((_, times)) => *times += 1,
                None => found.push((line, 1)),
            }
        }
    }
    let is_fixed = |bug: &str| {
        let mut names = patches.iter().filter_map(|patch| patch.file_stem());
        names.any(|name| name == bug)
    };
    let mut all_known = true;
    let text = |(line, times)| {
        let known = expected(line).filter(|bug| !is_fixed(bug));
        all_known &= known.is_some();
        let because = known.map_or(String::new(), |bug| format!(", known bug {bug}"));
        format!("guest kernel: {line} ({times} times{because})")
    };
    let lines = found.into_iter().map(text).collect();
    (lines, all_known)
}

/// The last lines.
pub(super) fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

/// The lines of a list without comments.
fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter(|line| !line.starts_with('#'))
}

/// The known bug that causes this line, if it is a warning. What KASAN finds in the same function
/// is a different bug.
fn expected(line: &str) -> Option<&'static str> {
    if !line.contains("WARNING: ") {
        return None;
    }
    entries(EXPECTED)
        .filter_map(|known| known.split_once(char::is_whitespace))
        .find_map(|(word, bug)| line.contains(word).then(|| bug.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_counted_and_known_bugs_told_from_news() {
        let known = "[1] booting\n[2] WARNING: a.c:1 at rocket_job_irq_handler+0x2/0x3, CPU#0: x/1\n\
                     [3] WARNING: a.c:1 at rocket_job_irq_handler+0x1/0x3, CPU#1: x/2\r\n[4] fine\n";
        let line = "guest kernel: WARNING: a.c:1 at rocket_job_irq_handler (2 times, known bug \
                    dma-warning)";
        assert_eq!(summary(known, &[]), (vec![line.to_owned()], true));
        let news = format!("{known}[5] BUG: KASAN: use-after-free in rocket_job_irq_handler\n");
        assert!(!summary(&news, &[]).1);
        assert!(tail(known).ends_with("fine"));
    }

    #[test]
    fn a_bug_is_not_expected_of_a_kernel_with_its_patch() {
        let console = "[1] WARNING: a.c:1 at drm_mm_takedown+0x2/0x3\n";
        assert!(summary(console, &["bugs/huge-bo.patch".into()]).1);
        assert!(!summary(console, &["bugs/use-after-close.patch".into()]).1);
    }
}
