// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the guest's kernel says.

/// What it says when something is wrong with it.
const COMPLAINTS: [&str; 5] = [
    "BUG: ",
    "WARNING: ",
    "Oops",
    "Unable to handle kernel",
    "Kernel panic",
];

/// Lines that are shown after a failure.
const TAIL: usize = 25;

/// All of it.
#[derive(Debug)]
pub(crate) struct Console(pub(crate) String);

impl Console {
    /// The lines in which the kernel says that something is wrong, each with how
    /// often it is there, whenever and in whichever process.
    pub(crate) fn complaints(&self) -> Vec<(&str, usize)> {
        let mut found: Vec<(&str, usize)> = Vec::new();
        for line in self.0.lines() {
            // `[    1.234567] `, behind what a program may have left on the line.
            let line = line.split_once("] ").map_or(line, |(_, rest)| rest).trim();
            let line = line.split_once(", CPU#").map_or(line, |(line, _)| line);
            // Nor at which instruction of a function.
            let line = line.split_once("+0x").map_or(line, |(line, _)| line);
            if !COMPLAINTS.iter().any(|word| line.contains(word)) {
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
}
