// SPDX-License-Identifier: MIT OR Apache-2.0
//! Register statements: `BLOCK.REGISTER = value field=value ...`, and other forms.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::token::{LineError, Token, Tokens};
use crate::disasm::UNDECLARED_BITS;
use crate::field::RegisterInfo;
use crate::regs;
use crate::word::{Block, Word};

/// Reads the register statement after `name.`, and returns its word.
pub(super) fn write(name: Token<'_>, tokens: &mut Tokens<'_>) -> Result<Word, LineError> {
    const FORM: &str = "`=`, or a field and its value";
    let block = block(name)?;
    let token = tokens.some("a register's name or offset")?;
    let (offset, register) = register(block, token)?;
    let mut fields = Fields {
        register,
        value: None,
        bits: 0,
        given: 0,
    };
    if tokens.accept("=") {
        fields.value = Some(tokens.value()?);
        if tokens.accept("(") {
            tokens.demand("not")?;
            tokens.demand("declared")?;
            tokens.demand(")")?;
        }
    } else if tokens.accept(".") {
        fields.read(tokens)?;
    } else if tokens.peek().is_none_or(|token| !token.is_name()) {
        return Err(tokens.some(FORM)?.expected(FORM));
    }
    while tokens.peek().is_some() {
        // Commas between fields are optional.
        tokens.accept(",");
        fields.read(tokens)?;
    }
    let value = fields.value.unwrap_or(fields.bits);
    Ok(Word::new(block.target(), offset, value))
}

/// The fields of a register statement, as far as they were read.
struct Fields {
    /// `None` if no register is declared at the offset.
    register: Option<&'static RegisterInfo>,
    /// The value of the whole register, if it was given.
    value: Option<u32>,
    /// The values of the fields that were given, in place.
    bits: u32,
    /// The bits of the fields that were given.
    given: u32,
}

impl Fields {
    /// Reads `field=value`, or `undeclared_bits=0x80000000`.
    fn read(&mut self, tokens: &mut Tokens<'_>) -> Result<(), LineError> {
        let name = tokens.some("a field")?;
        let Some(register) = self.register.filter(|_| name.is_name()) else {
            return Err(name.expected("the end of the line"));
        };
        if name.text == UNDECLARED_BITS {
            tokens.demand("=")?;
            let (stray, declared) = (tokens.value()?, register.declared_bits());
            if stray & declared != 0 {
                return Err(name.wrong(format!(
                    "the bits {:#x} of {} are declared: use the fields' names",
                    stray & declared,
                    register.name
                )));
            }
            let in_value = |value| i64::from(value & !declared);
            return self.give(
                (name, name.column),
                !declared,
                stray,
                stray.into(),
                in_value,
            );
        }
        let found = register.fields.iter().find(|field| field.name == name.text);
        let Some(field) = found else {
            let names = names(register.fields.iter().map(|field| field.name));
            return Err(name.wrong(format!(
                "{} has no field `{}`; its fields are {names}",
                register.name, name.text
            )));
        };
        tokens.demand("=")?;
        let column = tokens.peek().map(|start| start.column);
        let negative = tokens.accept("-");
        let token = tokens.some("a number")?;
        let number = token.number(u32::MAX.into())? as i64 * if negative { -1 } else { 1 };
        let column = column.unwrap_or(token.column);
        let bits = field
            .insert(0, number)
            .map_err(|error| (column, error.to_string()))?;
        let in_value = |value| field.get(value);
        self.give((name, column), field.mask(), bits, number, in_value)
    }

    /// Notes that the bits of `mask` are `bits`. The text has `number` at the column,
    /// for the field `name`. `in_value` extracts the field from a value.
    fn give(
        &mut self,
        (name, column): (Token<'_>, usize),
        mask: u32,
        bits: u32,
        number: i64,
        in_value: impl Fn(u32) -> i64,
    ) -> Result<(), LineError> {
        let field = name.text;
        if self.given & mask != 0 {
            return Err(name.wrong(format!("the field {field} is given twice")));
        }
        if let Some(value) = self.value.filter(|value| value & mask != bits) {
            let problem = format!(
                "the value {value:#010x} has {field}={}, not {number}: correct one, or leave out the value",
                in_value(value)
            );
            return Err((column, problem));
        }
        self.given |= mask;
        self.bits |= bits;
        Ok(())
    }
}

pub(super) fn block(token: Token<'_>) -> Result<Block, LineError> {
    let found = Block::ALL
        .into_iter()
        .find(|block| block.name() == token.text);
    found.ok_or_else(|| {
        let all = names(Block::ALL.iter().map(|block| block.name()));
        token.wrong(format!(
            "there is no block `{}`; the blocks are {all}",
            token.text
        ))
    })
}

/// The offset and the register of this name or offset; an offset may have no
/// register.
fn register(
    block: Block,
    token: Token<'_>,
) -> Result<(u16, Option<&'static RegisterInfo>), LineError> {
    let first = block.page() << 12;
    if token.is_number() {
        let offset = token.number(u16::MAX.into())? as u16;
        if Block::of_offset(offset) != Some(block) {
            return Err(token.wrong(format!(
                "the offset {offset:#06x} is not in the page of {block}, {first:#06x} to {:#06x}",
                first | 0xfff
            )));
        }
        return Ok((offset, regs::lookup(offset)));
    }
    let registers = regs::of_block(block);
    if let Some(register) = registers.iter().find(|info| info.name == token.text) {
        return Ok((register.offset, Some(register)));
    }
    let mut similar = names(
        registers
            .iter()
            .map(|info| info.name)
            .filter(|name| is_similar(name, token.text)),
    );
    if !similar.is_empty() {
        similar = format!(" (similar: {similar})");
    }
    Err(token.wrong(format!(
        "{block} has no register `{}`{similar}; an offset such as {block}.{first:#06x} needs no name",
        token.text
    )))
}

/// Whether `given` may be a misspelt `name`: it agrees, in any case, up to its last
/// character, and `name` is at most two characters longer.
fn is_similar(name: &str, given: &str) -> bool {
    let stem = |text: &str| text.len().saturating_sub(1);
    let shared = name
        .bytes()
        .zip(given.bytes())
        .take_while(|(a, b)| a.eq_ignore_ascii_case(b))
        .count();
    shared > 1 && shared >= stem(given) && name.len() <= given.len() + 2
}

fn names(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
