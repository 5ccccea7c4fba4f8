// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures what the kernel does beside a job: cache maintenance of lines that the CPU wrote, new
//! buffers, and the start of cores that were suspended.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use npu_matmul::profile::KernelTimes;
use npu_model::Opened;
use rocket_uapi::{ByteLen, Deadline, Device};

use super::host::{LARGE, MAX_SYNC_RATE, shortest, shortest_of};
use super::machine::NOTHING;

/// Longer than the 50 ms after which the driver suspends an idle core.
const IDLE: Duration = Duration::from_millis(120);

/// Jobs after a pause; the middle one of their times counts, since a suspend may be late.
const RESUMES: usize = 9;

/// Measures the kernel's times on a device.
pub(super) fn measure(opened: &Opened) -> anyhow::Result<KernelTimes> {
    let device = &opened.device;
    let rate = |seconds: f64| Some((LARGE as f64 / seconds).min(MAX_SYNC_RATE) as u64);
    Ok(KernelTimes {
        dirty_sync_bytes_per_second: rate(
            dirty_sync_seconds(device).context("cannot measure dirty lines")?,
        ),
        first_touch_bytes_per_second: rate(
            shortest(|| first_touch(device)).context("cannot measure new buffers")?,
        ),
        resume_ps: Some(NOTHING.resume_ps(opened, RESUMES, || thread::sleep(IDLE))?),
    })
}

/// The shortest time in which FINI_BO passes a buffer that the CPU has just written.
fn dirty_sync_seconds(device: &Device) -> anyhow::Result<f64> {
    let mut bo = device.alloc(ByteLen::new(LARGE)?)?;
    shortest_of(|| {
        let mut write = bo.write(Deadline::FOREVER)?;
        write.fill(1);
        let start = Instant::now();
        write.finish()?;
        Ok(start.elapsed())
    })
}

/// Makes a buffer and writes each page of it once.
fn first_touch(device: &Device) -> anyhow::Result<()> {
    let mut bo = device.alloc(ByteLen::new(LARGE)?)?;
    bo.write(Deadline::FOREVER)?.fill(1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use rocket_uapi::Selector;

    use super::*;

    #[test]
    fn all_times_are_those_of_a_profile() {
        let opened = npu_model::open_with(&Selector::Model, |_| ()).unwrap();
        let mut profile = npu_matmul::Profile::clone(&npu_matmul::Profile::built_in());
        profile.kernel = measure(&opened).unwrap();
        let KernelTimes {
            dirty_sync_bytes_per_second,
            first_touch_bytes_per_second,
            resume_ps,
        } = profile.kernel;
        assert!(dirty_sync_bytes_per_second.is_some() && first_touch_bytes_per_second.is_some());
        assert!(resume_ps.is_some());
        let json = profile.to_json().unwrap();
        let read = npu_matmul::Profile::from_json(json.as_bytes()).unwrap();
        assert_eq!(read.kernel, profile.kernel);
    }
}
