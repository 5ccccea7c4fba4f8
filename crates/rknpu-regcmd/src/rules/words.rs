// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows about words, about programs that follow each other, and about registers that
//! a program does not write.

rules! { pub(crate),
    // The shape of a program.
    WORDS_AFTER_END "words-after-end" ["E-program-end"] [] Note:
        "words behind the last enable word reach no task",
        "drop them, or check the length of the program";
    NO_MARKER "no-marker" ["E-marker"] [] Note:
        "all generators but one write the marker directly before the enable word; a program without it ran on mainline Linux (measured)",
        "write the marker word before the enable word";
    ODD_LENGTH "odd-length" ["E-fetch-pairs"] [] Note:
        "PC fetches words in pairs, so the word behind the program is fetched too",
        "end the program at an even length, or put a 0 behind it";
    UNDECLARED_REGISTER "undeclared-register" ["E-field-widths"] [] Warning:
        "no source describes a register at this offset",
        "remove the word unless you know what it does";
    DRIVER_REGISTER "driver-register" ["E-driver-writes"] [] Error:
        "the register is the kernel driver's, or can only be read",
        "leave the register to the kernel driver";
    POINTER_VALUE "pointer-value" ["E-registers-persist"] [] Warning:
        "every known program writes 0xe to S_POINTER; with other values registers may go to the group that does not run",
        "write 0xe";
    LATE_POINTER "late-pointer" ["E-registers-persist"] [] Warning:
        "registers written before S_POINTER may have gone to the other register group",
        "write S_POINTER before the other registers of its block";
    UNKNOWN_BLOCK "unknown-block" ["E-enable-mask"] [] Error:
        "the enable mask has bits that name no block",
        "use the bits of CNA, CORE, DPU, DPU_RDMA, PPU, PPU_RDMA only";
    MISALIGNED "misaligned-address" ["E-atom"] [] Error:
        "base addresses count atoms; the low four bits are cut off or ignored",
        "align buffers to 16 bytes or more";
    UNKNOWN_MODE "unknown-mode" [] [] Warning:
        "no source says which memory the mode accesses",
        "use the modes of known programs";
    OUT_OF_RANGE "out-of-range" [] [] Error:
        "an engine would leave 32-bit addresses",
        "check base address, sizes and strides";

    // Registers that the program does not write.
    UNWRITTEN_REGISTER "register-left-alone" ["E-registers-persist"] [] Note:
        "the task uses registers that it does not write; after a reset they are 0, otherwise they hold what an earlier program of any process left",
        "write them";
    OPERAND_LEFT "operand-left-alone" ["E-stale-operand"] [] Warning:
        "an active stage takes an operand from a register that the task does not write (measured on the sibling RK3576: a stale factor)",
        "write the operand, or bypass the stage";
}
