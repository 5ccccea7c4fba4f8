// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console of the guest's kernel, and which of its lines are complaints.

use std::path::PathBuf;

/// Words that make a line of the console a complaint.
const COMPLAINTS: &str = include_str!("../../../tests/hw/expected/complaints.txt");

/// What a kernel may say while all is well.
const EXPECTED: &str = include_str!("../../../tests/hw/expected/console.txt");

/// Lines that are shown after a failure.
const TAIL: usize = 25;

/// All that the guest's kernel wrote to its console.
#[derive(Debug)]
pub(crate) struct Console(pub(crate) String);

impl Console {
    /// The complaints for people, with the known bugs that they come from, and
    /// whether all do. The kernel has `patches`, each of the name of the bug that
    /// it mends.
    pub(crate) fn told(&self, patches: &[PathBuf]) -> (Vec<String>, bool) {
        let mended = |bug: &str| {
            let mut names = patches.iter().filter_map(|patch| patch.file_stem());
            names.any(|name| name == bug)
        };
        let mut all_known = true;
        let tell = |(line, times)| {
            let known = expected(line).filter(|bug| !mended(bug));
            all_known &= known.is_some();
            let because = known.map_or(String::new(), |bug| format!(", which is {bug}"));
            format!("guest kernel: {line} ({times} times{because})")
        };
        let lines = self.complaints().into_iter().map(tell).collect();
        (lines, all_known)
    }

    /// The lines in which the kernel says that something is wrong, each with how
    /// often it is there, whenever and in whichever process.
    fn complaints(&self) -> Vec<(&str, usize)> {
        let mut found: Vec<(&str, usize)> = Vec::new();
        for line in self.0.lines() {
            // `[    1.234567] `, behind what a program may have left on the line.
            let line = line.split_once("] ").map_or(line, |(_, rest)| rest).trim();
            let line = line.split_once(", CPU#").map_or(line, |(line, _)| line);
            // Nor at which instruction of a function.
            let line = line.split_once("+0x").map_or(line, |(line, _)| line);
            if !entries(COMPLAINTS).any(|word| line.contains(word)) {
                continue;
            }
            match found.iter_mut().find(|(known, _)| *known == line) {
                Some((_, times)) => *times += 1,
                None => found.push((line, 1)),
            }
        }
        found
    }

    /// The last lines.
    pub(crate) fn tail(&self) -> String {
        let lines: Vec<&str> = self.0.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

/// The lines of a list that are no comments.
fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter(|line| !line.starts_with('#'))
}

/// The bug because of which a kernel may say this, a warning: what KASAN finds in
/// the same function is something else.
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
    fn complaints_are_found_and_counted() {
        let console = Console(
            "[1] booting\n[2] WARNING: a.c:1 at f+0x2/0x3, CPU#0: x/1\n[3] WARNING: a.c:1 at \
             f+0x1/0x3, CPU#1: x/2\r\n[4] fine\n"
                .into(),
        );
        let wanted = [("WARNING: a.c:1 at f", 2)];
        assert_eq!(console.complaints(), wanted);
        assert!(console.tail().ends_with("fine"));
    }

    #[test]
    fn known_bugs_are_told_from_news() {
        let known = "[1] WARNING: a.c:1 at rocket_job_irq_handler+0x2/0x3\n";
        let line = "guest kernel: WARNING: a.c:1 at rocket_job_irq_handler (1 times, which is \
                    dma-warning)";
        assert_eq!(
            Console(known.to_owned()).told(&[]),
            (vec![line.to_owned()], true)
        );
        let news = format!("{known}[2] BUG: KASAN: use-after-free in rocket_job_irq_handler\n");
        assert!(!Console(news).told(&[]).1);
    }

    #[test]
    fn a_bug_is_not_expected_of_a_kernel_with_its_patch() {
        let console = Console("[1] WARNING: a.c:1 at drm_mm_takedown+0x2/0x3\n".to_owned());
        assert!(console.told(&["bugs/huge-bo.patch".into()]).1);
        assert!(!console.told(&["bugs/use-after-close.patch".into()]).1);
    }
}
