// SPDX-License-Identifier: MIT OR Apache-2.0
//! The DPU's writer: groups, strides, sizes, modes.

use alloc::format;

use super::row::{DpuPart, Found, Shows};
use crate::precision::Precision;
use crate::regs::dpu;
use crate::task::{TO_MEMORY, surfaces};

/// Maximum atoms of a group: SIZE_E has three bits.
pub const GROUP_ATOMS_MAX: usize = 8;
/// Channels that the transposing writer was measured to place right.
const TRANSPOSED_CHANNELS_KNOWN: usize = 32;
/// Pixels from which on it hangs, if groups are too small.
const TRANSPOSED_PIXELS_HANG: usize = 16;

const GROUP: Shows = shows![
    dpu::BsOwCfg,
    dpu::SurfaceAdd,
    dpu::DstSurfStride,
    dpu::DataFormat
];

const TRANSPOSER: Shows = shows![dpu::BsOwCfg, dpu::WdmaSize0, dpu::FeatureModeCfg];

rules! { pub,
    "H05-output-mode" [] [dpu::FeatureModeCfg] Error Hang:
        "only output to memory is in known programs, and only that is modelled (inferred)",
        "set OUTPUT_MODE to 2",
        Dpu |task| {
            let mode = task.regs.get::<dpu::FeatureModeCfg>().output_mode() & 3;
            (mode != TO_MEMORY).then(|| format!("OUTPUT_MODE is {mode}"))
        };
    "T35-group-too-wide" ["E-depthwise-wide"] [..GROUP] Error NoWrite:
        "a group needs more than the 8 atoms that SIZE_E can express: half of the data are lost (measured for depthwise int8 to int32)",
        "use an output type of at most 8 atoms a group",
        Dpu |task| {
            let group = Group::of(task)?;
            let spread = task.conv?.depthwise || group.atoms < group.present();
            group.describe(group.needed > GROUP_ATOMS_MAX && spread)
        };
    "T33-size-e-small" ["E-size-e"] [..GROUP] Error NoWrite:
        "channels of each group are never written (measured)",
        "set all three SIZE_E to group channels x output bytes / 16 - 1",
        Dpu |task| {
            let group = Group::of(task)?;
            group.describe(group.needed <= GROUP_ATOMS_MAX && group.atoms < group.present())
        };
    "T37-size-e-large" ["E-int16-size-e"] [..GROUP] Error Garbage:
        "with more atoms than the group has only the first group is right (measured for int16)",
        "set all three SIZE_E to group channels x output bytes / 16 - 1",
        Dpu |task| {
            let group = Group::of(task)?;
            group.describe(group.atoms > group.needed && group.channels > group.width)
        };
    "T34-output-overlap" ["E-surf-add", "E-row-notch"] [dpu::SurfaceAdd, dpu::DstSurfStride, dpu::DataCubeNotchAddr, dpu::BsOwCfg] Error Garbage:
        "parts of the output are written to the same place (measured for groups and for rows)",
        "use SURF_ADD = (SIZE_E + 1) x DST_SURF_STRIDE and a stride of all pixels; row by row NOTCH = width x (channels x bytes / 16 - 1), in both halves",
        Dpu |task| {
            let steps = Steps::of(task)?;
            steps.overlap().then(|| steps.describe())
        };
    "T41-transposing-writer" ["E-transposed", "E-transposed-cut", "E-transposed-size"] [..TRANSPOSER] Error Garbage:
        "the transposing writer is right for int16 products of at most 32 channels with SIZE_E 7 only, and gives the low 16 bits of their sums (measured)",
        "transpose on the host",
        Dpu transposing;
    /// An int8 result that ends within a group.
    PARTIAL_GROUP "H08-partial-group" ["E-partial-group"] [dpu::WdmaSize0, dpu::DataFormat] Error Hang, contested "partial-group":
        "the last group of an int8 result is not written, and the task never ends (measured)",
        "program whole groups of 32 kernels (64 channels of a depthwise task), with zeros",
        Dpu partial_group;
    /// A transposed result that is not a whole group.
    TRANSPOSED_HANG "H08-transposed-group" ["E-transposed-hang", "E-transposed-size"] [..TRANSPOSER] Error Hang:
        "the transposing writer does not stop after its last write with 16 channels, or with SIZE_E 3 and 16 pixels (measured; for all below 32 channels, and other SIZE_E, inferred)",
        "transpose on the host",
        Dpu |task| {
            let (channels, pixels) = (task.channels(), task.output.pixels());
            let small = task.output.group_atoms < GROUP_ATOMS_MAX && pixels >= TRANSPOSED_PIXELS_HANG;
            let hangs = transposes(task) && (channels < TRANSPOSED_CHANNELS_KNOWN || small);
            hangs.then(|| format!("{channels} channels of {pixels} pixels are transposed"))
        };
    "output-gaps" ["E-surf-add"] [dpu::SurfaceAdd, dpu::DstSurfStride, dpu::BsOwCfg] Note:
        "between kernel groups there are atoms that nothing writes",
        "use SURF_ADD = (SIZE_E + 1) x DST_SURF_STRIDE",
        Dpu |task| {
            let steps = Steps::of(task)?;
            let dense = task.output.group_atoms as i64 * steps.surfaces.stride;
            let gaps = steps.groups.count > 1 && steps.groups.stride > dense;
            (gaps && !steps.overlap()).then(|| steps.describe())
        };
    "writer-size" [] [dpu::WdmaSize0, dpu::WdmaSize1, dpu::DataCubeWidth, dpu::DataCubeHeight, dpu::DataCubeChannel, dpu::DataCubeNotchAddr] Warning:
        "the sizes of the cube and of the writer differ",
        "write the same sizes to DATA_CUBE_* and WDMA_SIZE_*",
        Dpu writer_size;
}

