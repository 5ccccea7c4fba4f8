// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of registers and rules as pages of text (Markdown).

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use crate::field::{FieldInfo, RegisterAccess, RegisterInfo};
use crate::regs;
use crate::rules::{Effect, Rule, TABLE};
use crate::word::Block;

const REGISTERS: &str = "\
# Registers

Offsets are bytes in a core's register window. An *atom* is 16 bytes. A field written `31..4`
with unit atoms makes the register a byte count whose low four bits are 0.

Names are those of Mesa's register database. Names, places and meanings are
E-field-widths in [evidence.md](evidence.md) where no other id is cited. Registers of
programs persist from task to task: a complete program writes all of a block that it
starts.
";

const RULES: &str = "\
# Rules

The lint reports a broken rule before a program runs ([regcmd.md](regcmd.md#lint)); the software
chip does what the row says silicon does ([chip.md](chip.md#traps)). *Severity* is the lint's.
Where the column *silicon* is empty, the row is advice, or nobody knows. Ids (E-...) are rows of
[evidence.md](evidence.md).
";

/// The registers whose `BLOCK.NAME` contains `wanted`, with their fields; `""` is all.
///
/// Returns `None` if there are none.
#[must_use]
pub fn registers(wanted: &str) -> Option<String> {
    let is_wanted = |register: &RegisterInfo| {
        contains(&format!("{}.{}", register.block, register.name), wanted)
    };
    let blocks = Block::ALL.into_iter().filter_map(|block| {
        let registers = regs::of_block(block).iter();
        let rows: String = registers
            .filter(|register| is_wanted(register))
            .flat_map(|&register| register_rows(register))
            .collect();
        let heads = "| Offset | Register | Bits | Field | Meaning |\n|---|---|---|---|---|\n";
        let target = block.target();
        (!rows.is_empty()).then(|| format!("\n## {block}, target {target:#06x}\n\n{heads}{rows}"))
    });
    page(REGISTERS, blocks.collect())
}

/// The rules whose id contains `wanted`; `""` is all.
///
/// Returns `None` if there are none.
#[must_use]
pub fn rules(wanted: &str) -> Option<String> {
    let rules = TABLE.iter().copied().flatten();
    let rows: String = rules
        .filter(|rule| contains(rule.id, wanted))
        .map(|&rule| rule_row(rule))
        .collect();
    let heads =
        "\n| rule | severity | silicon | why | remedy | evidence |\n|---|---|---|---|---|---|\n";
    page(&format!("{RULES}{heads}"), rows)
}

/// Whether `name` contains `part`, in upper or lower case.
fn contains(name: &str, part: &str) -> bool {
    name.to_lowercase().contains(&part.to_lowercase())
}

fn page(head: &str, content: String) -> Option<String> {
    (!content.is_empty()).then(|| format!("{head}{content}"))
}

/// The table rows of a register and its fields.
fn register_rows(register: &RegisterInfo) -> Vec<String> {
    let RegisterInfo { name, offset, .. } = register;
    let access = match register.access {
        RegisterAccess::Program if register.is_address => " *Address.*",
        RegisterAccess::Program => "",
        RegisterAccess::Driver => " *Not written by programs.*",
        RegisterAccess::ReadOnly => " *Read only.*",
    };
    let mut rows = vec![format!(
        "| {offset:#06x} | **{name}** | | | {}{access} |\n",
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
        format!("| | | {bits} | {name} | {}{sign} |\n", cell(field.doc))
    }));
    rows
}

/// Text on one line, escaped for a table cell.
fn cell(text: &str) -> String {
    text.trim().replace('\n', " ").replace('|', "\\|")
}

fn rule_row(rule: &Rule) -> String {
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
    format!("| `{id}` | {severity} | {effect} | {why}{contested} | {remedy} | {ids} |\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_all_rows_or_those_of_a_name() {
        let all = registers("").unwrap();
        assert!(all.starts_with("# Registers") && all.contains("**S_POINTER**"));
        let some = registers("cna.dcomp_ctrl").unwrap();
        assert!(some.contains("**DCOMP_CTRL**") && !some.contains("**S_POINTER**"));
        assert_eq!(registers("no such"), None);
        let some = rules("t07").unwrap();
        assert!(some.contains("| `T07-") && !some.contains("| `T06-"));
        assert_eq!(rules("no such"), None);
        let rows = rules("").unwrap().matches("\n| `").count();
        assert_eq!(rows, TABLE.iter().copied().flatten().count());
    }
}
