// SPDX-License-Identifier: MIT OR Apache-2.0
//! The payload of each kind of section: its fields, and how they are encoded and decoded.

pub(crate) mod device;
pub(crate) mod done;
pub(crate) mod job;
pub(crate) mod notes;
pub(crate) mod object;
pub(crate) mod pages;

pub(crate) use pages::PagesEncoder;
