// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a run: pages at the requested addresses.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;

use rknpu_regcmd::{Iova, Program, Word};
use rocket_uapi::PAGE_BYTES;

use crate::flags::{BufferFile, OutputRegion};
use crate::program;

/// A page of the IOMMU, bytes.
const PAGE: u64 = PAGE_BYTES as u64;
/// Most bytes of a region: a buffer object has fewer than 2^31.
const REGION_MAX: u64 = (1 << 31) - PAGE;

/// Why the requested memory is not possible.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error(
        "the address of {what}, {iova:#x}, is not a multiple of {PAGE:#x}; the IOMMU maps whole \
         pages"
    )]
    Misaligned { what: String, iova: u32 },
    #[error("{what} is empty")]
    Empty { what: String },
    #[error("{what} has more than {REGION_MAX:#x} bytes, the limit of a buffer object; split it")]
    TooLarge { what: String },
    #[error("{what} would end at {end:#x}, beyond the 4 GiB that the NPU can address")]
    BeyondEnd { what: String, end: u64 },
    #[error(
        "{first} ({first_range}) and {second} ({second_range}) overlap; pages are {PAGE:#x} bytes"
    )]
    Overlap {
        first: String,
        first_range: String,
        second: String,
        second_range: String,
    },
    #[error(
        "{what} is partly in {other} ({range}) and partly outside; use a separate option for \
         each part"
    )]
    PartlyOutside {
        what: String,
        other: String,
        range: String,
    },
    #[error(
        "the program has {words} words, and a kick fetches at most {}",
        Program::WORDS_MAX
    )]
    ProgramTooLong { words: usize },
    #[error("no free address range for the program; move the other buffers, or use --at")]
    NoRoom,
    #[error("cannot read {what}: {source}")]
    Read { what: String, source: io::Error },
    #[error("no memory for {what}, {len:#x} bytes")]
    NoMemory { what: String, len: u64 },
}

/// Pages from `start` on.
#[derive(Debug)]
pub(crate) struct MemoryRegion {
    /// Name of the region in messages.
    pub(crate) what: String,
    /// First IOVA.
    pub(crate) start: u32,
    /// Content of the region, whole pages.
    pub(crate) bytes: Vec<u8>,
    /// The file that gets this many first bytes afterwards.
    pub(crate) write_back: Option<(PathBuf, usize)>,
}

impl MemoryRegion {
    /// One past the last IOVA.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.start) + self.bytes.len() as u64
    }

    fn range(&self) -> String {
        format!("{:#x}..{:#x}", self.start, self.end())
    }

    /// The bytes from `iova` to the end of the region.
    fn tail(&self, iova: u64) -> Option<&[u8]> {
        let offset = iova.checked_sub(u64::from(self.start))?;
        self.bytes.get(usize::try_from(offset).ok()?..)
    }

    /// Likewise, to be written.
    fn tail_mut(&mut self, iova: u64) -> Option<&mut [u8]> {
        let offset = iova.checked_sub(u64::from(self.start))?;
        self.bytes.get_mut(usize::try_from(offset).ok()?..)
    }
}

/// All memory of a run, by address.
#[derive(Debug)]
pub(crate) struct ProgramMemory {
    pub(crate) regions: Vec<MemoryRegion>,
    /// IOVA of the program's first word.
    pub(crate) program: u32,
}

impl ProgramMemory {
    /// The files' contents, zeroes for outputs elsewhere, the program.
    pub(crate) fn new(
        inputs: &[BufferFile],
        outputs: &[OutputRegion],
        words: &[Word],
        at: Option<u32>,
    ) -> Result<Self, MemoryError> {
        let mut memory = Self {
            regions: Vec::new(),
            program: 0,
        };
        for input in inputs {
            memory.add_file(input)?;
        }
        for output in outputs {
            memory.add_output(output)?;
        }
        memory.add_program(words, at)?;
        Ok(memory)
    }

    fn add_file(&mut self, input: &BufferFile) -> Result<(), MemoryError> {
        let what = input.file.display().to_string();
        aligned(&what, input.iova)?;
        let mut bytes = Vec::new();
        let read = File::open(&input.file)
            .and_then(|file| file.take(REGION_MAX + 1).read_to_end(&mut bytes));
        if let Err(source) = read {
            return Err(MemoryError::Read { what, source });
        }
        let write_back = input.write_back.then(|| (input.file.clone(), bytes.len()));
        self.add(what, input.iova, bytes, write_back)
    }

