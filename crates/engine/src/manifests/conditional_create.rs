//! A conditional create that is repeated until its outcome is settled: always the same bytes, so
//! that a retry recognises an earlier try of its own.

use super::objects::Objects;
use bytes::Bytes;
use siltstone_base::{AttemptId, Error, ErrorKind, ObjectName, PutOutcome, Result};
use siltstone_store::conditional;
use siltstone_store::retry::limit_of;
use std::time::Duration;

/// Pause after the first try that settled nothing.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Longest pause between two tries.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// One object that is being created.
pub(crate) struct Creating {
    bytes: Bytes,
    attempt: AttemptId,
    /// Whether no other process uses the name.
    is_fresh: bool,
    since: Duration,
    pause: Duration,
    /// Why the last try settled nothing.
    trouble: Option<Error>,
}

impl Creating {
    /// `bytes` start with an envelope that holds `attempt`.
    pub(crate) fn new(objects: &Objects, bytes: Bytes, attempt: AttemptId) -> Creating {
        let since = objects.env.clock.monotonic();
        let pause = Duration::ZERO;
        Creating { bytes, attempt, is_fresh: false, since, pause, trouble: None }
    }

    /// As [`Creating::new`], for a name that no other process uses. The store need not be proven
    /// before the object is created.
    pub(crate) fn of_fresh_name(objects: &Objects, bytes: Bytes, attempt: AttemptId) -> Creating {
        Creating { is_fresh: true, ..Creating::new(objects, bytes, attempt) }
    }

    /// Begins a new series of tries of the same bytes.
    pub(crate) fn restart(&mut self, objects: &Objects) {
        (self.since, self.pause) = (objects.env.clock.monotonic(), Duration::ZERO);
    }

    /// Why the last try settled nothing, where it did not.
    pub(crate) fn trouble(&self) -> Option<&Error> {
        self.trouble.as_ref()
    }

    /// One try, after a pause that grows from try to try.
    ///
    /// # Errors
    /// Denied at once; Timeout after the limit of a request. The outcome is not known then.
    pub(crate) async fn once(
        &mut self,
        objects: &Objects,
        name: ObjectName,
    ) -> Result<PutOutcome<()>> {
        let env = &objects.env;
        if !self.pause.is_zero() {
            env.clock.sleep(env.jittered(self.pause)).await;
        }
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        let bytes = self.bytes.clone();
        let created = match self.is_fresh {
            true => conditional::create_unproven(env, name, bytes, self.attempt).await,
            false => conditional::create(env, name, bytes, self.attempt).await,
        };
        let settled = matches!(created.outcome, PutOutcome::Committed | PutOutcome::Lost(_));
        self.trouble = created.error.clone().filter(|_| !settled);
        if let Some(error) = created.error.filter(|_| !settled) {
            let waited = env.clock.monotonic().saturating_sub(self.since);
            if !error.may_be_repeated() {
                return Err(error.with("object", name));
            }
            if waited >= limit_of(objects.limit, self.bytes.len() as u64) {
                self.since = env.clock.monotonic();
                return Err(Error::new(
                    ErrorKind::Timeout,
                    "the store gave no definite answer to a create; try again once it answers",
                )
                .with("object", name)
                .caused_by(error));
            }
        }
        Ok(match created.outcome {
            PutOutcome::Committed => PutOutcome::Committed,
            PutOutcome::Lost(_) => PutOutcome::Lost(()),
            PutOutcome::NotApplied => PutOutcome::NotApplied,
            PutOutcome::Unknown => PutOutcome::Unknown,
        })
    }
}