/// A group of channels as CORE hands it to the writer.
struct Group {
    /// Channels of the group (`width`), and all channels that are written.
    width: usize,
    channels: usize,
    /// Atoms of a pixel: those that the group needs, those that SIZE_E gives, and
    /// those that all written channels fill.
    needed: usize,
    atoms: usize,
    all: usize,
}

impl Group {
    /// The group of a convolution; `None` in a flying task and for the transposing
    /// writer.
    fn of(task: &DpuPart<'_>) -> Option<Self> {
        let output = task.conv.map(|_| task.output)?;
        let bits = output.precision.bits();
        (!transposes(task)).then(|| Self {
            width: output.group,
            channels: output.written[2],
            needed: surfaces(output.group, bits),
            atoms: output.group_atoms,
            all: surfaces(output.written[2], bits),
        })
    }

    fn present(&self) -> usize {
        self.needed.min(self.all)
    }

    fn describe(&self, broken: bool) -> Found {
        let Self {
            width,
            needed,
            atoms,
            ..
        } = self;
        broken.then(|| {
            format!(
                "a group of {width} channels takes {needed} atoms a pixel, SIZE_E writes {atoms}"
            )
        })
    }
}

/// A counter of the writer: number and distance of its steps.
#[derive(Clone, Copy)]
struct Step {
    count: usize,
    stride: i64,
}

/// The counters of the writer; pixels of a line lie next to each other.
struct Steps {
    width: usize,
    lines: Step,
    surfaces: Step,
    groups: Step,
}

impl Steps {
    fn of(task: &DpuPart<'_>) -> Option<Self> {
        let output = task.output;
        let [width, height, _] = output.cube;
        let channels = task.channels();
        let used = surfaces(channels, output.precision.bits());
        let step = |count, stride| Step { count, stride };
        (!transposes(task)).then(|| Self {
            width,
            lines: step(height, (width + output.notch) as i64),
            // In a group that is not full, only the atoms with channels count.
            surfaces: step(used.clamp(1, output.group_atoms), output.surface),
            groups: step(channels.div_ceil(output.group), output.surface_add),
        })
    }

    /// Whether parts of the output overlap: a step is shorter than the range that all
    /// smaller steps cover.
    fn overlap(&self) -> bool {
        let mut steps = [self.lines, self.surfaces, self.groups];
        steps.sort_unstable_by_key(|step| step.stride);
        let mut covered = self.width as i64;
        steps.iter().filter(|step| step.count > 1).any(|step| {
            let overlaps = step.stride < covered;
            covered += (step.count - 1) as i64 * step.stride;
            overlaps
        })
    }

    fn describe(&self) -> alloc::string::String {
        let all = [
            ("lines", self.lines),
            ("surfaces", self.surfaces),
            ("groups", self.groups),
        ];
        let [lines, surfaces, groups] =
            all.map(|(name, step)| format!("{} {name} {} atoms apart", step.count, step.stride));
        format!("{lines}, {surfaces}, {groups}")
    }
}

impl DpuPart<'_> {
    pub(super) fn channels(&self) -> usize {
        self.output.channels(self.conv.is_none())
    }
}

/// Whether this is the transposing writer, in the one known form.
fn transposes(task: &DpuPart<'_>) -> bool {
    task.regs.get::<dpu::BsOwCfg>().tp_org_en() == 1
        && task.regs.get::<dpu::WdmaSize0>().tp_precision() == 1
        && task.output.input == Precision::Int16
}

fn transposing(task: &DpuPart<'_>) -> Found {
    let mode = task.regs.get::<dpu::FeatureModeCfg>().tp_en();
    let asked = task.regs.get::<dpu::BsOwCfg>().tp_org_en() == 1 || mode == 1;
    let channels = task.channels();
    let known = transposes(task) && mode == 0 && channels <= TRANSPOSED_CHANNELS_KNOWN;
    let whole = task.output.group_atoms == GROUP_ATOMS_MAX;
    let ty = task.output.input;
    (asked && !(known && whole))
        .then(|| format!("{channels} channels of a {ty} result are transposed"))
}

fn partial_group(task: &DpuPart<'_>) -> Found {
    let output = task.conv.map(|_| task.output)?;
    let bytes = [output.input, output.precision] == [Precision::Int8; 2];
    let (channels, group) = (output.written[2], output.group);
    (bytes && !channels.is_multiple_of(group))
        .then(|| format!("{channels} channels in groups of {group}"))
}

fn writer_size(task: &DpuPart<'_>) -> Found {
    let (cube, written) = (task.output.cube, task.output.written);
    let notch = task.regs.get::<dpu::DataCubeNotchAddr>();
    let notches = [notch.notch_addr_0(), notch.notch_addr_1()];
    (cube != written || notches[0] != notches[1]).then(|| {
        format!("cube {cube:?}, writer {written:?} (width, height, channels), notches {notches:?}")
    })
}
