// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of rules as a page: docs/rules.md.

use std::fmt::{self, Write};

use rknpu_regcmd::rules::{Effect, Rule, TABLE};

const HEAD: &str = "\
# Rules

Generated from the table of rules of `rknpu-regcmd` (`src/rules/`) by `cargo xtask
docs`; do not edit. The lint reports a broken rule before a program runs
([regcmd.md](regcmd.md#lint)); the software chip does what the row says silicon does
([chip.md](chip.md#traps)). *Severity* is the lint's. Where the column *silicon* is empty,
the row is advice, or nobody knows. Ids (E-...) are rows of [evidence.md](evidence.md).

| rule | severity | silicon | why | remedy | evidence |
|---|---|---|---|---|---|
";

/// All rules, as Markdown.
pub(crate) fn markdown() -> String {
    let mut page = String::from(HEAD);
    // Writing to a string cannot fail.
    let _ = TABLE
        .iter()
        .copied()
        .flatten()
        .try_for_each(|rule| write_rule(&mut page, rule));
    page
}

fn write_rule(page: &mut String, rule: &Rule) -> fmt::Result {
    let Rule {
        id,
        severity,
        why,
        remedy,
        ..
    } = rule;
    let effect = match rule.effect {
        Some(Effect::Hang) => "hangs",
        Some(Effect::Garbage) => "writes garbage",
        Some(Effect::NoWrite) => "does not write",
        Some(Effect::Note) => "goes wrong at times",
        None => "",
    };
    write!(page, "| `{id}` | {severity} | {effect} | {why}")?;
    if let Some(fact) = rule.contested {
        write!(page, " (contested: `{fact}`)")?;
    }
    write!(page, " | {remedy} |")?;
    for (at, id) in rule.evidence.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(page, "{comma} [{id}](evidence.md)")?;
    }
    writeln!(page, " |")
}
