//! A collector without a writer: runs rounds over many databases in one process, for as long as
//! each database exists.

use super::report::GcReport;
use super::round::Collector;
use super::{GcOptions, around, no_database};
use crate::manifests::objects::Objects;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use siltstone_base::{Error, ErrorKind, Result};
use siltstone_store::env::Env;
use std::time::Duration;

/// Log target of lines about collections.
const TARGET: &str = "siltstone.gc";

/// Pause after a round that failed; it doubles from one failure to the next, up to the interval or
/// [`LONGEST_PAUSE`], whichever is longer.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// An event of one database.
#[derive(Debug)]
pub enum GcEvent {
    /// A round ended. Rounds that are skipped because they have no work emit no event.
    Round(Box<GcReport>),
    /// A round failed. The next round starts after a pause.
    Failed(Error),
    /// The work on this database ended.
    Ended(EndReason),
}

/// Why the work on a database ended.
#[derive(Clone, Debug)]
pub enum EndReason {
    /// The database is gone: it was deleted, or destroyed, and removed.
    Gone(Error),
    /// No database has existed since the start.
    Absent(Error),
}

/// Collects in all of `databases` until each is gone. The caller can safely drop the future at any
/// point to stop it. `tell` receives every event, with the database's index in `databases`. An
/// error in one database does not stop the others.
pub async fn run(databases: Vec<Env>, options: GcOptions, tell: impl Fn(usize, GcEvent)) {
    let tell = &tell;
    let mut works: FuturesUnordered<_> = databases
        .into_iter()
        .enumerate()
        .map(|(place, env)| async move {
            let ended = one(env, options, |event| tell(place, event)).await;
            tell(place, GcEvent::Ended(ended));
        })
        .collect();
    while works.next().await.is_some() {}
}

/// Collects in one database until it is gone.
async fn one(env: Env, options: GcOptions, tell: impl Fn(GcEvent)) -> EndReason {
    let objects = Objects { env: env.clone(), limit: options.deadline };
    let mut collector = Collector::new(objects, options.min_age, options.db_delete_grace);
    let (mut pause, mut found) = (FIRST_PAUSE, false);
    let mut failed = None;
    loop {
        let wait = match round(&mut collector, &tell).await {
            Ok(true) => {
                (pause, found) = (FIRST_PAUSE, true);
                if failed.take().is_some() {
                    log::info!(target: TARGET, "event=round_goes_on store={:?}", env.store);
                }
                options.interval
            }
            Ok(false) if found => return EndReason::Gone(gone(&env)),
            Ok(false) => return EndReason::Absent(no_database(&env)),
            // A removed folder gives NotFound, where an object store gives an empty list.
            Err(error) if found && error.kind() == ErrorKind::NotFound => {
                return EndReason::Gone(gone(&env).caused_by(error));
            }
            Err(error) => {
                // One line for each cause: the rounds that follow fail by the same one.
                let kind = error.kind();
                if failed.replace(kind) != Some(kind) {
                    let (store, text) = (&env.store, error.to_string());
                    let kind = kind.name();
                    log::warn!(
                        target: TARGET,
                        "event=round_fails store={store:?} kind={kind} error={text:?}"
                    );
                }
                tell(GcEvent::Failed(error));
                let waited = pause;
                pause = (pause * 2).min(options.interval.max(LONGEST_PAUSE));
                waited
            }
        };
        env.clock.sleep(around(&env, wait)).await;
    }
}

fn gone(env: &Env) -> Error {
    Error::new(ErrorKind::NotFound, "the database is gone: it was deleted, or destroyed")
        .with("store", format_args!("{:?}", env.store))
}

/// Runs a round if one is due. Returns `false` if there is no database.
async fn round(collector: &mut Collector, tell: &impl Fn(GcEvent)) -> Result<bool> {
    let Some(newest) = collector.look().await? else { return Ok(false) };
    if collector.is_due(&newest) {
        match collector.round(newest, None).await {
            Ok(report) => tell(GcEvent::Round(Box::new(report))),
            // The database was removed while the round ran.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