    fn add_output(&mut self, output: &OutputRegion) -> Result<(), MemoryError> {
        let what = format!("the output for {}", output.file.display());
        let (start, end) = (
            u64::from(output.iova),
            u64::from(output.iova) + u64::from(output.len),
        );
        if end > Iova::END {
            return Err(MemoryError::BeyondEnd { what, end });
        }
        let touches =
            |region: &&MemoryRegion| start < region.end() && u64::from(region.start) < end;
        if let Some(region) = self.regions.iter().find(touches) {
            if u64::from(region.start) <= start && end <= region.end() {
                return Ok(());
            }
            let (other, range) = (region.what.clone(), region.range());
            return Err(MemoryError::PartlyOutside { what, other, range });
        }
        let first = output.iova - output.iova % PAGE_BYTES as u32;
        let bytes = zeroes(&what, end - u64::from(first))?;
        self.add(what, first, bytes, None)
    }

    fn add_program(&mut self, words: &[Word], at: Option<u32>) -> Result<(), MemoryError> {
        if words.len() > Program::WORDS_MAX {
            return Err(MemoryError::ProgramTooLong { words: words.len() });
        }
        let what = "the program".to_owned();
        let bytes = program::to_binary(words);
        let len = (bytes.len() as u64).next_multiple_of(PAGE);
        self.program = match at {
            Some(at) => at,
            None => self.highest_free(len).ok_or(MemoryError::NoRoom)?,
        };
        aligned(&what, self.program)?;
        self.add(what, self.program, bytes, None)
    }

    /// The highest `len` bytes that no region has.
    fn highest_free(&self, len: u64) -> Option<u32> {
        let mut end = Iova::END;
        for region in self.regions.iter().rev() {
            if end - region.end() >= len {
                break;
            }
            end = u64::from(region.start);
        }
        u32::try_from(end.checked_sub(len)?).ok()
    }

    /// Adds `bytes`, filled up to whole pages, in its place among the others.
    fn add(
        &mut self,
        what: String,
        start: u32,
        mut bytes: Vec<u8>,
        write_back: Option<(PathBuf, usize)>,
    ) -> Result<(), MemoryError> {
        let len = (bytes.len() as u64).next_multiple_of(PAGE);
        let end = u64::from(start) + len;
        if len == 0 {
            return Err(MemoryError::Empty { what });
        }
        if len > REGION_MAX {
            return Err(MemoryError::TooLarge { what });
        }
        if end > Iova::END {
            return Err(MemoryError::BeyondEnd { what, end });
        }
        grow(&what, &mut bytes, len)?;
        let region = MemoryRegion {
            what,
            start,
            bytes,
            write_back,
        };
        let place = self.regions.partition_point(|other| other.start < start);
        let before = place
            .checked_sub(1)
            .and_then(|index| self.regions.get(index));
        let overlap = [before, self.regions.get(place)]
            .into_iter()
            .flatten()
            .find(|other| u64::from(other.start) < end && u64::from(start) < other.end());
        if let Some(other) = overlap {
            return Err(MemoryError::Overlap {
                first: other.what.clone(),
                first_range: other.range(),
                second: region.what.clone(),
                second_range: region.range(),
            });
        }
        self.regions.insert(place, region);
        Ok(())
    }

    /// The bytes from `iova` to the end of the region that has it.
    fn at(&self, iova: u64) -> Option<&[u8]> {
        self.regions.get(self.index_of(iova)?)?.tail(iova)
    }

    /// Likewise, to be written.
    pub(crate) fn at_mut(&mut self, iova: u64) -> Option<&mut [u8]> {
        let index = self.index_of(iova)?;
        self.regions.get_mut(index)?.tail_mut(iova)
    }

    /// The region that has `iova`.
    fn index_of(&self, iova: u64) -> Option<usize> {
        let after = self
            .regions
            .partition_point(|region| u64::from(region.start) <= iova);
        let index = after.checked_sub(1)?;
        (iova < self.regions.get(index)?.end()).then_some(index)
    }

