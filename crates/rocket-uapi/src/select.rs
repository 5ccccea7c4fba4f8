// SPDX-License-Identifier: MIT OR Apache-2.0
//! The choice of a device, in the form that all tools, libraries and tests accept.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::device::Device;
use crate::discover::{DiscoverError, RefusedNode};

/// Environment variable that [`Selector::from_env`] reads.
pub const DEVICE_VARIABLE: &str = "ROCKET_DEVICE";

/// The last of the reasons for the model, if the choice was [`Selector::Auto`].
pub const NO_NPU: &str = "no NPU here: software model (`npu-probe doctor` says why)";

const MODEL_WITH: &str = "model:";

/// A choice of device: `auto`, `model`, `model:` with options, or the path of a device
/// node. The options are checked when the model is opened.
///
/// ```
/// use rocket_uapi::Selector;
///
/// assert_eq!("model".parse(), Ok(Selector::Model));
/// let node: Selector = "/dev/accel/accel0".parse()?;
/// assert_eq!(node.to_string(), "/dev/accel/accel0");
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Selector {
    /// A usable kernel device if there is one, else the software model.
    #[default]
    Auto,
    /// The software model.
    Model,
    /// The software model with options: `driver=linux-6.18,bugs=all`.
    ModelWith(String),
    /// This device node and no other.
    Path(PathBuf),
}

impl Selector {
    /// The value of `ROCKET_DEVICE`; [`Selector::Auto`] if it is unset or empty.
    #[must_use]
    pub fn from_env() -> Self {
        std::env::var_os(DEVICE_VARIABLE).map_or(Self::Auto, |value| Self::from(value.as_os_str()))
    }

    /// Opens the kernel device, or returns [`Selected::Model`] if the choice is the
    /// software model, or is `auto` and no kernel device is usable.
    ///
    /// # Errors
    /// The choice is a path, and the node there is not a usable NPU.
    pub fn select(&self) -> Result<Selected, RefusedNode> {
        let model = |options: &str, why: String| Selected::Model {
            options: options.to_owned(),
            why: vec![why],
        };
        match self {
            Self::Auto => Ok(auto(Device::discover())),
            Self::Model => Ok(model("", "the software model was requested".to_owned())),
            Self::ModelWith(options) => {
                let why = format!("the software model was requested, with {options}");
                Ok(model(options, why))
            }
            Self::Path(path) => match Device::open(path) {
                Ok(device) => Ok(Selected::Kernel {
                    device,
                    why: format!("{} was requested", path.display()),
                }),
                Err(error) => {
                    let mut refused = RefusedNode::new(path, &error);
                    // A word, which is hardly the path of a node.
                    if path.file_name() == Some(path.as_os_str()) && !path.exists() {
                        refused.reason =
                            "there is no such file; a device is `auto`, `model`, or a \
                                          path such as /dev/accel/accel0 (did you mean `model`?)"
                                .to_owned();
                    }
                    Err(refused)
                }
            },
        }
    }
}

/// The device that a [`Selector`] selects on this machine.
#[derive(Clone, Debug)]
pub enum Selected {
    /// A device of the kernel.
    Kernel {
        /// The open device.
        device: Device,
        /// The reason for the choice, for humans.
        why: String,
    },
    /// The software model, which the caller must start.
    Model {
        /// Its options, as text.
        options: String,
        /// The reasons for the choice, one line each, for humans.
        why: Vec<String>,
    },
}

/// The kernel device that was found, else the model.
fn auto(found: Result<Device, DiscoverError>) -> Selected {
    match found {
        Ok(device) => {
            let why = format!("{} is driven by rocket", device.info().name);
            Selected::Kernel { device, why }
        }
        Err(error) => {
            let mut why: Vec<_> = error.refused.iter().map(RefusedNode::to_string).collect();
            why.push(NO_NPU.to_owned());
            let options = String::new();
            Selected::Model { options, why }
        }
    }
}

impl From<&OsStr> for Selector {
    /// Parses `auto`, `model`, `model:...` and the empty string (`auto`); any other text is
    /// a path.
    fn from(value: &OsStr) -> Self {
        let Some(text) = value.to_str() else {
            return Self::Path(PathBuf::from(value));
        };
        match (text, text.strip_prefix(MODEL_WITH)) {
            ("" | "auto", _) => Self::Auto,
            ("model", _) => Self::Model,
            (_, Some(options)) => Self::ModelWith(options.to_owned()),
            _ => Self::Path(PathBuf::from(value)),
        }
    }
}

impl FromStr for Selector {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::from(OsStr::new(text)))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Model => f.write_str("model"),
            Self::ModelWith(options) => write!(f, "{MODEL_WITH}{options}"),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_selector_agree() {
        for text in [
            "auto",
            "model",
            "model:bugs=all,cores=1",
            "model:",
            "/dev/accel/accel3",
            "./model:",
            "Model",
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.to_string(), text);
        }
        assert_eq!("".parse(), Ok(Selector::Auto));
        assert_eq!(
            "model:bugs=all".parse(),
            Ok(Selector::ModelWith("bugs=all".into()))
        );
        assert_eq!("Model".parse(), Ok(Selector::Path("Model".into())));
    }
    #[test]
    fn auto_lists_the_nodes_that_it_refused() {
        let refused = RefusedNode {
            path: "/dev/accel/accel0".into(),
            reason: "it is another accelerator".into(),
        };
        let refused = vec![refused];
        let Selected::Model { options, why } = auto(Err(DiscoverError { refused })) else {
            panic!("no device was found");
        };
        assert_eq!(options, "");
        assert_eq!(why[0], "/dev/accel/accel0: it is another accelerator");
        assert!(why[1].contains("software model"));
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens device nodes")]
    fn a_named_node_is_never_replaced() {
        for path in ["/dev/null", "/no/such/node"] {
            let refused = Selector::Path(path.into()).select().unwrap_err();
            assert_eq!(refused.path, PathBuf::from(path));
        }
    }
}
