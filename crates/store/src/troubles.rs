//! The last refusals of the store that no success has followed: the cause of deadlines that pass
//! meanwhile.
//!
//! They are kept by request and area, because a successful listing says nothing about creates.
//! Requests are many and troubles are few, so a successful request reads a single number.

use parking_lot::Mutex;
use siltstone_base::name::prefix;
use siltstone_base::{Error, ErrorKind, ObjectName};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Log target of lines about the store.
pub(crate) const TARGET: &str = "siltstone.store";

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// A read of an object's bytes.
    Read,
    /// A conditional create.
    Create,
    /// An upload, or a part of one.
    Upload,
    /// A listing.
    List,
    /// A delete.
    Delete,
}

/// The kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// The WAL, with its boundaries.
    Log,
    /// Tables, also those of ingest jobs.
    Tables,
    /// Manifests, with their boundaries.
    Manifests,
    /// All others.
    Rest,
}

impl Area {
    /// The area of `name`.
    pub fn of(name: ObjectName) -> Area {
        match name {
            ObjectName::Wal(_) | ObjectName::WalBoundary(_) => Area::Log,
            ObjectName::Compacted(_) | ObjectName::IngestSst(..) => Area::Tables,
            ObjectName::Manifest(_) | ObjectName::ManifestBoundary(_) => Area::Manifests,
            _ => Area::Rest,
        }
    }

    /// The area under a prefix of [`prefix`].
    pub(crate) fn under(listed: &str) -> Area {
        match listed {
            prefix::WAL | prefix::WAL_BOUNDARY => Area::Log,
            prefix::COMPACTED => Area::Tables,
            prefix::MANIFEST | prefix::MANIFEST_BOUNDARY => Area::Manifests,
            _ => Area::Rest,
        }
    }
}

/// Logs that an upload could not be aborted. Callers report the error that made them abort.
pub(crate) fn log_failed_abort(error: &Error) {
    let (kind, text) = (error.kind().name(), error.to_string());
    let advice = "parts of the upload may remain until a lifecycle rule aborts it";
    log::warn!(
        target: TARGET,
        "event=upload_abort_fails kind={kind} error={text:?} advice={advice:?}"
    );
}

/// The troubles of one handle with its store.
#[derive(Debug, Default)]
pub struct Troubles {
    /// Number of current troubles.
    open: AtomicUsize,
    noted: Mutex<NotedTroubles>,
}

#[derive(Debug, Default)]
struct NotedTroubles {
    /// Number of troubles so far.
    number: u64,
    last: BTreeMap<(Verb, Area), (u64, Error)>,
    /// How often each trouble began, for log lines with back-off.
    begun: BTreeMap<(Verb, Area), u64>,
}

impl NotedTroubles {
    /// Whether the latest trouble is logged: the first one is, and later ones if their count is a
    /// power of two, so that a store with occasional refusals does not flood the log.
    fn is_told(&self, asked: (Verb, Area)) -> bool {
        self.begun.get(&asked).is_some_and(|times| times.is_power_of_two())
    }
}

impl Troubles {
    /// Notes a refusal. Deletes are skipped, because no caller waits for them, and so are requests
    /// that the end of the process cut off, because the store has not refused those.
    pub fn note(&self, verb: Verb, area: Area, error: &Error) {
        if verb == Verb::Delete || error.kind() == ErrorKind::Closed {
            return;
        }
        if self.begins((verb, area), error) {
            log::warn!(
                target: TARGET,
                "event=store_refuses verb={verb:?} area={area:?} kind={} error={:?}",
                error.kind().name(),
                error.to_string(),
            );
        }
    }

    /// Notes a refusal. Returns whether to log it, which happens outside of the lock.
    fn begins(&self, asked: (Verb, Area), error: &Error) -> bool {
        let mut noted = self.noted.lock();
        noted.number += 1;
        let number = noted.number;
        let goes_on = noted.last.insert(asked, (number, error.clone())).is_some();
        self.open.store(noted.last.len(), Ordering::Release);
        if goes_on {
            return false;
        }
        *noted.begun.entry(asked).or_default() += 1;
        noted.is_told(asked)
    }

    /// Notes a success.
    pub(crate) fn clear(&self, verb: Verb, area: Area) {
        if self.open.load(Ordering::Acquire) == 0 {
            return;
        }
        if self.ends((verb, area)) {
            log::info!(target: TARGET, "event=store_answers verb={verb:?} area={area:?}");
        }
    }

    /// As `begins`, for the end of a trouble.
    fn ends(&self, asked: (Verb, Area)) -> bool {
        let mut noted = self.noted.lock();
        let ended = noted.last.remove(&asked).is_some();
        self.open.store(noted.last.len(), Ordering::Release);
        ended && noted.is_told(asked)
    }

