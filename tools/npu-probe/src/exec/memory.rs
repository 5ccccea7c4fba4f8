// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a run: pages at the requested addresses.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;

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
}

impl MemoryRegion {
    /// One past the last IOVA.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.start) + self.bytes.len() as u64
    }
}

impl fmt::Display for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#x}..{:#x})", self.what, self.start, self.end())
    }
}

/// All memory of a run, by address.
#[derive(Debug)]
pub(crate) struct ProgramMemory {
    pub(crate) regions: BTreeMap<u32, MemoryRegion>,
    /// IOVA of the program's first word.
    pub(crate) program: u32,
    /// The files to write afterwards.
    saved: Vec<OutputRegion>,
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
            regions: BTreeMap::new(),
            program: 0,
            saved: Vec::new(),
        };
        for input in inputs {
            memory.add_file(input)?;
        }
        for output in outputs {
            memory.add_output(output)?;
        }
        memory.saved.extend_from_slice(outputs);
        memory.add_program(words, at)?;
        Ok(memory)
    }

    fn add_file(&mut self, input: &BufferFile) -> anyhow::Result<()> {
        let what = input.file.display().to_string();
        let mut bytes = Vec::new();
        File::open(&input.file)
            .and_then(|file| file.take(REGION_MAX + 1).read_to_end(&mut bytes))
            .with_context(|| format!("cannot read {what}"))?;
        let len = bytes.len() as u64;
        self.add(what, input.iova, bytes, len)?;
        if input.write_back {
            self.saved.push(OutputRegion {
                iova: input.iova,
                // A region has fewer than 2^31 bytes.
                len: len as u32,
                file: input.file.clone(),
            });
        }
        Ok(())
    }

    fn add_output(&mut self, output: &OutputRegion) -> anyhow::Result<()> {
        let what = format!("the output for {}", output.file.display());
        let start = u64::from(output.iova);
        let end = start + u64::from(output.len);
        if let Some(region) = self.touching(start, end) {
            ensure!(
                u64::from(region.start) <= start && end <= region.end(),
                "{what} is partly in {region} and partly outside; use a separate option for each \
                 part"
            );
            return Ok(());
        }
        let first = output.iova - output.iova % PAGE_BYTES as u32;
        self.add(what, first, Vec::new(), end - u64::from(first))
    }

    fn add_program(&mut self, words: &[Word], at: Option<u32>) -> anyhow::Result<()> {
        ensure!(
            words.len() <= Program::WORDS_MAX,
            "the program has {} words, and a kick fetches at most {}",
            words.len(),
            Program::WORDS_MAX
        );
        let bytes = program::to_binary(words);
        let len = (bytes.len() as u64).next_multiple_of(PAGE);
        self.program = match at {
            Some(at) => at,
            None => self.highest_free(len).context(
                "no free address range for the program; move the other buffers, or use --at",
            )?,
        };
        self.add("the program".to_owned(), self.program, bytes, len)
    }

    /// The address of the highest `len` free bytes.
    fn highest_free(&self, len: u64) -> Option<u32> {
        let mut end = Iova::END;
        for region in self.regions.values().rev() {
            if end - region.end() >= len {
                break;
            }
            end = u64::from(region.start);
        }
        u32::try_from(end.checked_sub(len)?).ok()
    }

    /// A region with a byte of these addresses.
    fn touching(&self, start: u64, end: u64) -> Option<&MemoryRegion> {
        let mut regions = self.regions.values();
        regions.find(|region| start < region.end() && u64::from(region.start) < end)
    }

    /// Adds a region of `len` bytes, padded to whole pages: `bytes`, then zeros.
    fn add(
        &mut self,
        what: String,
        start: u32,
        mut bytes: Vec<u8>,
        len: u64,
    ) -> anyhow::Result<()> {
        let len = len.next_multiple_of(PAGE);
        let end = u64::from(start) + len;
        ensure!(
            u64::from(start).is_multiple_of(PAGE),
            "the address of {what}, {start:#x}, is not a multiple of {PAGE:#x}; the IOMMU maps \
             whole pages"
        );
        ensure!(len > 0, "{what} is empty");
        ensure!(
            len <= REGION_MAX,
            "{what} has more than {REGION_MAX:#x} bytes, the limit of a buffer object; split it"
        );
        ensure!(
            end <= Iova::END,
            "{what} would end at {end:#x}, beyond the 4 GiB that the NPU can address"
        );
        let more = usize::try_from(len)? - bytes.len();
        bytes
            .try_reserve_exact(more)
            .with_context(|| format!("no memory for {what}, {len:#x} bytes"))?;
        bytes.resize(bytes.len() + more, 0);
        let region = MemoryRegion { what, start, bytes };
        if let Some(other) = self.touching(start.into(), end) {
            bail!("{other} and {region} overlap; pages are {PAGE:#x} bytes");
        }
        self.regions.insert(start, region);
        Ok(())
    }

    /// The bytes from `iova` to the end of its region.
    pub(crate) fn at_mut(&mut self, iova: u64) -> Option<&mut [u8]> {
        let iova = u32::try_from(iova).ok()?;
        let (start, region) = self.regions.range_mut(..=iova).next_back()?;
        let bytes = region.bytes.get_mut((iova - start) as usize..)?;
        (!bytes.is_empty()).then_some(bytes)
    }

    /// Writes the requested files; stops at the first error.
    pub(crate) fn save(&self) -> Result<(), Failure> {
        for saved in &self.saved {
            // `new` made or found a region for each.
            let region = self.regions.range(..=saved.iova).next_back();
            let bytes = region.and_then(|(start, region)| {
                let offset = (saved.iova - start) as usize;
                region.bytes.get(offset..offset + saved.len as usize)
            });
            let bytes = bytes.unwrap_or_default();
            fs::write(&saved.file, bytes).map_err(Failure::writing(&saved.file))?;
        }
        Ok(())
    }
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
            .values()
            .map(|r| (r.start, r.bytes.len()))
            .collect();
        assert_eq!(regions, [(0x1000, 0x1000), (0xffff_f000, 0x1000)]);
    }

    #[test]
    fn programs_have_a_limit() {
        let most = Program::WORDS_MAX;
        assert!(with(&[], most).is_ok());
        let error = with(&[], most + 1).unwrap_err().to_string();
        assert!(error.contains(&format!("a kick fetches at most {most}")));
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
