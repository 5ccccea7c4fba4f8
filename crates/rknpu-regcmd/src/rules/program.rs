// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows about programs: words, addresses and links, the S_POINTER of blocks, and the
//! state of the core at a kick.

use super::Rule;
use crate::regs::{cna, dpu, pc};
use crate::task::FLYING;
use crate::word::{Block, EnableMask};

/// The rule that a task of the blocks in `enable` breaks if it starts `block` without
/// writing its S_POINTER. Earlier tasks of the same chain started `chained`. For the
/// first task the kernel writes that of CNA and CORE.
#[must_use]
pub fn without_pointer(block: Block, enable: EnableMask, chained: EnableMask) -> &'static Rule {
    let again = chained.contains(block.enable());
    match block {
        Block::Cna | Block::Core if again => &CORE_POINTER_IN_CHAIN,
        _ if again => &NO_POINTER_IN_CHAIN,
        _ if enable == FLYING => &NO_POINTER_FLYING,
        _ => &NO_POINTER,
    }
}

rules! { pub,
    /// A program without an enable word.
    NO_ENABLE "T05-no-enable-word" ["E-program-end"] [pc::BaseAddress, pc::RegisterAmounts] Error Hang:
        "no enable word is among the words that are fetched: nothing starts, and the core hangs (stated)",
        "end the program with marker and enable word, and count all words";
    /// A word whose target is unknown or contradicts its offset.
    UNKNOWN_WORD "T05-unknown-word" ["E-word", "E-noop-target"] [] Error Note:
        "the word has a target that no source describes, or a target of another block than its offset; the model ignores it",
        "make target and offset name the same block";
    /// A block that starts without an S_POINTER.
    NO_POINTER "T05-no-pointer" ["E-registers-persist"] [] Error Hang:
        "the program does not select which of the block's two register groups runs: the core hangs (inferred)",
        "write 0xe to the block's S_POINTER before its other registers";
    /// A flying task without S_POINTER, which is known to work.
    NO_POINTER_FLYING "T05-no-pointer-flying" ["E-lone-pointer"] [] Warning Note:
        "a flying task without S_POINTER runs the register group last written (measured)",
        "write 0xe to the block's S_POINTER before its other registers";
    /// A block that runs again in a chain without S_POINTER.
    NO_POINTER_IN_CHAIN "T08-no-pointer-in-chain" ["E-chain-repeats"] [] Error Garbage:
        "in a later task of a chain, DPU, DPU_RDMA or PPU without S_POINTER run with the registers of the first task, except the DPU's output address (measured; inferred for the PPU)",
        "write 0xe to S_POINTER of every enabled block in each segment";
    /// CNA or CORE that runs again in a chain without S_POINTER.
    CORE_POINTER_IN_CHAIN "T08-core-pointer-in-chain" ["E-chain-follows", "E-chain-repeats"] [] Note Note, contested "chain-pointer":
        "the kernel writes the S_POINTER of CNA and CORE once per kick, for the first task of a chain; measured chains give right results this way",
        "submit the tasks one by one, as the mainline driver runs them";
    /// A program that overwrites the core's number.
    CORE_NUMBER "H07-core-number" ["E-driver-writes", "E-core-number"] [cna::SPointer] Warning Hang:
        "the kernel writes the core's number into the S_POINTER of CNA and CORE; with another number there the core hangs (measured), and a program cannot know its core",
        "leave S_POINTER of CNA and CORE to the kernel";
    /// A program at no multiple of 16.
    PROGRAM_ADDRESS "T06-program-address" ["E-program-alignment"] [pc::BaseAddress] Error Hang:
        "bit 0 of BASE_ADDRESS stops the fetch (slave mode), bits 3..1 are not part of the address: the core hangs, also after a link",
        "place programs at multiples of 16";
    /// A chain that ends too soon.
    MISSING_LINK "T10-missing-link" ["E-chain-link"] [pc::TaskCon] Error NoWrite:
        "a trailer without a link ends a chain, however many tasks TASK_NUMBER has (measured)",
        "write BASE_ADDRESS and REGISTER_AMOUNTS of the next program to the trailer";
    /// A convolution without DPU_RDMA.
    CORE_IDLE "H09-core-idle" ["E-form-a-mainline", "E-form-a-hangs"] [] Note Hang, contested "core-idle-mainline":
        "under the mainline driver, sources report both a hang and a run of a matmul without DPU_RDMA; with this side of the contested fact it hangs",
        "use form B: start DPU_RDMA with its engines off";
    /// A program at IOVA 0.
    PROGRAM_AT_ZERO "H09-program-at-zero" ["E-guard-page"] [pc::BaseAddress] Note Hang, contested "program-at-zero":
        "a library keeps the first page of each file free, in case BASE_ADDRESS 0 starts no program; with this side of the contested fact nothing starts",
        "allocate an unused page first";
    /// A core after a hang.
    WEDGED "T12-wedged" ["E-wedge"] [] Error Hang, contested "wedge":
        "an earlier task hung, and the core was not reset since: nothing starts (measured)",
        "reset the core; the mainline driver does so after its time limit";
    /// An upload of a look-up table that begins again.
    UPLOAD_RESTARTED "T55-upload-restarted" ["E-lut-restart"] [dpu::LutAccessCfg] Note Note:
        "LUT_ACCESS_CFG between the entries of a table restarts the upload (measured)",
        "write LUT_ACCESS_CFG once, then all 513 entries";
    /// An access to an address that is not mapped.
    IOMMU_FAULT "F01-iommu-fault" [] [] Error Hang:
        "the access fails, and the core waits for it (inferred)",
        "list every buffer that the program addresses in the job";
    /// A task that exceeds the time limit.
    TOO_LONG "F02-too-long" [] [] Error Hang:
        "a task beyond the time limit is killed (its time is inferred), and the model does not compute it",
        "split the task";
    /// A task that needs more memory than the model's host has.
    HOST_MEMORY "F03-host-memory" [] [] Error:
        "the task reads more data than the machine that runs the model has memory for",
        "split the task";
}
