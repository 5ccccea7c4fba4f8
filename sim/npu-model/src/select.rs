// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which device to use: the one question that every tool and test asks the
//! same way.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Environment variable that [`Selector::from_env`] reads.
pub const DEVICE_VARIABLE: &str = "ROCKET_DEVICE";

/// What comes before the options of a model.
const MODEL_WITH: &str = "model:";

/// A choice of device: `auto`, `model`, `model:` with options (as
/// [`ModelOptions`](crate::ModelOptions) takes them, judged when it is
/// opened), or the path of a device node.
///
/// ```
/// use npu_model::Selector;
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
    /// What the environment says: `ROCKET_DEVICE`, or [`Selector::Auto`]
    /// where it is unset or empty.
    #[must_use]
    pub fn from_env() -> Self {
        std::env::var_os(DEVICE_VARIABLE).map_or(Self::Auto, |value| Self::from(value.as_os_str()))
    }
}

impl From<&OsStr> for Selector {
    /// Anything but `auto`, `model`, `model:...` and the empty string is a
    /// path.
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
}
