//! Opening: from a URL and options to a handle. The conversion of the arguments opens nothing, so
//! an invalid argument has no effect.

use crate::argument::{flag, optional_flag, text};
use crate::checkpoint::read_at;
use crate::database::{Database, OpenPlace};
use crate::error::Raise;
use crate::operator::operator;
use crate::options::options;
use crate::process::Process;
use crate::reader::{Place, Reader};
use crate::shared::{self, Opening, SharedPlace};
use crate::wait::wait;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use siltstone::store::options::{OptionsSource, StoreOptions};
use siltstone::store::url;
use siltstone::{Env, Occupancy, OpenOptions, OpenSchema, Result, TransientOpen, task};
use std::sync::Arc;

/// The arguments of an open for writing, converted from Python.
pub(crate) struct Arguments {
    pub(crate) process: &'static Process,
    pub(crate) env: Env,
    pub(crate) opening: Opening,
    /// The registry entry through which openers share the handle.
    pub(crate) meeting: Option<Arc<SharedPlace>>,
    pub(crate) place: OpenPlace,
}

/// How to open: whether to create the database if it does not exist (`create`), what to do about
/// the previous writer (`take_over`, see [`OpenOptions`]), whether the handle is shared, whether
/// the database accepts ingest jobs behind all other data, and, for a handle that is opened only
/// briefly, whether it fences other handles of its kind.
///
/// The members are converted in [`Arguments::new`], where their errors get names.
#[derive(FromPyObject)]
pub(crate) struct OpenMode<'py>(
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Option<bool>,
);

