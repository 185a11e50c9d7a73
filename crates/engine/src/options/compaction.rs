//! Compaction options as options of the engine: converts kinds and values between the two tables.

use super::{OptionInfo, OptionKind, OptionValue};
use siltstone_base::{Error, Result};
use siltstone_manifest::compaction::CompactionOptions;
use siltstone_manifest::compaction::options as compaction;

/// The compaction option `name`, flat or dotted; `None` if there is none.
pub(crate) fn of_compaction(name: &str) -> Option<OptionInfo> {
    let line = CompactionOptions::line(name).ok()?;
    let kind = match line.kind {
        compaction::OptionKind::Bytes => OptionKind::Bytes,
        compaction::OptionKind::Count => OptionKind::Count,
        compaction::OptionKind::Ratio => OptionKind::Ratio,
        compaction::OptionKind::Duration => OptionKind::Duration,
        compaction::OptionKind::Name => OptionKind::Text,
    };
    Some(OptionInfo {
        name: line.name,
        kind,
        min: line.min,
        max: line.max,
        doc: line.doc,
        line: Some(line),
    })
}

/// Converts a value to one of a compaction option.
///
/// # Errors
/// Invalid for a boolean: no compaction option has such values.
pub(crate) fn to_compaction(
    info: &OptionInfo,
    value: OptionValue,
) -> Result<compaction::OptionValue> {
    Ok(match value {
        OptionValue::Int(number) => compaction::OptionValue::Int(number),
        OptionValue::Seconds(number) => compaction::OptionValue::Number(number),
        OptionValue::Text(text) => compaction::OptionValue::Text(text),
        OptionValue::Nothing => compaction::OptionValue::Nothing,
        OptionValue::Bool(given) => {
            return Err(Error::invalid("an option has a value of the wrong type")
                .with("option", info.name)
                .with("given", given)
                .with("range", info.range()));
        }
    })
}

/// The kind of compaction option whose values have the same units; `None` for a kind without units.
fn unit_kind(kind: OptionKind) -> Option<compaction::OptionKind> {
    match kind {
        OptionKind::Bytes => Some(compaction::OptionKind::Bytes),
        OptionKind::Count => Some(compaction::OptionKind::Count),
        OptionKind::Ratio | OptionKind::Rate => Some(compaction::OptionKind::Ratio),
        OptionKind::Duration => Some(compaction::OptionKind::Duration),
        OptionKind::Bool | OptionKind::Text | OptionKind::Path | OptionKind::Keys => None,
    }
}

/// The accepted forms of a number of this kind, for messages; `None` if it has no units.
pub(crate) fn forms(kind: OptionKind) -> Option<&'static str> {
    unit_kind(kind).and_then(compaction::forms)
}

/// Converts a number that was given as text, perhaps with a unit, to a number. Returns other values
/// unchanged.
pub(crate) fn in_units(info: &OptionInfo, value: OptionValue) -> OptionValue {
    let Some(kind) = unit_kind(info.kind) else { return value };
    let OptionValue::Text(text) = &value else { return value };
    let whole = matches!(info.kind, OptionKind::Bytes | OptionKind::Count);
    match compaction::with_unit(kind, text) {
        // A number that is too large for an integer is outside every range.
        Some(number) if whole && number.fract() == 0.0 => OptionValue::Int(number as u64),
        Some(number) if !whole => OptionValue::Seconds(number),
        _ => value,
    }
}

/// Parses a duration as options accept it, in seconds: numbers with `ms`, `s`, `min`, `h` or
/// `days`, or one number of seconds. `None` for other text.
#[must_use]
pub fn seconds_of_text(text: &str) -> Option<f64> {
    compaction::with_unit(compaction::OptionKind::Duration, text)
}

/// Parses a size as options accept it, in bytes: a number with `KiB`, `MiB`, `GiB` or `TiB`, or a
/// number of bytes. `None` for other text, and for a number that is not whole or not below 2^53.
#[must_use]
pub fn bytes_of_text(text: &str) -> Option<u64> {
    let bytes = compaction::with_unit(compaction::OptionKind::Bytes, text)?;
    (bytes.fract() == 0.0 && bytes < 2f64.powi(53)).then_some(bytes as u64)
}

/// Converts a value of a compaction option.
pub(crate) fn from_compaction(value: compaction::OptionValue) -> OptionValue {
    match value {
        compaction::OptionValue::Int(number) => OptionValue::Int(number),
        compaction::OptionValue::Number(number) => OptionValue::Seconds(number),
        compaction::OptionValue::Text(text) => OptionValue::Text(text),
        compaction::OptionValue::Nothing => OptionValue::Nothing,
    }
}
