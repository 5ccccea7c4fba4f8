// SPDX-License-Identifier: MIT OR Apache-2.0
//! GEM names: numbers by which root's files find each other's buffer objects
//! (Linux, drivers/gpu/drm/drm_gem.c). Old and without protection; PRIME took
//! their place.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use rustix::io::Errno;

use super::abi;
use super::file::DrmFile;
use super::gem::GemObject;
use super::lock;

/// The names of one device: the lowest free integer from 1 on. A name lasts
/// as long as any file has a handle of its object.
#[derive(Debug, Default)]
pub(super) struct Names(Mutex<BTreeMap<u32, Weak<GemObject>>>);

impl Names {
    /// A file gets a handle of `object`.
    pub(super) fn handle_opened(&self, object: &GemObject) {
        let _names = lock(&self.0);
        object.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// A file has closed a handle of `object`.
    pub(super) fn handle_closed(&self, object: &Arc<GemObject>) {
        let mut names = lock(&self.0);
        if object.handles.fetch_sub(1, Ordering::Relaxed) == 1 {
            let ours = Arc::downgrade(object);
            names.retain(|_, named| !named.ptr_eq(&ours));
        }
    }

    /// The name of `object`, a new one if it has none.
    ///
    /// # Errors
    /// `ENOENT` if its last handle was closed meanwhile, `ENOSPC` if all
    /// numbers are taken.
    fn of(&self, object: &Arc<GemObject>) -> Result<u32, Errno> {
        let mut names = lock(&self.0);
        if object.handles.load(Ordering::Relaxed) == 0 {
            return Err(Errno::NOENT);
        }
        let ours = Arc::downgrade(object);
        if let Some((&name, _)) = names.iter().find(|(_, named)| named.ptr_eq(&ours)) {
            return Ok(name);
        }
        let name = (1..=i32::MAX.unsigned_abs())
            .find(|name| !names.contains_key(name))
            .ok_or(Errno::NOSPC)?;
        names.insert(name, ours);
        Ok(name)
    }

    /// The object of that name, with a handle counted.
    fn open(&self, name: u32) -> Option<Arc<GemObject>> {
        let names = lock(&self.0);
        let object = names.get(&name)?.upgrade()?;
        object.handles.fetch_add(1, Ordering::Relaxed);
        Some(object)
    }
}

impl DrmFile {
    /// Root only: `DRM_AUTH`, and a file of an accel node is authenticated if
    /// its opener had `CAP_SYS_ADMIN`.
    fn check_root(&self) -> Result<(), Errno> {
        if self.open().privileged {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }

    pub(super) fn gem_flink(&self, arg: &mut abi::GemFlink) -> Result<(), Errno> {
        self.check_root()?;
        let object = self.lookup(arg.handle).ok_or(Errno::NOENT)?;
        arg.name = self.device().names.of(&object)?;
        Ok(())
    }

    /// Always a new handle, also where the file has one of the object.
    pub(super) fn gem_open(&self, arg: &mut abi::GemOpen) -> Result<(), Errno> {
        self.check_root()?;
        let object = self.device().names.open(arg.name).ok_or(Errno::NOENT)?;
        arg.size = object.pages().len() as u64;
        arg.handle = self.handles().insert(object)?;
        Ok(())
    }
}