impl Arguments {
    /// # Errors
    /// TypeError, Invalid, Unsupported, as for opening. Nothing is opened then.
    pub(crate) fn new(
        py: Python<'_>,
        url: &str,
        OpenMode(create, take_over, shared, allow_ingest_behind, transient): OpenMode<'_>,
        named: &Bound<'_, PyDict>,
        store_options: &Bound<'_, PyDict>,
        merge_operator: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Arguments> {
        let (create, take_over) =
            (flag(&create, "create")?, optional_flag(&take_over, "take_over")?);
        let shared = flag(&shared, "shared")?;
        let allow_ingest_behind = flag(&allow_ingest_behind, "allow_ingest_behind")?;
        let options = options(named)?;
        let merge_operator = operator(merge_operator)?;
        let process = Process::current(py)?;
        let store_options = text_of(store_options)?;
        let env = env(py, process, url, &store_options)?;
        let place = OpenPlace { shown: shown(url), key: shared::place(py, &env)? };
        let meeting = shared.then(|| process.meeting(place.key.clone()));
        let how = OpenOptions {
            create,
            take_over,
            transient: transient.map(|ends_others| TransientOpen { ends_others }),
            options,
            merge_operator,
            schema: None,
            allow_ingest_behind,
        };
        let named = named.keys().extract()?;
        let opening = Opening { how, named, store_options };
        Ok(Arguments { process, env, opening, meeting, place })
    }

    /// For a table with these columns: the table is created with them, and an existing table with
    /// other columns is refused.
    pub(crate) fn of_table(mut self, schema: OpenSchema) -> Arguments {
        self.opening.how.schema = Some(schema);
        self
    }

    /// Whether other openers may share the handle.
    pub(crate) fn is_shared(&self) -> bool {
        self.meeting.is_some()
    }

    /// Opens the database, once handles of this process that were dropped while open are closed:
    /// at the latest after the deadline. `occupancy` ends an unshared open that the caller no
    /// longer waits for.
    ///
    /// # Errors
    /// As the open of the engine; Invalid if a shared handle is open with other options.
    pub(crate) async fn open(self, occupancy: Occupancy) -> Result<Database> {
        let Arguments { process, env, opening, meeting, place } = self;
        let closing = async {
            process.await_closing(&place.key).await;
            Ok(())
        };
        // After the deadline the opening takes over, as from any writer that does not answer.
        drop(env.deadline(opening.how.options.deadline, "open", closing).await);
        match meeting {
            Some(meeting) => shared::open(process, meeting, env, opening, place).await,
            None => {
                let engine = siltstone::Database::open_as(env, opening.how, occupancy).await?;
                Ok(Database::new(process, engine, place))
            }
        }
    }
}

/// Opens a database for writing.
#[pyfunction]
#[pyo3(signature = (url, mode, named, store_options, merge_operator))]
pub(crate) fn open(
    py: Python<'_>,
    url: &str,
    mode: OpenMode<'_>,
    named: &Bound<'_, PyDict>,
    store_options: &Bound<'_, PyDict>,
    merge_operator: Option<&Bound<'_, PyAny>>,
) -> PyResult<Database> {
    let arguments = Arguments::new(py, url, mode, named, store_options, merge_operator)?;
    wait(py, arguments.process, arguments.open(Occupancy::default()))
}

/// Opens a reader. `provider` is the name of the function that returned `store_options`; a pickle
/// contains the name but not the options. `described` is the merge operator as the caller passed
/// it.
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

/// The environment (store, clock, randomness) for a database at `place`, a URL or a path.
///
/// # Errors
/// Invalid for a URL or store options that do not describe a store; errors of setting up the store.
pub(crate) fn env(
    py: Python<'_>,
    process: &'static Process,
    place: &str,
    store_options: &StoreOptions,
) -> PyResult<Env> {
    let _entered = process.handle().enter();
    let effects = task::tokio_effects(process.handle().clone());
    // Without the interpreter lock: an AWS profile may run a process to get credentials.
    let parse = || url::parse(place, store_options, environment(), &effects);
    let store = py.detach(parse).raise(py)?;
    Ok(effects.with_store(store))
}

/// The environment variables of this process, for stores. Variables that are not Unicode are
/// ignored.
pub(crate) fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// A function of the caller that returns store options.
struct PythonSource(Py<PyAny>);

impl OptionsSource for PythonSource {
    fn store_options(&self) -> Result<StoreOptions> {
        let called = Python::try_attach(|py| {
            let given = self.0.bind(py).call0()?;
            plain_text_of(given.cast::<PyDict>()?)
        });
        let failed = |text: String| {
            let text = format!("the function that gives store options failed: {text}");
            siltstone::Error::new(siltstone::ErrorKind::Denied, text)
        };
        let called = called.ok_or_else(|| failed("the interpreter has ended".to_owned()))?;
        called.map_err(|error| failed(error.to_string()))
    }
}

/// Store options as text. A dict with the attribute `renewed` was returned by a function, which can
/// be called again for newer options.
///
/// # Errors
/// TypeError that contains the name of the option, never its value.
pub(crate) fn text_of(named: &Bound<'_, PyDict>) -> PyResult<StoreOptions> {
    let options = plain_text_of(named)?;
    Ok(match named.getattr_opt("renewed")? {
        Some(function) => options.renewed_by(Arc::new(PythonSource(function.unbind()))),
        None => options,
    })
}

fn plain_text_of(named: &Bound<'_, PyDict>) -> PyResult<StoreOptions> {
    let pairs = named.iter().map(|(name, value)| {
        let name = text(&name, "the name of a store option")?;
        let text = if let Ok(text) = value.cast::<PyString>() {
            text.to_cow()?.into_owned()
        } else if let Ok(on) = value.cast::<PyBool>() {
            on.is_true().to_string()
        } else if let Ok(number) = value.extract::<i64>() {
            number.to_string()
        } else if let (EXPIRES_AT, Ok(moment)) = (name.as_str(), moment_of(&value)) {
            moment.to_string()
        } else {
            let kind = value.get_type().name()?;
            let text =
                format!("store option '{name}' takes text, a whole number or a bool, not {kind}");
            return Err(PyTypeError::new_err(text));
        };
        Ok((name, text))
    });
    pairs.collect()
}

/// The only option that may be a point in time.
const EXPIRES_AT: &str = "expires_at";

/// Seconds since the Unix epoch, from a number or a datetime.
fn moment_of(value: &Bound<'_, PyAny>) -> PyResult<f64> {
    value.extract().or_else(|_| value.call_method0("timestamp")?.extract())
}

/// The URL without possible secrets: without user and password before the host, and without
/// everything from the first question mark on (signatures of shared links). A path of a local
/// folder is shown in full, because these characters have no special meaning in a path.
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
