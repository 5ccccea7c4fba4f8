// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of the typed calls on the model and its jobs.

use std::time::{Duration, Instant};

use npu_model::event::Event;
use npu_model::{Level, Model, ModelOptions};
use rocket_uapi::{ByteLen, DeviceInfo, Error, PAGE_BYTES};

use crate::matmul::File;

#[test]
fn the_model_says_what_it_is() {
    let expected = DeviceInfo {
        name: "software model".into(),
        driver: "rocket".into(),
        version: (0, 0, 0),
        description: "rocket DRM".into(),
        is_model: true,
        cores: 3,
    };
    let device = Model::new(ModelOptions::default()).open_device();
    assert_eq!(device.info(), expected);
    let create = |len| device.alloc(ByteLen::new(len).unwrap());
    let large = ByteLen::MAX.get();
    let bos = [large, large, 4096, 4096].map(|len| create(len).unwrap());
    let len = ByteLen::new(PAGE_BYTES).unwrap();
    assert_eq!(create(1).unwrap_err(), Error::OutOfMemory(len));
    drop(bos);
}

/// Zeroed memory is no program: no command in it enables anything. Level strict
/// does not wait for the hang.
#[test]
fn what_became_of_a_job_is_known() {
    for (tasks, ran) in [(&[][..], false), (&[8], true)] {
        let model = Model::new(ModelOptions {
            level: Level::Strict,
            hang_timeout: Duration::MAX,
            ..ModelOptions::default()
        });
        let (file, since) = (File::open(&model), Instant::now());
        file.submit(tasks, &[]);
        let (raw, out) = (file.device.raw_file(), file.out().get());
        assert_eq!(raw.was_accepted(out), Ok(ran));
        file.wait();
        assert_eq!(raw.was_killed(out, since), Some(ran));
        let events = model.events();
        let told = match ran {
            true => matches!(events.last(), Some(Event::JobKilled { .. })),
            false => matches!(events[..], [Event::JobDropped { .. }]),
        };
        assert!(told, "{events:?}");
    }
}
