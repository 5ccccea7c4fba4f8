// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shape of a model, from the values of its file.

use npu_offload::{ARCHITECTURES, ModelShape};

use crate::matmul::gguf::{GgufModel, GgufValue};

/// More layers than any model has.
const MAX_LAYERS: usize = 1 << 12;
/// More channels, or heads, than any model has.
const MAX_CHANNELS: usize = 1 << 20;

/// The model's architecture, as named in the file.
pub(super) fn architecture(model: &GgufModel) -> &str {
    match model.value("general.architecture") {
        Some(GgufValue::Text(name)) => name,
        _ => "unknown",
    }
}

/// The shape and the context length, if the file has it; or why the shape is unknown.
pub(crate) fn shape(model: &GgufModel) -> Result<(ModelShape, Option<usize>), String> {
    let given = architecture(model);
    let known = ARCHITECTURES.into_iter().find(|(name, _)| *name == given);
    let (name, every) =
        known.ok_or_else(|| format!("the attention of architecture `{given}` is not modelled"))?;
    let value = |key: &str| model.value(&format!("{name}.{key}"));
    let optional = |key: &str, most: usize| match value(key) {
        None => Ok(None),
        Some(GgufValue::Number(number)) => match usize::try_from(*number) {
            Ok(number) if (1..=most).contains(&number) => Ok(Some(number)),
            _ => Err(format!("`{name}.{key}` is {number}, which is not possible")),
        },
        Some(_) => Err(format!("`{name}.{key}` is not a single number")),
    };
    let required = |key: &str, most: usize| {
        optional(key, most)?.ok_or_else(|| format!("the file lacks `{name}.{key}`"))
    };
    let hidden = required("embedding_length", MAX_CHANNELS)?;
    let heads = required("attention.head_count", MAX_CHANNELS)?;
    let kv_heads = optional("attention.head_count_kv", MAX_CHANNELS)?.unwrap_or(heads);
    let head_dim = optional("attention.key_length", MAX_CHANNELS)?.unwrap_or(hidden / heads);
    if heads.max(kv_heads) * head_dim > MAX_CHANNELS {
        return Err(format!(
            "{heads} heads of {head_dim} channels are not possible"
        ));
    }
    let window = match every {
        Some(every) => {
            let window = optional("attention.sliding_window", MAX_CHANNELS)?;
            window.map(|window| [every, window])
        }
        None => None,
    };
    let shape = ModelShape {
        name,
        layers: required("block_count", MAX_LAYERS)?,
        hidden,
        feed_forward: required("feed_forward_length", MAX_CHANNELS)?,
        heads,
        kv_heads,
        head_dim,
        // Only weights need the vocabulary, and the file has them.
        vocabulary: 0,
        window,
    };
    let context = match value("context_length") {
        Some(GgufValue::Number(tokens)) => usize::try_from(*tokens).ok(),
        _ => None,
    };
    Ok((shape, context))
}
