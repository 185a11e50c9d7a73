//! Proves that a store honours the condition of a create (If-None-Match) before a handle creates
//! its first object. A store that ignores it lets processes overwrite each other's commits.
//!
//! ```text
//! create probe/record   exists: proven.   created: once more, up to TRIES times
//! ```
//! The record is the only object that the proof writes. It stays, so that later handles prove their
//! store with one request. If the store is refused, the record is deleted.

use super::RemoteShared;
use crate::PutAnswer;
use bytes::Bytes;
use object_store::ObjectStoreExt;
use siltstone_base::{
    AttemptId, DatabaseId, Envelope, Error, ErrorKind, ObjectId, ObjectKind, ObjectName,
};

/// Number of consecutive creates of the record that must succeed before the store is refused. The
/// first may be the first ever, and another process may delete the record before the second.
const TRIES: u32 = 3;

/// Why the store is not proven.
pub(super) enum ProofMissing {
    /// The record must not be written; a role may be limited to other names.
    Denied,
    /// The store ignores conditions, or did not answer.
    Failed(Error),
}

impl RemoteShared {
    /// Proves the store, once per handle.
    ///
    /// # Errors
    /// Unsupported for a store that ignores the condition; errors of the store. Failures are not
    /// remembered: the next create tries again.
    pub(super) async fn ensure_conditions(&self) -> Result<(), Error> {
        match self.proven.get_or_try_init(|| self.prove_conditions()).await {
            Ok(()) | Err(ProofMissing::Denied) => Ok(()),
            Err(ProofMissing::Failed(error)) => Err(error),
        }
    }

    /// Creates the record for the first time, once per handle. Returns whether this call created
    /// it.
    ///
    /// # Errors
    /// Errors of the store, which the proof meets again; not Denied.
    pub(super) async fn begin_proof(&self) -> Result<bool, Error> {
        let mut is_new = false;
        let begun = self.recorded.get_or_try_init(async || {
            is_new = self.create_record().await?;
            Ok(is_new)
        });
        match begun.await {
            Ok(_) => Ok(is_new),
            Err(ProofMissing::Denied) => Ok(false),
            Err(ProofMissing::Failed(error)) => Err(error),
        }
    }

    /// Whether the record was created; otherwise it existed.
    async fn create_record(&self) -> Result<bool, ProofMissing> {
        let random = || {
            let random = &self.effects.random;
            u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())
        };
        let (object, attempt) = (ObjectId(random()), AttemptId(random()));
        let envelope = Envelope::new(ObjectKind::Probe, DatabaseId(0), object, attempt);
        let record = Bytes::copy_from_slice(&envelope.encode());
        match self.create_once(ObjectName::ProbeRecord, record).await {
            PutAnswer::Exists => Ok(false),
            PutAnswer::Created => Ok(true),
            PutAnswer::Refused(error) if error.kind() == ErrorKind::Denied => {
                Err(ProofMissing::Denied)
            }
            PutAnswer::Refused(error) | PutAnswer::Ambiguous(error) => {
                Err(ProofMissing::Failed(error))
            }
        }
    }

    async fn prove_conditions(&self) -> Result<(), ProofMissing> {
        if !*self.recorded.get_or_try_init(|| self.create_record()).await? {
            return Ok(());
        }
        for _ in 1..TRIES {
            if !self.create_record().await? {
                return Ok(());
            }
        }
        if let Ok(path) = self.path(ObjectName::ProbeRecord) {
            // The store is refused even if the delete fails.
            drop(self.clients.repeating().delete(&path).await);
        }
        let text = "the store ignores the condition of a create (If-None-Match): it overwrites \
                    objects that exist, so processes would overwrite each other's commits; use a \
                    store, or a version of it, that honours conditional writes, or \
                    give a transactional store as the store option `transactional_store`";
        Err(ProofMissing::Failed(Error::unsupported(text).with("bucket", self.explainer.place())))
    }
}
