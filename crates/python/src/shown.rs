//! Text representations of handles: quoted strings and short descriptions of key ranges.

use pyo3::prelude::*;
use pyo3::types::PyString;
use siltstone::ScanRange;

/// Maximum bytes of a key that are shown: two such keys fit on one line.
const KEY_BYTES: usize = 32;

/// The text as quoted by Python.
pub(crate) fn quoted(py: Python<'_>, text: &str) -> PyResult<String> {
    Ok(PyString::new(py, text).repr()?.to_cow()?.into_owned())
}

/// A key as written by Python, truncated if it is long.
fn key(key: &[u8]) -> String {
    let shown = key.get(..KEY_BYTES).unwrap_or(key);
    let more = if shown.len() < key.len() { "…" } else { "" };
    format!("b'{}'{more}", shown.escape_ascii())
}

/// Bounds, direction and limit of a scan.
pub(crate) fn range(range: &ScanRange) -> String {
    let mut shown = match (&range.start, &range.end) {
        (None, None) => "every key".to_owned(),
        (Some(start), None) => format!("from {}", key(start)),
        (None, Some(end)) => format!("below {}", key(end)),
        (Some(start), Some(end)) => format!("[{}, {})", key(start), key(end)),
    };
    shown.push_str(if range.reverse { ", descending" } else { ", ascending" });
    if let Some(limit) = range.limit {
        shown.push_str(&format!(", limit {limit}"));
    }
    shown
}
