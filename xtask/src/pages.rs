// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages generated from tables of rknpu-regcmd: docs/registers.md and docs/rules.md.

use anyhow::Result;
use rknpu_regcmd::rules::{Effect, Rule, TABLE};
use rknpu_regcmd::{Block, FieldInfo, RegisterAccess, RegisterInfo, regs};

use crate::generated::table;

const REGISTERS: &str = "\
# Registers

Generated from the register table of `rknpu-regcmd` by `cargo xtask docs`; do
not edit. Offsets are bytes in a core's register window. An *atom* is 16 bytes.
A field written `31..4` with unit atoms makes the register a byte count whose
low four bits are 0.

Names are those of Mesa's register database. Names, places and meanings are
E-field-widths in [evidence.md](evidence.md) where no other id is cited. Registers of
programs persist from task to task: a complete program writes all of a block that it
starts.
";

const RULES: &str = "\
# Rules

Generated from the table of rules of `rknpu-regcmd` (`src/rules/`) by `cargo xtask
docs`; do not edit. The lint reports a broken rule before a program runs
([regcmd.md](regcmd.md#lint)); the software chip does what the row says silicon does
([chip.md](chip.md#traps)). *Severity* is the lint's. Where the column *silicon* is empty,
the row is advice, or nobody knows. Ids (E-...) are rows of [evidence.md](evidence.md).

";

/// All registers with their fields.
pub(crate) fn registers() -> Result<String> {
    let blocks = Block::ALL.into_iter().map(|block| {
        let rows = regs::of_block(block).iter().flat_map(|one| register(one));
        let rows = table("Offset | Register | Bits | Field | Meaning", rows);
        format!("\n## {block}, target {:#06x}\n\n{rows}", block.target())
    });
    Ok(REGISTERS.to_owned() + &blocks.collect::<String>())
}

/// The table rows of a register and its fields.
fn register(register: &RegisterInfo) -> Vec<String> {
    let RegisterInfo { name, offset, .. } = register;
    let access = match register.access {
        RegisterAccess::Program if register.is_address => " *Address.*",
        RegisterAccess::Program => "",
        RegisterAccess::Driver => " *Not written by programs.*",
        RegisterAccess::ReadOnly => " *Read only.*",
    };
    let mut rows = vec![format!(
        "{offset:#06x} | **{name}** | | | {}{access}",
        cell(register.doc)
    )];
    rows.extend(register.fields.iter().map(|field| {
        let FieldInfo { name, lsb, msb, .. } = field;
        let sign = if field.signed { " Signed." } else { "" };
        let bits = if lsb == msb {
            lsb.to_string()
        } else {
            format!("{msb}..{lsb}")
        };
        format!("| | {bits} | {name} | {}{sign}", cell(field.doc))
    }));
    rows
}

/// Text on one line, escaped for a table cell.
fn cell(text: &str) -> String {
    text.trim().replace('\n', " ").replace('|', "\\|")
}

/// All rules.
pub(crate) fn rules() -> Result<String> {
    let rows = TABLE.iter().copied().flatten().map(|one| rule(one));
    Ok(RULES.to_owned() + &table("rule | severity | silicon | why | remedy | evidence", rows))
}

fn rule(rule: &Rule) -> String {
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
    let contested = rule
        .contested
        .map(|fact| format!(" (contested: `{fact}`)"))
        .unwrap_or_default();
    let ids: Vec<_> = rule
        .evidence
        .iter()
        .map(|id| format!("[{id}](evidence.md)"))
        .collect();
    let ids = ids.join(", ");
    format!("`{id}` | {severity} | {effect} | {why}{contested} | {remedy} | {ids}")
}
