// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a run: pages at the requested addresses.

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use rknpu_regcmd::{Iova, Program, Word};
use rocket_uapi::PAGE_BYTES;

use super::ranges::{BufferFile, OutputRegion};
use crate::exit::Failure;
use crate::program;

/// A page of the IOMMU, bytes.
const PAGE: u64 = PAGE_BYTES as u64;
/// Most bytes of a region: a buffer object has fewer than 2^31.
const REGION_MAX: u64 = (1 << 31) - PAGE;

/// A range of pages from `start` on.
#[derive(Debug)]
pub(crate) struct MemoryRegion {
    /// Name of the region in messages.
    pub(crate) what: String,
    /// First IOVA.
    pub(crate) start: u32,
    /// Content of the region, in whole pages.
    pub(crate) bytes: Vec<u8>,
    /// A file to write afterwards, and the number of bytes from the start to
    /// write.
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
}

/// All memory of a run, sorted by address.
#[derive(Debug)]
pub(crate) struct ProgramMemory {
    pub(crate) regions: Vec<MemoryRegion>,
    /// IOVA of the program's first word.
    pub(crate) program: u32,
}

impl ProgramMemory {
    /// Memory with the files' contents, zeros for other outputs, and the
    /// program.
    pub(crate) fn new(
        inputs: &[BufferFile],
        outputs: &[OutputRegion],
        words: &[Word],
        at: Option<u32>,
    ) -> anyhow::Result<Self> {
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

    fn add_file(&mut self, input: &BufferFile) -> anyhow::Result<()> {
        let what = input.file.display().to_string();
        aligned(&what, input.iova)?;
        let mut bytes = Vec::new();
        File::open(&input.file)
            .and_then(|file| file.take(REGION_MAX + 1).read_to_end(&mut bytes))
            .with_context(|| format!("cannot read {what}"))?;
        let write_back = input.write_back.then(|| (input.file.clone(), bytes.len()));
        self.add(what, input.iova, bytes, write_back)
    }

    fn add_output(&mut self, output: &OutputRegion) -> anyhow::Result<()> {
        let what = format!("the output for {}", output.file.display());
        let start = u64::from(output.iova);
        let end = start + u64::from(output.len);
        within_addresses(&what, end)?;
        let touches =
            |region: &&MemoryRegion| start < region.end() && u64::from(region.start) < end;
        if let Some(region) = self.regions.iter().find(touches) {
            if u64::from(region.start) <= start && end <= region.end() {
                return Ok(());
            }
            bail!(
                "{what} is partly in {} ({}) and partly outside; use a separate option for each \
                 part",
                region.what,
                region.range()
            );
        }
        let first = output.iova - output.iova % PAGE_BYTES as u32;
        let len = end - u64::from(first);
        check_size(&what, len)?;
        let mut bytes = Vec::new();
        grow(&what, &mut bytes, len)?;
        self.add(what, first, bytes, None)
    }

    fn add_program(&mut self, words: &[Word], at: Option<u32>) -> anyhow::Result<()> {
        ensure!(
            words.len() <= Program::WORDS_MAX,
            "the program has {} words, and a kick fetches at most {}",
            words.len(),
            Program::WORDS_MAX
        );
        let what = "the program".to_owned();
        let bytes = program::to_binary(words);
        let len = (bytes.len() as u64).next_multiple_of(PAGE);
        self.program = match at {
            Some(at) => at,
            None => self.highest_free(len).context(
                "no free address range for the program; move the other buffers, or use --at",
            )?,
        };
        aligned(&what, self.program)?;
        self.add(what, self.program, bytes, None)
    }

    /// The address of the highest `len` free bytes.
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

    /// Adds `bytes`, padded to whole pages, sorted by address.
    fn add(
        &mut self,
        what: String,
        start: u32,
        mut bytes: Vec<u8>,
        write_back: Option<(PathBuf, usize)>,
    ) -> anyhow::Result<()> {
        let len = (bytes.len() as u64).next_multiple_of(PAGE);
        let end = u64::from(start) + len;
        ensure!(len > 0, "{what} is empty");
        check_size(&what, len)?;
        within_addresses(&what, end)?;
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
            bail!(
                "{} ({}) and {} ({}) overlap; pages are {PAGE:#x} bytes",
                other.what,
                other.range(),
                region.what,
                region.range()
            );
        }
        self.regions.insert(place, region);
        Ok(())
    }

    /// The region that contains `iova`, and the offset of `iova` in it.
    fn find(&self, iova: u64) -> Option<(usize, usize)> {
        let starts_before = |region: &MemoryRegion| u64::from(region.start) <= iova;
        let index = self.regions.partition_point(starts_before).checked_sub(1)?;
        let region = self.regions.get(index)?;
        let offset = usize::try_from(iova - u64::from(region.start)).ok()?;
        (iova < region.end()).then_some((index, offset))
    }

