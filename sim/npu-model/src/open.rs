// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening what a [`Selector`] chose.

use std::path::Path;
use std::sync::Arc;

use rocket_uapi::{Device, DevicePool, RefusedNode};

use crate::driver::Model;
use crate::options::{ModelOptions, OptionError};
use crate::select::Selector;

/// An open device, and how it came to be this one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Opened {
    /// The open device, of a kernel or of the model.
    pub device: Device,
    /// The model behind it, if it is one. Its events tell what a kernel
    /// keeps to itself: why a job was dropped or killed.
    pub model: Option<Arc<Model>>,
    /// What was decided and why: one line each, for humans.
    pub why: Vec<String>,
}

/// The device that was asked for cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A node was named, and it is not a usable NPU.
    #[error("no NPU at {node}. `auto` or `model` as the device would use the software model")]
    NoDevice {
        /// The node, and what is wrong with it.
        node: RefusedNode,
    },
    /// The model was asked for, with options that it does not have.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// The device cannot be opened that many times.
    #[error("the device cannot be opened {files} times: {source}")]
    Files {
        /// Open files that were asked for.
        files: usize,
        /// The error of the first open that failed.
        source: rocket_uapi::Error,
    },
}

/// Opens the device that `ROCKET_DEVICE` names, `files` times: the NPU, or where there
/// is none the model. The kernel runs one job at a time for each file, so a file for
/// each core is what a program wants.
///
/// It is for programs of one's own. A library in another's process says
/// [`rocket_uapi::Device::discover`]: nobody wants to compute on a model unawares.
///
/// # Errors
/// As [`open`], and [`OpenError::Files`].
///
/// ```
/// let pool = npu_model::discover_or_model(3)?;
/// assert_eq!(pool.devices().len(), 3);
/// # Ok::<(), npu_model::OpenError>(())
/// ```
pub fn discover_or_model(files: usize) -> Result<DevicePool, OpenError> {
    let device = open(&Selector::from_env())?.device;
    DevicePool::open(&device, files).map_err(|source| OpenError::Files { files, source })
}

/// Opens the device that `selector` names.
///
/// # Errors
/// [`OpenError::NoDevice`] if a node was named that cannot be used,
/// [`OpenError::Options`] for wrong options of the model. The other two
/// choices always lead to a device.
pub fn open(selector: &Selector) -> Result<Opened, OpenError> {
    open_with(selector, |_| ())
}

/// Opens the device that `selector` names; if that is the model, one whose
/// options were given to `adjust` before.
///
/// # Errors
/// As [`open`].
pub fn open_with(
    selector: &Selector,
    adjust: impl FnOnce(&mut ModelOptions),
) -> Result<Opened, OpenError> {
    let model = |mut options: ModelOptions, why| {
        adjust(&mut options);
        model(options, why)
    };
    match selector {
        Selector::Model => Ok(model(
            ModelOptions::default(),
            vec!["the software model was asked for".to_owned()],
        )),
        Selector::ModelWith(options) => Ok(model(
            options.parse()?,
            vec![format!("the software model was asked for, with {options}")],
        )),
        Selector::Path(path) => node(path),
        Selector::Auto => {
            let found = Device::discover().map_err(|error| error.refused);
            Ok(auto(found, |why| model(ModelOptions::default(), why)))
        }
    }
}

fn node(path: &Path) -> Result<Opened, OpenError> {
    match Device::open(path) {
        Ok(device) => Ok(Opened {
            device,
            model: None,
            why: vec![format!("{} was asked for", path.display())],
        }),
        Err(error) => Err(OpenError::NoDevice {
            node: RefusedNode::new(path, &error),
        }),
    }
}

/// The kernel device that was found, else the model.
fn auto(
    found: Result<Device, Vec<RefusedNode>>,
    model: impl FnOnce(Vec<String>) -> Opened,
) -> Opened {
    match found {
        Ok(device) => {
            let why = format!("{} is driven by rocket", device.info().name);
            Opened {
                device,
                model: None,
                why: vec![why],
            }
        }
        Err(refused) => {
            let mut why: Vec<_> = refused.iter().map(RefusedNode::to_string).collect();
            why.push("no usable NPU, so the software model stands in".to_owned());
            model(why)
        }
    }
}

fn model(options: ModelOptions, why: Vec<String>) -> Opened {
    let model = Model::new(options);
    Opened {
        device: model.open_device(),
        model: Some(model),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standard(why: Vec<String>) -> Opened {
        model(ModelOptions::default(), why)
    }

    #[test]
    fn the_model_is_always_there() {
        let opened = open(&Selector::Model).unwrap();
        assert!(opened.device.info().is_model);
        assert!(opened.model.is_some());
        assert_eq!(opened.why.len(), 1);
    }

    #[test]
    fn options_reach_the_model() {
        let opened = open(&Selector::ModelWith("cores=1,level=silent".into())).unwrap();
        assert_eq!(opened.device.info().cores, 1);
        assert!(opened.why[0].contains("level=silent"), "{:?}", opened.why);
        let error = open(&Selector::ModelWith("core=1".into())).unwrap_err();
        assert!(matches!(error, OpenError::Options(_)), "{error}");
    }

    #[test]
    fn auto_says_what_it_passed_over() {
        let refused = RefusedNode {
            path: "/dev/accel/accel0".into(),
            reason: "it is another accelerator".into(),
        };
        let opened = auto(Err(vec![refused]), standard);
        assert!(opened.device.info().is_model);
        assert_eq!(
            opened.why[0],
            "/dev/accel/accel0: it is another accelerator"
        );
        assert!(opened.why[1].contains("software model"));

        let real = Model::new(ModelOptions::default()).open_device();
        let opened = auto(Ok(real), standard);
        assert!(opened.model.is_none(), "not ours to look into");
        assert!(opened.why[0].contains("rocket"));
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens device nodes")]
    fn a_node_that_was_named_is_never_replaced() {
        for path in ["/dev/null", "/no/such/node"] {
            let selector = Selector::Path(path.into());
            let error = open(&selector).unwrap_err();
            let OpenError::NoDevice { node } = &error else {
                panic!("{error}");
            };
            assert_eq!(node.path, Path::new(path));
            assert!(error.to_string().contains(path), "{error}");
        }
    }
}