    /// Writes the requested files; the error is the first failure's.
    pub(crate) fn save(&self, outputs: &[OutputRegion]) -> Result<(), (PathBuf, io::Error)> {
        for region in &self.regions {
            if let Some((file, len)) = &region.write_back {
                let bytes = region.bytes.get(..*len).unwrap_or_default();
                fs::write(file, bytes).map_err(|error| (file.clone(), error))?;
            }
        }
        for output in outputs {
            let iova = u64::from(output.iova);
            // Such a region was made, or found, for each output.
            let bytes = self
                .at(iova)
                .and_then(|bytes| bytes.get(..output.len as usize));
            let bytes = bytes.unwrap_or_default();
            fs::write(&output.file, bytes).map_err(|error| (output.file.clone(), error))?;
        }
        Ok(())
    }
}

fn aligned(what: &str, iova: u32) -> Result<(), MemoryError> {
    if u64::from(iova).is_multiple_of(PAGE) {
        return Ok(());
    }
    let what = what.to_owned();
    Err(MemoryError::Misaligned { what, iova })
}

fn zeroes(what: &str, len: u64) -> Result<Vec<u8>, MemoryError> {
    if len > REGION_MAX {
        let what = what.to_owned();
        return Err(MemoryError::TooLarge { what });
    }
    let mut bytes = Vec::new();
    grow(what, &mut bytes, len)?;
    Ok(bytes)
}

/// Fills up to `len` bytes; an error where the host has no memory for that.
fn grow(what: &str, bytes: &mut Vec<u8>, len: u64) -> Result<(), MemoryError> {
    let no_memory = || MemoryError::NoMemory {
        what: what.to_owned(),
        len,
    };
    let len = usize::try_from(len).map_err(|_| no_memory())?;
    bytes
        .try_reserve_exact(len - bytes.len())
        .map_err(|_| no_memory())?;
    bytes.resize(len, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(iova: u32, len: u32) -> OutputRegion {
        let file = format!("out-{iova:x}").into();
        OutputRegion { iova, len, file }
    }

    fn with(outputs: &[OutputRegion], words: usize) -> Result<ProgramMemory, MemoryError> {
        ProgramMemory::new(&[], outputs, &vec![Word::NOP; words], None)
    }

    #[test]
    fn the_program_goes_to_the_highest_free_pages() {
        let program = |outputs: &[OutputRegion], words| with(outputs, words).unwrap().program;
        assert_eq!(program(&[], 1), 0xffff_f000);
        assert_eq!(program(&[], 513), 0xffff_e000);
        let top = output(0xffff_f000, 1);
        assert_eq!(program(&[output(0, 1), top.clone()], 1), 0xffff_e000);
        // Not into a gap that is too small.
        let below = output(0xffff_d000, 1);
        assert_eq!(program(&[below.clone(), top.clone()], 1), 0xffff_e000);
        assert_eq!(program(&[below, top], 513), 0xffff_b000);
    }

    #[test]
    fn outputs_take_whole_pages_and_share_them() {
        let memory = with(&[output(0x1010, 16), output(0x1800, 0x800)], 1).unwrap();
        let regions: Vec<_> = memory
            .regions
            .iter()
            .map(|r| (r.start, r.bytes.len()))
            .collect();
        assert_eq!(regions, [(0x1000, 0x1000), (0xffff_f000, 0x1000)]);
        let error = with(&[output(0x1010, 16), output(0x1fff, 2)], 1).unwrap_err();
        assert!(
            matches!(error, MemoryError::PartlyOutside { .. }),
            "{error}"
        );
    }

    #[test]
    fn limits() {
        let error = with(&[], Program::WORDS_MAX + 1).unwrap_err();
        assert!(
            matches!(error, MemoryError::ProgramTooLong { .. }),
            "{error}"
        );
        let error = with(&[output(0, u32::MAX)], 1).unwrap_err();
        assert!(matches!(error, MemoryError::TooLarge { .. }), "{error}");
        let error = with(&[output(u32::MAX, 2)], 1).unwrap_err();
        assert!(matches!(error, MemoryError::BeyondEnd { .. }), "{error}");
    }

    #[test]
    fn addresses_lead_to_their_bytes() {
        let mut memory = with(&[output(0x1000, 1), output(0x3000, 0x1001)], 1).unwrap();
        let lengths = [
            0xfff,
            0x1000,
            0x1fff,
            0x2000,
            0x3001,
            0x4fff,
            0x5000,
            u64::MAX,
        ]
        .map(|iova| memory.at_mut(iova).map(|bytes| bytes.len()));
        let expected = [
            None,
            Some(0x1000),
            Some(1),
            None,
            Some(0x1fff),
            Some(1),
            None,
            None,
        ];
        assert_eq!(lengths, expected);
    }
}
