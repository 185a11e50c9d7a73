//! Options of compaction among the engine's: the same names, kinds and values everywhere.

use super::{OptionInfo, OptionKind, OptionValue};
use siltstone_base::{Error, Result};
use siltstone_manifest::compaction::CompactionOptions;
use siltstone_manifest::compaction::options as compaction;

/// The option of compaction `name`, flat or dotted; `None` when there is none.
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

/// A value as the compaction's table takes it.
///
/// # Errors
/// Invalid for what none of its options takes.
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

/// The kind of compaction's options that is written in the same units; `None` for words and paths.
fn unit_kind(kind: OptionKind) -> Option<compaction::OptionKind> {
    match kind {
        OptionKind::Bytes => Some(compaction::OptionKind::Bytes),
        OptionKind::Count => Some(compaction::OptionKind::Count),
        OptionKind::Ratio | OptionKind::Rate => Some(compaction::OptionKind::Ratio),
        OptionKind::Duration => Some(compaction::OptionKind::Duration),
        OptionKind::Bool | OptionKind::Text | OptionKind::Path | OptionKind::Keys => None,
    }
}

/// What a number of the kind may be given as, for messages; `None` if it has no units.
pub(crate) fn forms(kind: OptionKind) -> Option<&'static str> {
    unit_kind(kind).and_then(compaction::forms)
}

/// A number that was given as text, perhaps with its unit, as a number: the engine's own options
/// take what those of compaction take. Everything else as it is.
pub(crate) fn in_units(info: &OptionInfo, value: OptionValue) -> OptionValue {
    let Some(kind) = unit_kind(info.kind) else { return value };
    let OptionValue::Text(text) = &value else { return value };
    let whole = matches!(info.kind, OptionKind::Bytes | OptionKind::Count);
    match compaction::with_unit(kind, text) {
        // What is too large for an integer is out of every range.
        Some(number) if whole && number.fract() == 0.0 => OptionValue::Int(number as u64),
        Some(number) if !whole => OptionValue::Seconds(number),
        _ => value,
    }
}

/// The seconds of a text, as options take it: numbers with `ms`, `s`, `min`, `h` or `days`, or one
/// number of seconds. `None` for other text.
#[must_use]
pub fn seconds_of_text(text: &str) -> Option<f64> {
    compaction::with_unit(compaction::OptionKind::Duration, text)
}

/// The bytes of a text, as options take it: a number with `KiB`, `MiB`, `GiB` or `TiB`, or one of
/// bytes. `None` for other text, and for what is no whole number below 2^53.
#[must_use]
pub fn bytes_of_text(text: &str) -> Option<u64> {
    let bytes = compaction::with_unit(compaction::OptionKind::Bytes, text)?;
    (bytes.fract() == 0.0 && bytes < 2f64.powi(53)).then_some(bytes as u64)
}

/// The way back.
pub(crate) fn from_compaction(value: compaction::OptionValue) -> OptionValue {
    match value {
        compaction::OptionValue::Int(number) => OptionValue::Int(number),
        compaction::OptionValue::Number(number) => OptionValue::Seconds(number),
        compaction::OptionValue::Text(text) => OptionValue::Text(text),
        compaction::OptionValue::Nothing => OptionValue::Nothing,
    }
}
