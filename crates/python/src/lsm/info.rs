//! The properties of a table, as `siltstone.lsm.SstInfo`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use siltstone::UnixMillis;
use siltstone::tables::TableInfo;

/// The `SstInfo` of a table at `url`, or of a table without a URL.
pub(super) fn info<'py>(
    py: Python<'py>,
    url: Option<&str>,
    table: &TableInfo,
) -> PyResult<Bound<'py, PyAny>> {
    let facts = PyDict::new(py);
    facts.set_item("url", url)?;
    facts.set_item("id", table.id.to_string())?;
    facts.set_item("rows", table.entries)?;
    facts.set_item("tombstones", table.tombstones)?;
    facts.set_item("bytes", table.bytes)?;
    facts.set_item("key_bytes", table.key_bytes)?;
    facts.set_item("value_bytes", table.value_bytes)?;
    facts.set_item("first_key", PyBytes::new(py, &table.first_key))?;
    facts.set_item("last_key", PyBytes::new(py, &table.last_key))?;
    facts.set_item("min_seq", table.min_seq.get())?;
    facts.set_item("max_seq", table.max_seq.get())?;
    facts.set_item("first_expiry", moment(py, table.min_expiry)?)?;
    facts.set_item("last_expiry", moment(py, table.max_expiry)?)?;
    facts.set_item("checksum", table.checksum)?;
    py.import("siltstone.lsm")?.getattr("SstInfo")?.call((), Some(&facts))
}

/// An aware `datetime` in UTC; the largest datetime for times after the year 9999.
fn moment<'py>(py: Python<'py>, at: Option<UnixMillis>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(UnixMillis(millis)) = at else { return Ok(None) };
    let module = py.import("datetime")?;
    let (class, utc) = (module.getattr("datetime")?, module.getattr("timezone")?.getattr("utc")?);
    let named = PyDict::new(py);
    named.set_item("tzinfo", &utc)?;
    let epoch = class.call((1970, 1, 1), Some(&named))?;
    named.clear();
    named.set_item("milliseconds", millis)?;
    let later = module.getattr("timedelta")?.call((), Some(&named));
    let moment = later.and_then(|later| epoch.call_method1("__add__", (later,)));
    match moment {
        Ok(moment) => Ok(Some(moment)),
        Err(_) => {
            named.clear();
            named.set_item("tzinfo", utc)?;
            class.getattr("max")?.call_method("replace", (), Some(&named)).map(Some)
        }
    }
}
