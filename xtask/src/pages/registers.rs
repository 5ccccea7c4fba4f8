// SPDX-License-Identifier: MIT OR Apache-2.0
//! The register table as a page: docs/registers.md.

use std::fmt::{self, Write};

use rknpu_regcmd::{Block, FieldInfo, RegisterAccess, RegisterInfo, regs};

const HEAD: &str = "\
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

/// All registers with their fields, as Markdown.
pub(crate) fn markdown() -> String {
    let mut page = String::from(HEAD);
    // Writing to a string cannot fail.
    let _ = Block::ALL
        .into_iter()
        .try_for_each(|block| write_block(&mut page, block));
    page
}

fn write_block(page: &mut String, block: Block) -> fmt::Result {
    writeln!(page, "\n## {block}, target {:#06x}\n", block.target())?;
    writeln!(page, "| Offset | Register | Bits | Field | Meaning |")?;
    writeln!(page, "|---|---|---|---|---|")?;
    for register in regs::of_block(block) {
        write_register(page, register)?;
    }
    Ok(())
}

fn write_register(page: &mut String, register: &RegisterInfo) -> fmt::Result {
    let RegisterInfo { name, offset, .. } = register;
    let access = match register.access {
        RegisterAccess::Program if register.is_address => " *Address.*",
        RegisterAccess::Program => "",
        RegisterAccess::Driver => " *Not written by programs.*",
        RegisterAccess::ReadOnly => " *Read only.*",
    };
    let doc = cell(register.doc);
    writeln!(page, "| {offset:#06x} | **{name}** | | | {doc}{access} |")?;
    for field in register.fields {
        let FieldInfo { name, lsb, msb, .. } = field;
        let sign = if field.signed { " Signed." } else { "" };
        let doc = cell(field.doc);
        if lsb == msb {
            writeln!(page, "| | | {lsb} | {name} | {doc}{sign} |")?;
        } else {
            writeln!(page, "| | | {msb}..{lsb} | {name} | {doc}{sign} |")?;
        }
    }
    Ok(())
}

/// Text that stays within a cell of a table.
fn cell(text: &str) -> String {
    text.trim().replace('\n', " ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_register_and_field_has_a_row() {
        let page = markdown();
        let rows = page.lines().filter(|line| line.starts_with("| ")).count();
        let fields: usize = regs::all().map(|register| register.fields.len()).sum();
        // One line of column names for each block.
        assert_eq!(rows, regs::all().count() + fields + Block::ALL.len());
        for line in page.lines().filter(|line| line.starts_with('|')) {
            assert_eq!(line.replace("\\|", "").matches('|').count(), 6, "{line}");
        }
    }
}
