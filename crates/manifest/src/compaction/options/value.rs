//! Values of options as callers pass them: plain, or as text with a unit.

use super::{OptionKind, OptionLine};
use siltstone_base::{Error, Result};

/// A value as passed by a caller in another language.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// A count or a number of bytes.
    Int(u64),
    /// A number of seconds or a ratio.
    Number(f64),
    /// A name, or a number with a unit (`64MiB`, `12h`).
    Text(String),
    /// "None": no limit, or the default of the scheduler.
    Nothing,
}

pub(super) fn wrong(line: &OptionLine, value: &OptionValue) -> Error {
    let given = match value {
        OptionValue::Int(value) => value.to_string(),
        OptionValue::Number(value) => value.to_string(),
        OptionValue::Text(value) => value.clone(),
        OptionValue::Nothing => "none".to_owned(),
    };
    Error::invalid(format!("{} takes {}", line.name, line.range())).with("given", given)
}

/// The value as a number in the unit of the kind, checked against the range; `None` for "none".
pub(super) fn number(line: &OptionLine, value: &OptionValue) -> Result<Option<f64>> {
    let number = match value {
        OptionValue::Nothing if line.optional => return Ok(None),
        OptionValue::Text(text) if text == "none" && line.optional => return Ok(None),
        OptionValue::Int(value) => Some(*value as f64),
        OptionValue::Number(value) => Some(*value),
        OptionValue::Text(text) => with_unit(line.kind, text),
        OptionValue::Nothing => None,
    };
    let whole = !matches!(line.kind, OptionKind::Ratio | OptionKind::Duration);
    let fits =
        |number: &f64| (line.min..=line.max).contains(number) && (!whole || number.fract() == 0.0);
    match number.filter(fits) {
        None => Err(wrong(line, value)),
        some => Ok(some),
    }
}

/// The units of each kind and their factors.
const UNITS: [(OptionKind, &str, f64); 10] = [
    (OptionKind::Bytes, "B", 1.0),
    (OptionKind::Bytes, "KiB", 1024.0),
    (OptionKind::Bytes, "MiB", 1024.0 * 1024.0),
    (OptionKind::Bytes, "GiB", 1024.0 * 1024.0 * 1024.0),
    (OptionKind::Duration, "ms", 0.001),
    (OptionKind::Duration, "s", 1.0),
    (OptionKind::Duration, "min", 60.0),
    (OptionKind::Duration, "h", 3600.0),
    (OptionKind::Duration, "d", 86_400.0),
    (OptionKind::Count, "", 1.0),
];

/// Parses a number with one of the units of its kind (`64MiB`, `12h`), or without a unit; `None`
/// for other text.
#[must_use]
pub fn with_unit(kind: OptionKind, text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'));
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim();
    let known = UNITS.iter().find(|(of, name, _)| *of == kind && *name == unit);
    match known {
        Some((_, _, times)) => Some(number * times),
        None => unit.is_empty().then_some(number),
    }
}
