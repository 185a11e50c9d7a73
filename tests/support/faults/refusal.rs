//! Stores that refuse: one verb for lack of permission, for a while; or permanently.

use super::plan::Fault;
use siltstone_base::{Error, ErrorKind};
use std::collections::BTreeMap;
use std::time::Duration;

/// The text of a permanent refusal, so that a test recognises it anywhere.
const FOR_GOOD: &str = "this store will never do that";

/// Whether an error is, or was caused by, a permanent refusal.
#[must_use]
pub fn is_for_good(error: &Error) -> bool {
    error.to_string().contains(FOR_GOOD)
}

/// The operations for which permissions exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    Get,
    Put,
    List,
    Delete,
}

impl Verb {
    /// The fault that denies it.
    pub(super) fn denied(self) -> Option<Fault> {
        match self {
            Verb::Get => None,
            Verb::Put => Some(Fault::PutDenied),
            Verb::List => Some(Fault::ListDenied),
            Verb::Delete => Some(Fault::DeleteDenied),
        }
    }

    /// Whether it is sometimes refused permanently.
    pub(super) fn is_refused(self) -> bool {
        matches!(self, Verb::Put | Verb::List)
    }
}

/// The current refusals, and until when they apply.
#[derive(Default)]
pub(super) struct Refusals {
    under_way: BTreeMap<Verb, (Duration, Error)>,
}

impl Refusals {
    pub(super) fn of(&self, verb: Verb, now: Duration) -> Option<Error> {
        self.under_way.get(&verb).filter(|(until, _)| now < *until).map(|(_, error)| error.clone())
    }

    pub(super) fn deny(&mut self, verb: Verb, until: Duration) {
        let error = Error::new(ErrorKind::Denied, "the store refused the permission")
            .with("verb", format_args!("{verb:?}"));
        self.under_way.insert(verb, (until, error));
    }

    pub(super) fn refuse_for_good(&mut self, verb: Verb, until: Duration, kind: ErrorKind) {
        let error = Error::new(kind, FOR_GOOD).with("verb", format_args!("{verb:?}"));
        self.under_way.insert(verb, (until, error));
    }

    pub(super) fn lift(&mut self) {
        self.under_way.clear();
    }
}
