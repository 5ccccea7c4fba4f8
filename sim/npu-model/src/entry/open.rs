// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens the device that a [`Selector`] selects.

use std::sync::Arc;

use rocket_uapi::{Device, RefusedNode, Selected, Selector};

use crate::base::options::{ModelOptions, OptionError};
use crate::entry::model::Model;

/// An open device, and the reasons for its choice.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Opened {
    /// The open device, of a kernel or of the model.
    pub device: Device,
    /// The model, if the device is one. Its events show what a kernel does not report:
    /// why a job was dropped or killed.
    pub model: Option<Arc<Model>>,
    /// The reasons for the choice, one line each, for humans.
    pub why: Vec<String>,
}

/// The requested device cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The named node is not a usable NPU.
    #[error("no NPU at {node}. For the software model, choose the device `auto` or `model`")]
    NoDevice {
        /// The node, and what is wrong with it.
        node: RefusedNode,
    },
    /// The model has no such option, or the option no such value.
    #[error(transparent)]
    Options(#[from] OptionError),
}

/// Opens the device that `selector` names.
///
/// # Errors
/// [`OpenError::NoDevice`] if the named node cannot be used, [`OpenError::Options`] for
/// wrong options of the model. Other selectors always lead to a device.
pub fn open(selector: &Selector) -> Result<Opened, OpenError> {
    open_with(selector, |_| ())
}

/// Opens the device that `selector` names. If that is the model, `adjust` can change its
/// options first.
///
/// # Errors
/// As [`open`].
pub fn open_with(
    selector: &Selector,
    adjust: impl FnOnce(&mut ModelOptions),
) -> Result<Opened, OpenError> {
    match selector.select() {
        Ok(Selected::Kernel { device, why }) => Ok(Opened {
            device,
            model: None,
            why: vec![why],
        }),
        Ok(Selected::Model { options, why }) => {
            let mut options: ModelOptions = options.parse()?;
            adjust(&mut options);
            let model = Model::new(options);
            Ok(Opened {
                device: model.open_device(),
                model: Some(model),
                why,
            })
        }
        Err(node) => Err(OpenError::NoDevice { node }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    #[cfg_attr(miri, ignore = "opens device nodes")]
    fn the_error_names_the_node_and_the_alternatives() {
        let error = open(&Selector::Path("/no/such/node".into())).unwrap_err();
        let line = error.to_string();
        assert!(
            line.contains("/no/such/node") && line.contains("`model`"),
            "{line}"
        );
    }
}
