//! Opening: from a URL and options to a handle.

use crate::checkpoint::read_at;
use crate::database::Database;
use crate::error::Raise;
use crate::operator::operator;
use crate::options::options;
use crate::process::Process;
use crate::reader::{Place, Reader};
use crate::wait::wait;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use siltstone::store::options::StoreOptions;
use siltstone::store::url;
use siltstone::{Env, OpenOptions, task};

/// Opens a database for writing.
#[pyfunction]
#[pyo3(signature = (url, create, take_over, named, store_options, merge_operator))]
pub(crate) fn open(
    py: Python<'_>,
    url: &str,
    create: bool,
    take_over: Option<bool>,
    named: &Bound<'_, PyDict>,
    store_options: &Bound<'_, PyDict>,
    merge_operator: Option<&Bound<'_, PyAny>>,
) -> PyResult<Database> {
    let options = options(named)?;
    let merge_operator = operator(merge_operator)?;
    let process = Process::current(py)?;
    let env = env(py, process, url, &text_of(store_options)?)?;
    let how = OpenOptions { create, take_over, options, merge_operator };
    let engine = wait(py, process, siltstone::Database::open(env, how))?;
    Ok(Database::new(process, engine, shown(url)))
}

/// Opens a reader. `provider` names the function that `store_options` came from; it travels with
/// a pickle, where they do not; `described` is the merge operator as the caller gave it.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "what it takes to open one again, elsewhere")]
#[pyo3(signature = (url, named, store_options, provider, at, operator, described))]
pub(crate) fn open_reader(
    py: Python<'_>,
    url: &str,
    named: &Bound<'_, PyDict>,
    store_options: &Bound<'_, PyDict>,
    provider: Option<String>,
    at: Option<&Bound<'_, PyAny>>,
    operator: Option<&Bound<'_, PyAny>>,
    described: Option<Py<PyAny>>,
) -> PyResult<Reader> {
    let place = Place {
        url: url.to_owned(),
        options: options(named)?,
        store_options: text_of(store_options)?,
        provider,
        at: read_at(at)?,
        merge_operator: crate::operator::operator(operator)?,
        described,
    };
    Reader::open(py, place, named)
}

/// The effects for a database at `place`, a URL or a path.
///
/// # Errors
/// Invalid for a URL or store options that name no store; what the store's set-up gives.
pub(crate) fn env(
    py: Python<'_>,
    process: &'static Process,
    place: &str,
    store_options: &StoreOptions,
) -> PyResult<Env> {
    let _entered = process.handle().enter();
    let effects = task::tokio_effects(process.handle().clone());
    let store = url::parse(place, store_options, environment(), &effects).raise(py)?;
    Ok(effects.with_store(store))
}

/// The variables of this process, for stores. What is not Unicode configures none.
pub(crate) fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Store options as text.
///
/// # Errors
/// TypeError that names the option, never its value.
pub(crate) fn text_of(named: &Bound<'_, PyDict>) -> PyResult<StoreOptions> {
    let pairs = named.iter().map(|(name, value)| {
        let name: String = name.extract()?;
        let text = if let Ok(text) = value.cast::<PyString>() {
            text.to_cow()?.into_owned()
        } else if let Ok(on) = value.cast::<PyBool>() {
            on.is_true().to_string()
        } else if let Ok(number) = value.extract::<i64>() {
            number.to_string()
        } else {
            let kind = value.get_type().name()?;
            let text = format!("store option '{name}' takes text, a number or a bool, not {kind}");
            return Err(PyTypeError::new_err(text));
        };
        Ok((name, text))
    });
    pairs.collect()
}

/// The URL without what may be secret: user and password before the host, and everything from
/// the first question mark on (signatures of shared links). A path of a local folder is shown
/// whole: there, these are letters like others.
pub(crate) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let rest = rest.split('?').next().unwrap_or_default();
    let (host, path) = match rest.split_once('/') {
        Some((host, path)) => (host, Some(path)),
        None => (rest, None),
    };
    let host = host.rsplit('@').next().unwrap_or_default();
    match path {
        Some(path) => format!("{scheme}://{host}/{path}"),
        None => format!("{scheme}://{host}"),
    }
}