    /// The current moment, for [`Troubles::since`].
    pub fn moment(&self) -> u64 {
        self.noted.lock().number
    }

    /// The newest trouble after `moment`.
    pub fn since(&self, moment: u64) -> Option<Error> {
        let noted = self.noted.lock();
        let newest = noted.last.values().max_by_key(|(number, _)| *number);
        newest.filter(|(number, _)| *number > moment).map(|(_, error)| error.clone())
    }

    /// A refusal after `moment` of a permission that a flush needs.
    pub fn denied_since(&self, moment: u64) -> Option<Error> {
        let noted = self.noted.lock();
        let of_flush = |(verb, area): &(Verb, Area)| *verb != Verb::Read && *area != Area::Rest;
        let denied =
            |(number, error): &&(u64, Error)| *number > moment && error.kind() == ErrorKind::Denied;
        let mut needed = noted.last.iter().filter(|(asked, _)| of_flush(asked));
        needed.find(|(_, last)| denied(last)).map(|(_, (_, error))| error.clone())
    }

    /// The newest trouble with the log, of any age: log requests are retried until they succeed.
    pub fn of_log(&self) -> Option<Error> {
        let noted = self.noted.lock();
        let of_log = noted.last.iter().filter(|((_, area), _)| *area == Area::Log);
        of_log.max_by_key(|(_, (number, _))| *number).map(|(_, (_, error))| error.clone())
    }
}

/// Adds `cause` to `error` if that is a passed deadline without a cause.
pub fn explained(error: Error, cause: Option<Error>) -> Error {
    let bare = error.kind() == ErrorKind::Timeout && std::error::Error::source(&error).is_none();
    match cause {
        Some(cause) if bare => error.caused_by(cause),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Error {
        Error::unavailable("no space left")
    }

    #[test]
    fn a_trouble_ends_with_the_same_request_and_no_other() {
        let troubles = Troubles::default();
        troubles.note(Verb::Create, Area::Log, &full());
        troubles.clear(Verb::List, Area::Log);
        troubles.clear(Verb::Create, Area::Manifests);
        assert!(troubles.of_log().is_some_and(|error| error.to_string() == "no space left"));
        troubles.clear(Verb::Create, Area::Log);
        assert!(troubles.of_log().is_none() && troubles.since(0).is_none());
    }

    #[test]
    fn a_request_that_the_end_of_the_process_cut_off_is_no_trouble() {
        let troubles = Troubles::default();
        troubles.note(Verb::Upload, Area::Tables, &Error::new(ErrorKind::Closed, "ended"));
        assert!(troubles.since(0).is_none());
    }

    #[test]
    fn lines_tell_where_a_trouble_begins_and_ends_and_back_off() {
        let troubles = Troubles::default();
        let asked = (Verb::Create, Area::Log);
        let mut told = 0;
        for _ in 0..100 {
            let begun = troubles.begins(asked, &full());
            assert!(!troubles.begins(asked, &full()));
            assert_eq!(troubles.ends(asked), begun);
            assert!(!troubles.ends(asked));
            told += u32::from(begun);
        }
        assert_eq!(told, 7);
        assert!(troubles.begins((Verb::List, Area::Log), &full()));
    }

    #[test]
    fn earlier_trouble_explains_a_wait_only_for_the_log() {
        let troubles = Troubles::default();
        troubles.note(Verb::Upload, Area::Tables, &full());
        let moment = troubles.moment();
        assert!(troubles.since(0).is_some());
        assert!(troubles.since(moment).is_none() && troubles.of_log().is_none());
        troubles.note(Verb::Create, Area::Log, &Error::new(ErrorKind::Denied, "no rights"));
        let now = troubles.moment();
        assert!(troubles.of_log().is_some() && troubles.denied_since(moment).is_some());
        assert!(troubles.denied_since(now).is_none());
    }

    #[test]
    fn only_a_bare_deadline_is_given_a_cause() {
        let passed = || Error::new(ErrorKind::Timeout, "the deadline passed");
        let told = explained(passed(), Some(full()));
        assert_eq!(told.to_string(), "the deadline passed: no space left");
        let again = explained(told, Some(Error::unavailable("other")));
        assert_eq!(again.to_string(), "the deadline passed: no space left");
        let fenced = explained(Error::new(ErrorKind::Fenced, "over"), Some(full()));
        assert_eq!(fenced.to_string(), "over");
        assert_eq!(explained(passed(), None).to_string(), "the deadline passed");
    }
}
