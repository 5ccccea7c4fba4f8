// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of sums: the values of the known generator, the buffers.

use proptest::prelude::*;
use rknpu_regcmd::timing::{Machine, TaskWork};
use rknpu_regcmd::{AddTask, DmaEngine, Extent, Iova, tasks};

use crate::product::{IDS, bind, values, warnings};
use families::flying::int32_add;
use families::{A, B, C};

/// Registers of the look-up tables.
const LUT: std::ops::RangeInclusive<u16> = 0x4100..=0x412c;

fn legal_task() -> impl Strategy<Value = AddTask> {
    let (widths, groups) = (
        1..=AddTask::WIDTH_MAX,
        1..=AddTask::CHANNELS_MAX / AddTask::CHANNEL_MULTIPLE,
    );
    (widths, groups).prop_map(|(width, groups)| {
        let [a, b, c] = IDS.map(|id| id.at(0));
        AddTask {
            width,
            channels: groups * AddTask::CHANNEL_MULTIPLE,
            a,
            b,
            c,
        }
    })
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    /// The values of happyme531's generator, and the three buffers from end to
    /// end.
    #[test]
    fn programs_are_those_of_the_known_generator(task in legal_task(), in_place: bool) {
        let task = AddTask { c: if in_place { task.a } else { task.c }, ..task };
        let len = u32::try_from(task.bytes()).unwrap();
        let places = [A, B, if in_place { A } else { C }];
        let bindings = bind(places, [task.bytes(); 3]);
        let used = if in_place { 2 } else { 3 };
        let linked = task.program().unwrap().link(&bindings[..used]).unwrap();
        let mut known = values(&int32_add(task.width, task.channels, 4, None));
        for word in known.iter_mut().filter(|(key, _)| key.1 == 0x4020) {
            *word.1 = places[2];
        }
        // The registers of the tables besides, as the programs of products write
        // them.
        known.extend(LUT.step_by(4).map(|offset| ((0x1001, offset), 0)));
        prop_assert_eq!(values(linked.words()), known);

        let extent = |engine: DmaEngine, start: u32| Extent {
            engine,
            start: start.into(),
            end: u64::from(start + len),
        };
        let expected = [
            extent(DmaEngine::Mrdma, places[0]),
            extent(DmaEngine::Erdma, places[1]),
            extent(DmaEngine::DpuWrite, places[2]),
        ];
        for extent in expected {
            prop_assert!(linked.extents().contains(&extent), "{:?}", linked.extents());
        }
        prop_assert_eq!(linked.extents().len(), expected.len());
        prop_assert_eq!(linked.last_written_atom(), Some(Iova(places[2] + len - 16)));
        prop_assert_eq!(warnings(linked.words()), [""; 0]);
    }

    /// Three times the bytes pass, and that is what the modelled time is.
    #[test]
    fn time_is_that_of_three_passes(task in legal_task()) {
        let program = task.program().unwrap();
        let task_words = tasks(program.words()).next().unwrap();
        let work = TaskWork::of(&task_words.regs, task_words.enable).unwrap();
        prop_assert_eq!(work.bytes.total(), 3 * task.bytes());
        let machine = Machine::RK3588;
        let rate = machine.dram.rate(machine.clock_hz, 1);
        let moving = 3 * task.bytes() * 1_000_000_000_000 / rate;
        prop_assert!(work.duration_ps(&machine) >= moving);
    }
}
