// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares a buffer of the NPU with a device that a program uses through the crate `drm`, such as a
//! display: `share_with_drm [NODE [CARD]]`. NODE is the NPU's node; without one the software model
//! stands in. CARD is a node such as /dev/dri/card0.

use std::env;
use std::error::Error;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use drm::Device as _;
use drm::buffer::Handle;
use drm::control::Device as _;
use npu_model::{Model, ModelOptions};
use rocket_uapi::{ByteLen, Deadline, Device, DmaBuf};

/// A device of the crate `drm`. Do not implement its traits for the NPU's node: docs/uapi.md says
/// why.
struct Card(File);

impl AsFd for Card {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl drm::Device for Card {}
impl drm::control::Device for Card {}

/// Fills a buffer of the NPU, and shares it.
fn share(npu: &Device, bytes: &[u8]) -> Result<DmaBuf, rocket_uapi::Error> {
    let mut buffer = npu.alloc(ByteLen::new(bytes.len())?)?;
    buffer.write(Deadline::FOREVER)?[..bytes.len()].copy_from_slice(bytes);
    buffer.export().map_err(|(error, _)| error)
}

/// Imports the buffer into the card. Its handle there has the same type, and another number.
fn import(card: &Card, shared: &DmaBuf) -> io::Result<Handle> {
    card.prime_fd_to_buffer(shared.as_fd())
}

fn line(driver: &drm::Driver, handle: Handle) -> String {
    let (major, minor, patch) = driver.version;
    let (name, number) = (driver.name().display(), u32::from(handle));
    format!("{name} {major}.{minor}.{patch}: buffer {number}")
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut nodes = env::args_os().skip(1);
    let npu = match nodes.next() {
        Some(node) => Device::open(Path::new(&node))?,
        None => Model::new(ModelOptions::default()).open_device(),
    };
    let shared = share(&npu, b"a result")?;
    println!("{}", line(&npu.info().driver, shared.handle()));
    let Some(card) = nodes.next() else {
        return Ok(());
    };
    let card = Card(File::options().read(true).write(true).open(card)?);
    let handle = import(&card, &shared)?;
    println!("{}", line(&card.get_driver()?, handle));
    Ok(card.close_buffer(handle)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another file of the model stands for the card, which takes system calls of the kernel.
    #[test]
    #[cfg_attr(miri, ignore = "needs memfd")]
    fn a_shared_buffer_has_a_handle_in_each_file() {
        let npu = Model::new(ModelOptions::default()).open_device();
        let shared = share(&npu, b"a result").unwrap();
        let other = npu.reopen().unwrap();
        let imported = other.import(shared.as_fd()).unwrap();
        let mut bytes = [0; 8];
        imported
            .read_into(0, &mut bytes, Deadline::FOREVER)
            .unwrap();
        assert_eq!(&bytes, b"a result");
        let handles: [Handle; 2] = [shared.handle(), imported.handle()];
        let lines = handles.map(|handle| line(&other.info().driver, handle));
        assert_eq!(lines, ["rocket 0.0.0: buffer 1", "rocket 0.0.0: buffer 1"]);
    }
}
