// SPDX-License-Identifier: MIT OR Apache-2.0
//! PC, the program controller (page 0). Source: E-field-widths; the values that the
//! kernel writes: E-driver-writes.

use crate::field::registers;

registers! {
    block Pc;

    /// Version of the NPU: boards with an RK3588 report 0x46495245 ("FIRE"), the lower half of VERSION_NUM added.
    plain(readonly) Version VERSION @ 0x0000 {
        version: 0..=31 = "0x46495245 (\"FIRE\") on an RK3588, plus the lower half of VERSION_NUM.",
    }
    /// Number of the version.
    plain(readonly) VersionNum VERSION_NUM @ 0x0004 {
        version_num: 0..=31 = "Number of the version.",
    }
    /// Starts fetching commands at BASE_ADDRESS. In a program the same offset, under the enable target, carries the enable mask.
    plain(driver) OperationEnable OPERATION_ENABLE @ 0x0008 {
        op_en: 0..=0 = "1: start.",
    }
    /// Address of the program to fetch; in a program's trailer, of the next one.
    plain BaseAddress BASE_ADDRESS @ 0x0010 {
        pc_sel: 0..=0 = "1: slave mode, the CPU writes the blocks' registers; 0: the PC does.",
        pc_source_addr: 4..=31 = "Bits 31..4 of the program's IOVA.",
    }
    /// Length of the program; in a program's trailer, of the next one.
    plain RegisterAmounts REGISTER_AMOUNTS @ 0x0014 {
        pc_data_amount: 0..=15 = "Number of 128-bit fetches (two words each), minus 1.",
    }
    /// Which interrupts may raise the line.
    plain(driver) InterruptMask INTERRUPT_MASK @ 0x0020 {
        bits: 0..=16 = "As INTERRUPT_RAW_STATUS.",
    }
    /// Clears interrupts.
    plain(driver) InterruptClear INTERRUPT_CLEAR @ 0x0024 {
        bits: 0..=16 = "As INTERRUPT_RAW_STATUS; write 1 to clear.",
    }
    /// Interrupts, masked.
    plain(readonly) InterruptStatus INTERRUPT_STATUS @ 0x0028 {
        bits: 0..=16 = "As INTERRUPT_RAW_STATUS, where the mask allows.",
    }
    /// Interrupts, unmasked.
    plain(readonly) InterruptRawStatus INTERRUPT_RAW_STATUS @ 0x002c {
        cna_feature: 0..=1 = "CNA feature fetch, by register group.",
        cna_weight: 2..=3 = "CNA weight fetch, by register group.",
        cna_csc: 4..=5 = "Sequencer, by register group.",
        core: 6..=7 = "CORE, by register group.",
        dpu: 8..=9 = "DPU, by register group.",
        ppu: 10..=11 = "PPU, by register group.",
        dma_read_error: 12..=12 = "A DMA read failed.",
        dma_write_error: 13..=13 = "A DMA write failed.",
    }
    /// Number of tasks of a chain, and how they are counted.
    plain(driver) TaskCon TASK_CON @ 0x0030 {
        task_number: 0..=11 = "Number of programs that one kick runs.",
        task_pp_en: 12..=12 = "1: ping-pong between the register groups.",
        task_count_clear: 13..=13 = "1: clear the task counter.",
        reserved_0: 14..=31 = "Drivers set bit 14.",
    }
    /// Added to every DMA address; drivers write 0.
    plain(driver) TaskDmaBaseAddr TASK_DMA_BASE_ADDR @ 0x0034 {
        dma_base_addr: 4..=31 = "Bits 31..4 of the offset.",
    }
    /// Progress of a chain.
    plain(readonly) TaskStatus TASK_STATUS @ 0x003c {
        task_status: 0..=27 = "Counter of finished tasks.",
    }
}
