//! A collector without a writer: rounds over many databases in one process, for as long as each
//! database is there.

use super::report::GcReport;
use super::round::Collector;
use super::{GcOptions, around, no_database};
use crate::io::env::Env;
use crate::manifests::objects::Objects;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use siltstone_base::{Error, ErrorKind, Result};
use std::time::Duration;

/// Pause after a round that failed; it doubles from one failure to the next, up to the interval or
/// [`LONGEST_PAUSE`], whichever is longer.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Something that happened to one database, by its place in the list.
#[derive(Debug)]
pub enum GcEvent {
    /// A round ended. Rounds that could find nothing are left out.
    Round(Box<GcReport>),
    /// A round failed; the next one comes after a pause.
    Failed(Error),
    /// There is nothing more to do here.
    Ended(EndReason),
}

/// Why the work on a database ended.
#[derive(Clone, Debug)]
pub enum EndReason {
    /// The database is gone: it was deleted, or destroyed, and removed.
    Gone(Error),
    /// There has been no database since the start.
    Absent(Error),
}

/// Collects in all of `databases`, until each is gone; dropping the future stops it, anywhere,
/// without harm. `tell` hears of every event, with the database's place in the list. Trouble with
/// one database stops none of the others.
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

/// One database, until it is gone.
async fn one(env: Env, options: GcOptions, tell: impl Fn(GcEvent)) -> EndReason {
    let objects = Objects { env: env.clone(), limit: options.deadline };
    let mut collector = Collector::new(objects, options.min_age, options.db_delete_grace);
    let (mut pause, mut found) = (FIRST_PAUSE, false);
    loop {
        let wait = match round(&mut collector, &tell).await {
            Ok(true) => {
                (pause, found) = (FIRST_PAUSE, true);
                options.interval
            }
            Ok(false) if found => return EndReason::Gone(gone(&env)),
            Ok(false) => return EndReason::Absent(no_database(&env)),
            // A folder that was removed says so, where an object store lists nothing.
            Err(error) if found && error.kind() == ErrorKind::NotFound => {
                return EndReason::Gone(gone(&env).caused_by(error));
            }
            Err(error) => {
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

/// A round, if one could find anything; `false` when there is no database.
async fn round(collector: &mut Collector, tell: &impl Fn(GcEvent)) -> Result<bool> {
    let Some(newest) = collector.look().await? else { return Ok(false) };
    if collector.is_due(&newest) {
        match collector.round(newest, None).await {
            Ok(report) => tell(GcEvent::Round(Box::new(report))),
            // It went while the round ran.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
