// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports how programs used the served device.

mod counts;
mod of_model;
mod of_node;

pub(crate) use of_model::ModelUse;
pub(crate) use of_node::NodeUse;