    /// The bytes from `iova` to the end of its region.
    pub(crate) fn at_mut(&mut self, iova: u64) -> Option<&mut [u8]> {
        let (index, offset) = self.find(iova)?;
        self.regions.get_mut(index)?.bytes.get_mut(offset..)
    }

    /// Writes the requested files; stops at the first error.
    pub(crate) fn save(&self, outputs: &[OutputRegion]) -> Result<(), Failure> {
        for region in &self.regions {
            if let Some((file, len)) = &region.write_back {
                let bytes = region.bytes.get(..*len).unwrap_or_default();
                fs::write(file, bytes).map_err(Failure::writing(file))?;
            }
        }
        for output in outputs {
            let iova = u64::from(output.iova);
            // `new` made or found a region for each output.
            let bytes = self.find(iova).and_then(|(index, offset)| {
                let region = self.regions.get(index)?;
                region.bytes.get(offset..offset + output.len as usize)
            });
            let bytes = bytes.unwrap_or_default();
            fs::write(&output.file, bytes).map_err(Failure::writing(&output.file))?;
        }
        Ok(())
    }
}

fn aligned(what: &str, iova: u32) -> anyhow::Result<()> {
    ensure!(
        u64::from(iova).is_multiple_of(PAGE),
        "the address of {what}, {iova:#x}, is not a multiple of {PAGE:#x}; the IOMMU maps whole \
         pages"
    );
    Ok(())
}

fn check_size(what: &str, len: u64) -> anyhow::Result<()> {
    ensure!(
        len <= REGION_MAX,
        "{what} has more than {REGION_MAX:#x} bytes, the limit of a buffer object; split it"
    );
    Ok(())
}

fn within_addresses(what: &str, end: u64) -> anyhow::Result<()> {
    ensure!(
        end <= Iova::END,
        "{what} would end at {end:#x}, beyond the 4 GiB that the NPU can address"
    );
    Ok(())
}

/// Pads with zeros to `len` bytes; fails if the host has no memory for them.
fn grow(what: &str, bytes: &mut Vec<u8>, len: u64) -> anyhow::Result<()> {
    let more = usize::try_from(len)? - bytes.len();
    bytes
        .try_reserve_exact(more)
        .with_context(|| format!("no memory for {what}, {len:#x} bytes"))?;
    bytes.resize(bytes.len() + more, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(iova: u32, len: u32) -> OutputRegion {
        let file = format!("out-{iova:x}").into();
        OutputRegion { iova, len, file }
    }

    fn with(outputs: &[OutputRegion], words: usize) -> anyhow::Result<ProgramMemory> {
        ProgramMemory::new(&[], outputs, &vec![Word::NOP; words], None)
    }

    fn error(outputs: &[OutputRegion], words: usize) -> String {
        with(outputs, words).unwrap_err().to_string()
    }

    #[test]
    fn the_program_goes_to_the_highest_free_pages() {
        let program = |outputs: &[OutputRegion], words| with(outputs, words).unwrap().program;
        assert_eq!(program(&[], 1), 0xffff_f000);
        assert_eq!(program(&[], 513), 0xffff_e000);
        let top = output(0xffff_f000, 1);
        assert_eq!(program(&[output(0, 1), top.clone()], 1), 0xffff_e000);
        // The program does not fit the gap.
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
        let outputs = [output(0x1010, 16), output(0x1fff, 2)];
        assert!(error(&outputs, 1).contains("is partly in"));
    }

    #[test]
    fn limits() {
        assert!(with(&[], Program::WORDS_MAX).is_ok());
        let most = Program::WORDS_MAX;
        assert_eq!(
            error(&[], most + 1),
            format!(
                "the program has {} words, and a kick fetches at most {most}",
                most + 1
            )
        );
        assert!(error(&[output(0, u32::MAX)], 1).contains("the limit of a buffer object"));
        assert!(error(&[output(u32::MAX, 2)], 1).contains("beyond the 4 GiB"));
    }

    #[test]
    fn addresses_lead_to_their_bytes() {
        let mut memory = with(&[output(0x1000, 1), output(0x3000, 0x1001)], 1).unwrap();
        for (iova, length) in [
            (0xfff, None),
            (0x1000, Some(0x1000)),
            (0x1fff, Some(1)),
            (0x2000, None),
            (0x3001, Some(0x1fff)),
            (0x4fff, Some(1)),
            (0x5000, None),
            (u64::MAX, None),
        ] {
            assert_eq!(memory.at_mut(iova).map(|bytes| bytes.len()), length);
        }
    }
}
