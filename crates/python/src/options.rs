//! Options: from named values to the option table of the engine and back.

use crate::argument::text;
use crate::duration::seconds;
use crate::error::{self, Raise};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyFloat, PyMapping, PyString};
use siltstone::{Error, MirroredKeys, OptionKind, OptionValue, Options};

/// The argument in errors about a name.
const OPTION_NAME: &str = "the name of an option";

/// The engine's options with `named` set.
///
/// # Errors
/// Invalid for an unknown name, a wrong type or a value out of range, with the option and its
/// range.
pub(crate) fn options(named: &Bound<'_, PyDict>) -> PyResult<Options> {
    let mut options = Options::default();
    for (name, value) in flat(named)? {
        set(&mut options, &name, &value)?;
    }
    options.validate().raise(named.py())?;
    Ok(options)
}

/// The named options, with options of groups flattened to `group.option`.
fn flat<'py>(named: &Bound<'py, PyDict>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
    let mut flat = Vec::new();
    for (name, value) in named.iter() {
        let name = text(&name, OPTION_NAME)?;
        match value.cast::<PyMapping>() {
            Ok(group) if Options::GROUPS.contains(&name.as_str()) => {
                for pair in group.items()?.iter() {
                    let (own, value): (Bound<'py, PyAny>, Bound<'py, PyAny>) = pair.extract()?;
                    let own = text(&own, OPTION_NAME)?;
                    flat.push((format!("{name}.{own}"), value));
                }
            }
            _ => flat.push((name, value)),
        }
    }
    Ok(flat)
}

fn set(options: &mut Options, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let given = option_value(name, value)?;
    options.set(name, given).raise(value.py())
}

fn option_value(name: &str, value: &Bound<'_, PyAny>) -> PyResult<OptionValue> {
    if value.is_none() {
        return Ok(OptionValue::Nothing);
    }
    if let Ok(on) = value.cast::<PyBool>() {
        return Ok(OptionValue::Bool(on.is_true()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(OptionValue::Text(text.to_cow()?.into_owned()));
    }
    if let Ok((start, end)) = value.extract::<(Option<Vec<u8>>, Option<Vec<u8>>)>() {
        return Ok(OptionValue::Text(MirroredKeys { start, end }.to_string()));
    }
    if value.hasattr("__fspath__")? {
        let path: String = value.call_method0("__fspath__")?.extract()?;
        return Ok(OptionValue::Text(path));
    }
    let is_delta = value.is_instance_of::<PyDelta>();
    // The engine knows a duration only as a number of seconds, which a ratio or a count is not.
    if is_delta && Options::info(name).raise(value.py())?.kind != OptionKind::Duration {
        return Err(refused(name, value, "the option is not a duration")?);
    }
    let is_real = is_delta || value.is_instance_of::<PyFloat>();
    // Any type that counts as an integer, including NumPy integers.
    if !is_real && let Ok(number) = value.call_method0("__index__") {
        return match number.extract::<u64>() {
            Ok(number) => Ok(OptionValue::Int(number)),
            Err(_) => Err(refused(name, value, "an option is out of range")?),
        };
    }
    match seconds(value)? {
        Some(seconds) => Ok(OptionValue::Seconds(seconds)),
        None => Err(refused(name, value, "an option has a value of the wrong type")?),
    }
}

/// The error of the engine for values that [`OptionValue`] cannot hold.
fn refused(name: &str, value: &Bound<'_, PyAny>, text: &str) -> PyResult<PyErr> {
    let py = value.py();
    let info = Options::info(name).raise(py)?;
    let given = value.repr()?.to_cow()?.into_owned();
    let error = Error::invalid(text).with("option", name).with("given", given);
    Ok(error::exception(py, &error.with("range", info.range())))
}

fn to_python<'py>(py: Python<'py>, value: OptionValue) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        OptionValue::Seconds(seconds) => PyFloat::new(py, seconds).into_any(),
        OptionValue::Int(number) => number.into_pyobject(py)?.into_any(),
        OptionValue::Bool(on) => PyBool::new(py, on).to_owned().into_any(),
        OptionValue::Text(text) => PyString::new(py, &text).into_any(),
        OptionValue::Nothing => py.None().into_bound(py),
    })
}

/// Checks `named` and returns it in plain types: seconds as floats, counts as integers, groups as
/// dicts.
#[pyfunction]
pub(crate) fn check_options<'py>(named: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let py = named.py();
    let options = options(named)?;
    let checked = PyDict::new(py);
    for (name, _) in flat(named)? {
        let value = options.get(&name).map(|value| to_python(py, value)).transpose()?;
        match name.split_once('.').filter(|(group, _)| Options::GROUPS.contains(group)) {
            None => checked.set_item(name, value)?,
            Some((group, own)) => {
                let within = match checked.get_item(group)? {
                    Some(within) => within.cast_into::<PyDict>()?,
                    None => PyDict::new(py),
                };
                within.set_item(own, value)?;
                checked.set_item(group, within)?;
            }
        }
    }
    Ok(checked)
}

/// Checks the options `named` of a group one by one and returns them in plain types. Whether they
/// are consistent with the other options is checked when all options are combined.
#[pyfunction]
pub(crate) fn check_group<'py>(
    group: &str,
    named: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let py = named.py();
    let mut options = Options::default();
    let checked = PyDict::new(py);
    for (own, value) in named.iter() {
        let name = format!("{group}.{}", text(&own, OPTION_NAME)?);
        set(&mut options, &name, &value)?;
        let value = options.get(&name).map(|value| to_python(py, value)).transpose()?;
        checked.set_item(own, value)?;
    }
    Ok(checked)
}

/// One tuple for each option, including those of groups: name, kind, default, range in words,
/// meaning.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a row of a table, taken apart on the Python side")]
pub(crate) fn option_table<'py>(
    py: Python<'py>,
) -> PyResult<Vec<(&'static str, &'static str, Bound<'py, PyAny>, String, &'static str)>> {
    let defaults = Options::default();
    let rows = Options::all().map(|info| {
        let kind = match info.kind {
            OptionKind::Duration => "seconds",
            OptionKind::Bytes => "bytes",
            OptionKind::Count => "count",
            OptionKind::Bool => "bool",
            OptionKind::Text => "text",
            OptionKind::Path => "path",
            OptionKind::Keys => "keys",
            OptionKind::Rate => "per second",
            OptionKind::Ratio => "ratio",
        };
        let default = defaults.get(info.name).unwrap_or(OptionValue::Nothing);
        Ok((info.name, kind, to_python(py, default)?, info.range(), info.doc))
    });
    rows.collect()
}
