// SPDX-License-Identifier: MIT OR Apache-2.0
//! A statement: what one word means, as the disassembly says it.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::error::AsmProblem;
use super::token::{Failed, Token, Tokens};
use crate::disasm::UNDECLARED_BITS;
use crate::field::{FieldInfo, RegisterInfo};
use crate::regs;
use crate::word::{Block, EnableMask, Word};

const END: &str = "the end of the line";
const STATEMENT: &str =
    "a register such as CNA.CBUF_CON0, `enable`, `marker`, `nop`, `unknown` or a word";

/// The word of the statement that the rest of the line is.
pub(super) fn statement(tokens: &mut Tokens<'_>) -> Result<Word, Failed> {
    let first = tokens.some(STATEMENT)?;
    let word = match first.text {
        "nop" => nop(tokens)?,
        "marker" => Word::MARKER,
        "enable" => Word::enable(mask(tokens)?),
        "unknown" => unknown(tokens)?,
        _ if first.is_name() => return write(first, tokens),
        _ => return Err(first.expected(STATEMENT)),
    };
    tokens.end(END)?;
    Ok(word)
}

/// `nop`, `nop (carries 0x5)`.
fn nop(tokens: &mut Tokens<'_>) -> Result<Word, Failed> {
    if !tokens.accept("(") {
        return Ok(Word::NOP);
    }
    tokens.demand("carries", "`carries`")?;
    let bits = number(tokens, u64::MAX)?;
    tokens.demand(")", "`)`")?;
    Ok(Word::from_bits(bits))
}

/// `unknown: target 0x0201 offset 0x4000 value 0x00000002`.
fn unknown(tokens: &mut Tokens<'_>) -> Result<Word, Failed> {
    tokens.demand(":", "`:`")?;
    tokens.demand("target", "`target`")?;
    let target = half(tokens)?;
    tokens.demand("offset", "`offset`")?;
    let offset = half(tokens)?;
    tokens.demand("value", "`value`")?;
    Ok(Word::new(target, offset, value(tokens)?))
}

/// `CNA + CORE + unknown blocks 0x80`, `nothing`, `0x0d`.
fn mask(tokens: &mut Tokens<'_>) -> Result<EnableMask, Failed> {
    const BLOCK: &str = "a block, `unknown blocks`, a number or `nothing`";
    if tokens.accept("nothing") {
        return Ok(EnableMask::empty());
    }
    let mut bits = 0;
    loop {
        let token = tokens.some(BLOCK)?;
        bits |= if token.text == "unknown" {
            tokens.demand("blocks", "`blocks`")?;
            value(tokens)?
        } else if token.is_number() {
            in_register(token.number(u64::from(u32::MAX))?)
        } else if token.is_name() {
            match block(token)?.enable() {
                // PC, which is never enabled by a program.
                mask if mask.is_empty() => return Err(token.expected(BLOCK)),
                mask => mask.bits(),
            }
        } else {
            return Err(token.expected(BLOCK));
        };
        if !tokens.accept("+") {
            return Ok(EnableMask::from_bits_retain(bits));
        }
    }
}

/// `BLOCK.REGISTER = value field=value ...`, and its other forms.
fn write(name: Token<'_>, tokens: &mut Tokens<'_>) -> Result<Word, Failed> {
    const FORM: &str = "`=`, or a field and its value";
    if !tokens.accept(".") {
        return Err(name.expected(STATEMENT));
    }
    let block = block(name)?;
    let token = tokens.some("a register's name or offset")?;
    let (offset, register) = register(block, token)?;
    let target = block.target();
    let mut fields = Fields::of(register);
    if tokens.accept("=") {
        fields.value = Some(value(tokens)?);
        if tokens.accept("(") {
            tokens.demand("not", "`not declared)`")?;
            tokens.demand("declared", "`declared)`")?;
            tokens.demand(")", "`)`")?;
        }
    } else if tokens.accept(".") {
        fields.one(tokens)?;
    } else if tokens.peek().is_none_or(|token| !token.is_name()) {
        return Err(tokens.some(FORM)?.expected(FORM));
    }
    while tokens.peek().is_some() {
        // Commas between fields may be there.
        tokens.accept(",");
        fields.one(tokens)?;
    }
    Ok(Word::new(target, offset, fields.word_value()))
}

/// The fields of a register statement, as far as they were read.
struct Fields {
    /// None where none is declared.
    register: Option<&'static RegisterInfo>,
    /// The value of the whole register, if it was given.
    value: Option<u32>,
    /// The bits that fields gave.
    bits: u32,
    /// Which bits are given.
    given: u32,
}

impl Fields {
    const fn of(register: Option<&'static RegisterInfo>) -> Self {
        Self {
            register,
            value: None,
            bits: 0,
            given: 0,
        }
    }

    fn word_value(&self) -> u32 {
        self.value.unwrap_or(self.bits)
    }

