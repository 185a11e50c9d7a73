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
    let forms = match (value, forms(line.kind)) {
        (OptionValue::Text(_), Some(forms)) => format!(", as {forms}"),
        _ => String::new(),
    };
    Error::invalid(format!("{} takes {}{forms}", line.name, line.range())).with("given", given)
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

/// The accepted forms of a number of this kind, for messages; `None` if it has no units.
#[must_use]
pub fn forms(kind: OptionKind) -> Option<&'static str> {
    match kind {
        OptionKind::Bytes => Some("a number of bytes, or one with KiB, MiB, GiB or TiB"),
        OptionKind::Duration => Some("a number of seconds, or numbers with ms, s, min, h or days"),
        OptionKind::Count | OptionKind::Ratio | OptionKind::Name => None,
    }
}

/// Parses numbers with units of their kind, which add up (`64MiB`, `12h`, `1h 30min`), or one
/// number without a unit; `None` for other text.
#[must_use]
pub fn with_unit(kind: OptionKind, text: &str) -> Option<f64> {
    let mut rest = text.trim();
    let mut sum = None;
    loop {
        let (number, after) = split(rest, |letter| letter.is_ascii_digit() || letter == '.');
        let number: f64 = number.parse().ok()?;
        let (unit, after) = split(after, char::is_alphabetic);
        if unit.is_empty() {
            return (sum.is_none() && after.is_empty()).then_some(number);
        }
        let total = sum.unwrap_or(0.0) + number * factor(kind, unit)?;
        if after.is_empty() {
            return Some(total);
        }
        (sum, rest) = (Some(total), after);
    }
}

/// The letters of `text` up to the first that does not belong, and the rest without spaces around.
fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|letter| !belongs(letter)).unwrap_or(text.len());
    let (first, rest) = text.split_at(end);
    (first, rest.trim_start())
}

/// The factor of a unit; those of durations are the names that `humantime` knows (`2h`, `7days`).
fn factor(kind: OptionKind, unit: &str) -> Option<f64> {
    match kind {
        OptionKind::Bytes => {
            let units = ["B", "KiB", "MiB", "GiB", "TiB"];
            let place = units.iter().position(|name| name.eq_ignore_ascii_case(unit))?;
            Some(1024f64.powi(place as i32))
        }
        OptionKind::Duration => {
            humantime::parse_duration(&format!("1{unit}")).ok().map(|one| one.as_secs_f64())
        }
        OptionKind::Count | OptionKind::Ratio | OptionKind::Name => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_with_their_units() {
        let seconds = |text| with_unit(OptionKind::Duration, text);
        assert_eq!(seconds(" 90 "), Some(90.0));
        assert_eq!(seconds("0.5h"), Some(1800.0));
        assert_eq!(seconds("20ms"), Some(0.02));
        assert_eq!(seconds("1h30min"), Some(5400.0));
        assert_eq!(seconds("7days 30min 10 s"), Some(606_610.0));
        assert_eq!(seconds("1 week"), seconds("7d"));
        for wrong in ["", "h", "1h 30", "1 2", "1h,", "-1s", "1 parsec", "1..5", "inf", "1MiB"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
        let bytes = |text| with_unit(OptionKind::Bytes, text);
        assert_eq!(bytes("1.5KiB"), Some(1536.0));
        assert_eq!(bytes("2 tib"), Some(2f64.powi(41)));
        for wrong in ["64MB", "1K", "1h", "MiB"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        assert_eq!(with_unit(OptionKind::Count, "16"), Some(16.0));
        assert_eq!(with_unit(OptionKind::Count, "16B"), None);
    }
}
