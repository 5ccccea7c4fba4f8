// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules: name, severity, what happens, what to do.

use super::{RuleId, Severity};

/// A rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its stable name.
    pub id: RuleId,
    /// How bad it is to break it.
    pub severity: Severity,
    /// What happens then, and who says so.
    pub why: &'static str,
    /// What to change.
    pub remedy: &'static str,
}

macro_rules! rules {
    ($( $name:ident $id:literal $severity:ident: $why:literal, $remedy:literal; )+) => {
        $(
            pub(super) static $name: Rule = Rule {
                id: RuleId($id),
                severity: Severity::$severity,
                why: $why,
                remedy: $remedy,
            };
        )+
        /// All rules.
        pub static RULES: &[&Rule] = &[ $( &$name, )+ ];
    };
}

rules! {
    // The shape of a program.
    NO_ENABLE "no-enable" Error:
        "without an enable word nothing starts: the core hangs (rockchip-npu-notes)",
        "end the program with the enable word";
    WORDS_AFTER_END "words-after-end" Note:
        "words behind the last enable word reach no task",
        "drop them, or check the length of the program";
    NO_MARKER "no-marker" Note:
        "all generators but one write the marker directly before the enable word; allbilly's program without it ran on mainline Linux",
        "write the marker word before the enable word";
    ODD_LENGTH "odd-length" Note:
        "PC fetches words in pairs, so the word behind the program is fetched too",
        "end the program at an even length, or put a 0 behind it";
    UNKNOWN_WORD "unknown-word" Error:
        "the word has a target that no source describes, or one of another block than its offset",
        "make target and offset name the same block";
    UNDECLARED_REGISTER "undeclared-register" Warning:
        "no source describes a register at this offset",
        "remove the word unless you know what it does";
    UNDECLARED_BITS "undeclared-bits" Warning:
        "bits outside of all fields: a value too large for its field, which the hardware cuts off without a word (vendor compiler: REGTASK overflow)",
        "check the value against the field's range";
    DRIVER_REGISTER "driver-register" Error:
        "the register is the kernel driver's, or can only be read",
        "leave the register to the kernel driver";
    CORE_POINTER "core-pointer" Warning:
        "the kernel writes the core's number into the S_POINTER of CNA and CORE (Linux drivers/accel/rocket); a program that overwrites it runs on core 0 at most",
        "do not write S_POINTER of CNA and CORE";
    CHAIN_POINTER "core-pointer-in-chain" Note:
        "CNA and CORE in a later task of a chain, with the S_POINTER that the kernel wrote for the first: chains of happyme531 and of the vendor's runtime are right so; DPU and DPU_RDMA would repeat the first task (measured, allbilly)",
        "submit the tasks one by one, as the mainline driver runs them";
    MISSING_POINTER "missing-pointer" Error:
        "without its own S_POINTER write a block may run the other register group: a task repeats an earlier one (measured, allbilly), or hangs",
        "write 0xe to the block's S_POINTER before its other registers";
    POINTER_VALUE "pointer-value" Warning:
        "every known program writes 0xe to S_POINTER; with other values registers may go to the group that does not run",
        "write 0xe";
    LATE_POINTER "late-pointer" Warning:
        "registers written before S_POINTER may have gone to the other register group",
        "write S_POINTER before the other registers of its block";
    EMPTY_ENABLE "empty-enable" Error:
        "the enable word starts no block: no interrupt comes",
        "set the mask of the blocks to start";
    UNKNOWN_BLOCK "unknown-block" Error:
        "the enable mask has bits that name no block",
        "use the bits of CNA, CORE, DPU, DPU_RDMA, PPU, PPU_RDMA only";
    BROKEN_PIPELINE "broken-pipeline" Error:
        "a block waits for another that is not started: the core hangs",
        "start every block that the data pass through";
    MISALIGNED "misaligned-address" Error:
        "base addresses count atoms; the low four bits are cut off or ignored",
        "align buffers to 16 bytes or more";
    BAD_ADDRESS "bad-program-address" Error:
        "bit 0 of BASE_ADDRESS stops the fetch (slave mode), bits 3..1 are not part of the address: the core hangs",
        "place programs at multiples of 16";
    BAD_LINK "bad-link" Error:
        "as the address of a program: the core hangs when it follows the link",
        "link to an address that is a multiple of 16";
    INTEGER_CHAIN "integer-chain" Warning:
        "chained int8 and int4 programs with QD_EN = 0 gave rubbish from the second task on (measured, librocketnpu); with QD_EN = 1 happyme chains them",
        "set QD_EN in chained integer programs, or submit tasks one by one";
    UNKNOWN_MODE "unknown-mode" Warning:
        "no source says what the mode touches in memory",
        "use the modes of known programs";
    EMPTY_FETCH "empty-fetch" Error:
        "a size that is not written less one is 0: nobody knows what silicon makes of that",
        "write the size; where there is nothing to compute, submit no task";
    OUT_OF_RANGE "out-of-range" Error:
        "an engine would leave 32-bit addresses",
        "check base address, sizes and strides";

    // Registers left alone.
    DELTA "delta-program" Error:
        "a program that rewrites a few registers only leaves the output untouched (measured, rockchip-npu-notes)",
        "write all registers of every block that the program starts";
    LEFT_TO_CHANCE "register-left-alone" Note:
        "the task uses registers that it does not write; they are 0 after a reset, else what an earlier program of any process left",
        "write them";
    LEFT_BY_EARLIER "register-left-by-earlier" Error:
        "the task uses a register that it does not write, and an earlier program left another value than 0",
        "write it";
    OPERAND_LEFT "operand-left-alone" Warning:
        "an active stage takes an operand from a register that the task does not write (measured on the sibling RK3576: a stale factor)",
        "write the operand, or bypass the stage";
    DCOMP_LEFT "dcomp-left-alone" Warning:
        "after a task with compressed weights, raw ones would be decompressed (measured, happyme)",
        "write 0 to DCOMP_CTRL and DCOMP_REGNUM";

    // Convolution.
    CONV_MODE "conv-mode" Error:
        "the blocks disagree about depthwise convolution",
        "set the mode alike in CNA, CORE, DPU and DPU_RDMA";
    PRECISION "precision-mismatch" Error:
        "the blocks disagree about the type of the data",
        "set the precision alike in CNA, CORE and DPU (tf32 is fp32 to the DPU)";
    PIXEL_COUNT "pixel-count" Error:
        "blocks disagree about the number of output pixels, so that one waits for more than another sends: the core hangs",
        "make DATAOUT_ATOMICS, DATAOUT_SIZE_0 and the DPU's width x height equal";
    OUTPUT_CHANNELS "output-channels" Warning:
        "CORE computes another number of channels than the DPU writes",
        "make DATAOUT_SIZE_1 and WDMA_SIZE_0 equal";
    WEIGHT_BYTES "weight-bytes" Error:
        "WEIGHT_SIZE0 is not bytes per kernel x kernels",
        "make the weight sizes agree";
    BANK_SUM "bank-split" Error:
        "features and weights share 12 banks and need one each; else the core hangs or computes rubbish",
        "choose DATA_BANK and WEIGHT_BANK of at least 1 with a sum of at most 12";
    DATA_BANKS "data-banks" Error:
        "the lines that must be resident do not fit the feature banks: the last rows are rubbish (measured, librocketnpu)",
        "use ceil(lines x DATA_ENTRIES x 64 / 32768) banks, or smaller tiles";
    ENTRIES "data-entries" Error:
        "a line needs more CBUF space than DATA_ENTRIES gives it",
        "use ceil(width x channels x bytes / 64)";
    WEIGHT_GROUP "weight-group" Error:
        "not even one kernel group fits the weight banks: no known program does that, and tf32 with K = 5120, whose groups take 10 of 12 banks, timed out already (happyme)",
        "give the weights more banks, or split the channels";
    WEIGHT_BLOCK "weight-block" Note:
        "a block of 32 kernels does not fit the weight banks, or weights stream through one: generators that were measured do neither, and whether it works is not known",
        "give the weights more banks, two at least";
    KERNEL_BYTES "kernel-bytes" Error:
        "a kernel is larger than a CBUF bank, which every generator refuses",
        "split the channels";
    FC_BANK "fc-data-bank" Error:
        "FC_DATA_BANK other than 0 corrupts results (measured, rockchip-npu-notes)",
        "write 0";
    REUSE "reuse-in-first-task" Error:
        "nothing of this job is in CBUF yet: stale data are used without a word (measured)",
        "clear DATA_REUSE and WEIGHT_REUSE in the first task of a job";
    REUSE_OTHER "reuse-of-other-data" Error:
        "CBUF holds something else there, or a part: it is used without a word (measured)",
        "reuse only what the task before fetched as a whole, with the same banks and sizes";
    GRAINS "grains-too-few" Error:
        "computing would start before the lines of one kernel window are there: rubbish (measured, happyme)",
        "use at least kernel height + vertical stride";
    GRAINS_LOW "grains-below-manual" Note:
        "the manual's minimum is kernel height + vertical stride + 1 lines",
        "use one more";
    SURFACE_PITCH "surface-pitch" Error:
        "surfaces of the input overlap, so that all but the first channels are rubbish (measured for heights that are no multiple of 4, librocketnpu)",
        "use SURF_STRIDE = width x (height - 4) in groups of lines, as a signed number";
    SHORT_CUBE "short-cube" Warning:
        "less than four lines with SURF_STRIDE 0: right only if the cube is a slice of a higher one (librocketnpu clamps the stride and gets rubbish)",
        "use SURF_STRIDE = width x (height - 4), signed, or a height that is a multiple of 4";
    GROUP_STRIDE "group-line-stride" Error:
        "LINE_STRIDE is not four lines although lines are fetched in groups of four (measured)",
        "use LINE_STRIDE = 4 x width, or set GROUP_LINE_OFF";
    LINE_STRIDE "line-stride" Warning:
        "a line pitch of 8192 atoms failed where 4096 worked (measured, allbilly)",
        "keep the pitch of lines at 4096 atoms or below";
    ODD_CHANNELS "partial-atom" Error:
        "channels do not fill whole atoms: rubbish is read as channels",
        "pad the channels to whole atoms";
    PAD_PATTERN "pad-pattern" Note:
        "PAD_CON1 is a 16-bit pattern; with int8 its bytes alternate between channels (measured: a captured run padded odd channels with the upper byte)",
        "repeat the byte";
    CPEND_WITHOUT_QD "correction-without-sum" Warning:
        "the weight zero point correction needs the sum of the inputs, which QD_EN = 0 turns off",
        "set QD_EN";
    INT16_WITHOUT_QD "int16-without-sum" Error:
        "int16 with QD_EN = 0 writes its first 16 channels only (measured, rockchip-npu-notes)",
        "set QD_EN";

    // The writer.
    SIZE_E_SMALL "size-e-too-small" Error:
        "channels of each group are never written (measured, librocketnpu)",
        "use SIZE_E = group channels x output bytes / 16 - 1";
    SIZE_E_LARGE "size-e-too-large" Error:
        "with more atoms than the group has only the first group is right (measured for int16)",
        "use SIZE_E = group channels x output bytes / 16 - 1";
    NOT_WRITABLE "group-not-writable" Error:
        "a group needs more than the 8 atoms that SIZE_E can say: half of the data are lost (measured)",
        "use a smaller output type";
    OUTPUT_OVERLAP "output-overlap" Error:
        "parts of the output are written to the same place",
        "use SURF_ADD = (SIZE_E + 1) x DST_SURF_STRIDE, and a stride of all pixels";
    OUTPUT_GAPS "output-gaps" Note:
        "between kernel groups there are atoms that nothing writes",
        "use SURF_ADD = (SIZE_E + 1) x DST_SURF_STRIDE";
    WRITER_SIZE "writer-size" Warning:
        "the sizes of the cube and of the writer differ",
        "write DATA_CUBE_* and WDMA_SIZE_* alike";
    WIDE_FLYING "wide-flying" Warning:
        "fed from memory, some 54 elements at the end of 8191 atoms were wrong (measured, rockchip-npu-notes)",
        "keep the width at 4096 atoms or below";

    // Operands of the DPU.
    MRDMA_UNFED "mrdma-unused" Error:
        "DPU_RDMA is started and reads a main input that nothing takes: the core hangs (measured, rockchip-npu-notes, Mesa)",
        "leave DPU_RDMA out of the enable mask, or set MRDMA_DISABLE";
    FLYING_MISMATCH "flying-mismatch" Error:
        "DPU and DPU_RDMA disagree about where the main input comes from",
        "set FLYING_MODE alike, with MRDMA on";
    ERDMA_OFF "erdma-off" Error:
        "the EW stage waits for an operand that nobody reads: the core hangs (measured)",
        "start DPU_RDMA with ERDMA on, or bypass the operation";
    ERDMA_UNUSED "erdma-unused" Error:
        "ERDMA reads an operand that nothing takes: the core hangs",
        "set ERDMA_DISABLE, or use the operand";
    ERDMA_ALONE "erdma-without-mrdma" Error:
        "behind a convolution ERDMA works only together with MRDMA: the core hangs (measured, happyme)",
        "turn MRDMA on, with COMB_USE = 5";
    BRDMA_OFF "brdma-off" Error:
        "a stage waits for an operand from memory that nobody reads",
        "turn BRDMA or NRDMA on, or take the operand from the register";
    BRDMA_UNUSED "brdma-unused" Warning:
        "operands are read that no stage takes",
        "clear DATA_USE of the engine";
    COMB_NOTCH "comb-notch" Error:
        "with COMB_USE = 5 and no notch only the first surfaces are right (measured)",
        "write the pixels of a surface to both notches";
    COMB_SMALL "comb-small-surface" Warning:
        "less than 12 pixels with a notch of 12: right only if the operand has that pitch (measured for M < 12, librocketnpu)",
        "use at least 12 pixels";
    IN_PLACE "in-place" Error:
        "a convolution adds to the cube that it writes: rubbish (measured, librocketnpu; how it comes about is not known)",
        "write to another buffer than the operand's";
    EW_AS_INT8 "ew-operand-as-int8" Error:
        "the EW operand is 16 bit, but DPU_RDMA's precision is int8: rubbish (measured)",
        "set PROC_PRECISION of DPU_RDMA to the type of the operand";
    EDATA_SIZE "edata-size" Error:
        "EW and ERDMA disagree about the size of the operand",
        "write EDATA_SIZE and ERDMA_DATA_SIZE alike";
    INT32_ADD_CVT "int32-add-converted" Error:
        "with the operand's conversion on, int32 addition is float rubbish (happyme measured that it works off)",
        "set OP_CVT_BYPASS (EW_CFG 0x10c203c0)";
    INT32_ADD_CONV "int32-add-behind-convolution" Warning:
        "no working setting is known for adding int32 behind a convolution",
        "add in a task of its own, fed from memory";
    FP16_ADD_CVT "fp16-add-unconverted" Error:
        "behind a convolution fp16 addition with OP_CVT_BYPASS ignores the operand (measured, happyme)",
        "clear OP_CVT_BYPASS (EW_CFG 0x108202c0)";
    FLYING_COMB "flying-comb" Error:
        "fed from memory with COMB_USE = 5 the result is all zero (measured, rockchip-npu-notes)",
        "use COMB_USE = 0";

    // Pooling.
    POOL_AVERAGE "average-of-one" Error:
        "65536 / 1 does not fit fp16: an average over one pixel in a direction is infinite",
        "average over two pixels or more in each direction";
    POOL_RECIPROCAL "average-reciprocal" Error:
        "averages are multiplied by reciprocals that are 0",
        "write the fp16 bits of 65536 / size";
    POOL_PADDING "max-padding" Warning:
        "padding with 0 wins over negative inputs (measured)",
        "pad with 0xfc00, minus infinity";
    POOL_PRECISION "pooling-precision" Warning:
        "only fp16 pooling is known to work (measured)",
        "pool fp16";
    POOL_SMALL "small-pool-output" Note:
        "outputs of less than four lines or pixels are misread when pooled again (measured)",
        "pad the output before it is pooled again";
    POOL_INPUT "pooling-input" Error:
        "PPU and PPU_RDMA disagree about the input's size",
        "write CUBE_IN_* alike in both";
}