    /// Reads `field=value`.
    fn one(&mut self, tokens: &mut Tokens<'_>) -> Result<(), Failed> {
        let name = tokens.some("a field")?;
        let Some(register) = self.register.filter(|_| name.is_name()) else {
            return Err(name.expected(END));
        };
        if name.text == UNDECLARED_BITS {
            return self.undeclared(register, name, tokens);
        }
        let field = field(register, name)?;
        tokens.demand("=", "`=`")?;
        let start = tokens.peek();
        let negative = tokens.accept("-");
        let token = tokens.some("a number")?;
        let number = token.number(u64::from(u32::MAX))?;
        let number = i64::from(in_register(number)) * if negative { -1 } else { 1 };
        let column = start.map_or(token.column, |start| start.column);
        let bits = bits_of(field, number).map_err(|problem| (column, problem))?;
        if self.given & field.mask() != 0 {
            let problem = AsmProblem::FieldTwice { field: field.name };
            return Err((name.column, problem));
        }
        if let Some(value) = self.value
            && value & field.mask() != bits
        {
            let in_value = if field.signed {
                i64::from(field.extract_signed(value))
            } else {
                i64::from(field.extract(value))
            };
            let problem = AsmProblem::FieldDiffers {
                field: field.name,
                value,
                in_value,
                given: number,
            };
            return Err((column, problem));
        }
        self.given |= field.mask();
        self.bits |= bits;
        Ok(())
    }

    /// Reads the rest of `undeclared_bits=0x80000000`.
    fn undeclared(
        &mut self,
        register: &RegisterInfo,
        name: Token<'_>,
        tokens: &mut Tokens<'_>,
    ) -> Result<(), Failed> {
        tokens.demand("=", "`=`")?;
        let stray = value(tokens)?;
        let declared = register.declared_bits();
        let problem = if stray & declared != 0 {
            AsmProblem::DeclaredBits {
                register: register.name,
                bits: stray & declared,
            }
        } else if self.given & !declared != 0 {
            AsmProblem::FieldTwice {
                field: UNDECLARED_BITS,
            }
        } else if let Some(value) = self.value.filter(|value| value & !declared != stray) {
            AsmProblem::FieldDiffers {
                field: UNDECLARED_BITS,
                value,
                in_value: i64::from(value & !declared),
                given: i64::from(stray),
            }
        } else {
            self.given |= !declared;
            self.bits |= stray;
            return Ok(());
        };
        Err((name.column, problem))
    }
}

/// The bits of the register with `field` as `number` and all else 0.
fn bits_of(field: &FieldInfo, number: i64) -> Result<u32, AsmProblem> {
    let range = |min, max| crate::FieldRangeError {
        field: field.name,
        value: number,
        min,
        max,
    };
    if field.signed {
        let max = i64::from(field.max() >> 1);
        let fits = i32::try_from(number).map_err(|_| range(-max - 1, max))?;
        Ok(field.insert_signed(0, fits)?)
    } else {
        let fits = u32::try_from(number).map_err(|_| range(0, i64::from(field.max())))?;
        Ok(field.insert(0, fits)?)
    }
}

fn block(token: Token<'_>) -> Result<Block, Failed> {
    Block::ALL
        .into_iter()
        .find(|block| block.name() == token.text)
        .ok_or_else(|| {
            let name = token.text.to_string();
            (token.column, AsmProblem::UnknownBlock { name })
        })
}

/// The register of this name or offset; an offset may have none.
fn register(
    block: Block,
    token: Token<'_>,
) -> Result<(u16, Option<&'static RegisterInfo>), Failed> {
    if token.is_number() {
        let offset = token.number(u64::from(u16::MAX))?;
        let offset = u16::try_from(offset).unwrap_or(u16::MAX);
        if Block::of_offset(offset) != Some(block) {
            let problem = AsmProblem::OffsetOutside { block, offset };
            return Err((token.column, problem));
        }
        return Ok((offset, regs::lookup(offset)));
    }
    let registers = regs::of_block(block);
    if let Some(register) = registers.iter().find(|info| info.name == token.text) {
        return Ok((register.offset, Some(register)));
    }
    let problem = AsmProblem::UnknownRegister {
        block,
        name: token.text.to_string(),
        nearest: registers
            .iter()
            .map(|info| info.name)
            .filter(|name| is_similar(name, token.text))
            .collect(),
    };
    Err((token.column, problem))
}

/// Whether somebody who wrote `given` may have meant `name`: they are the same
/// but for case, or for what follows the last but one character.
fn is_similar(name: &str, given: &str) -> bool {
    let stem = |text: &str| text.len().saturating_sub(1);
    let shared = name
        .bytes()
        .zip(given.bytes())
        .take_while(|(a, b)| a.eq_ignore_ascii_case(b))
        .count();
    shared > 1 && shared >= stem(given) && name.len() <= given.len() + 2
}

fn field(register: &'static RegisterInfo, token: Token<'_>) -> Result<&'static FieldInfo, Failed> {
    register
        .fields
        .iter()
        .find(|field| field.name == token.text)
        .ok_or_else(|| {
            let problem = AsmProblem::UnknownField {
                register: register.name,
                name: token.text.to_string(),
                fields: register
                    .fields
                    .iter()
                    .map(|field| field.name)
                    .collect::<Vec<_>>(),
            };
            (token.column, problem)
        })
}

fn number(tokens: &mut Tokens<'_>, max: u64) -> Result<u64, Failed> {
    tokens.some("a number")?.number(max)
}

/// A target or offset: 16 bits.
fn half(tokens: &mut Tokens<'_>) -> Result<u16, Failed> {
    let half = number(tokens, u64::from(u16::MAX))?;
    Ok(u16::try_from(half).unwrap_or(u16::MAX))
}

/// A register's value: 32 bits.
fn value(tokens: &mut Tokens<'_>) -> Result<u32, Failed> {
    number(tokens, u64::from(u32::MAX)).map(in_register)
}

/// A number that is known to have at most 32 bits.
fn in_register(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
