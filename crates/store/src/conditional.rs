//! A conditional create and its outcome (protocol rule M1).
//!
//! Only a plain "created" is believed. A client or a proxy may send a request twice and report a
//! conflict with itself; some servers answer "conflict" although nothing is stored; a lost
//! connection tells nothing. The attempt id in the stored object decides:
//!
//! ```text
//! answer      read back:  ours        another's   nothing      failed
//! Created        -        Committed
//! Exists                  Committed   Lost        NotApplied   Unknown
//! Refused                 Committed   Lost        NotApplied   Unknown
//! Ambiguous               Committed   Lost        Unknown      Unknown
//! ```
//! *Refused* is read back too, because the attempt may repeat one that landed. *Ambiguous* with
//! nothing stored is Unknown, because the request may still be in flight, or may have landed and
//! been freed.

use crate::PutAnswer;
use crate::env::Env;
use bytes::Bytes;
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::{
    AttemptId, Envelope, Error, ErrorKind, ObjectKind, ObjectName, PutOutcome, Result,
};

/// For larger objects the head is read first, so that a large object that is ours need not be read
/// back.
const HEAD_FIRST_BYTES: usize = 256 << 10;

/// The result of a create.
#[derive(Clone, Debug)]
pub struct Created {
    /// The outcome. `Lost` holds the whole object of the winner.
    pub outcome: PutOutcome<Bytes>,
    /// The last error on the way, even if the outcome is known. `Denied` can be reported to a
    /// waiting caller immediately.
    pub error: Option<Error>,
}

/// Creates `name` once and determines the outcome. `bytes` begin with an envelope that holds
/// `attempt`. It never repeats the create; the caller may, with the same bytes.
pub async fn create(env: &Env, name: ObjectName, bytes: Bytes, attempt: AttemptId) -> Created {
    if let Err(error) = env.store.ensure_conditions().await {
        // Nothing was sent.
        return Created { outcome: PutOutcome::NotApplied, error: Some(error) };
    }
    create_unproven(env, name, bytes, attempt).await
}

/// As [`create`], for a name that no other process uses: the store need not be proven to honour the
/// condition.
pub async fn create_unproven(
    env: &Env,
    name: ObjectName,
    bytes: Bytes,
    attempt: AttemptId,
) -> Created {
    let kind = kind_of(name);
    if !matches!(Envelope::decode(&bytes, kind), Ok(head) if head.attempt == attempt) {
        let error = Error::internal("the object to create lacks its attempt id in its head");
        return Created {
            outcome: PutOutcome::NotApplied,
            error: Some(error.with("object", name)),
        };
    }
    let head_first = bytes.len() > HEAD_FIRST_BYTES;
    let (absent, error) = match env.store.put_if_absent(name, bytes).await {
        PutAnswer::Created => {
            return Created { outcome: PutOutcome::Committed, error: None };
        }
        PutAnswer::Exists => (PutOutcome::NotApplied, None),
        PutAnswer::Refused(error) => (PutOutcome::NotApplied, Some(error)),
        PutAnswer::Ambiguous(error) => (PutOutcome::Unknown, Some(error)),
    };
    match read_back(env, name, kind, attempt, head_first).await {
        Ok(SlotContent::Ours) => Created { outcome: PutOutcome::Committed, error },
        Ok(SlotContent::Another(bytes)) => Created { outcome: PutOutcome::Lost(bytes), error },
        Ok(SlotContent::Nothing) => {
            Created { outcome: absent, error: error.or_else(|| Some(false_conflict())) }
        }
        Err(failed) => {
            // Report the error of the create: a refusal explains more than the error that followed.
            Created { outcome: PutOutcome::Unknown, error: error.or(Some(failed)) }
        }
    }
}

/// A conflict without an object. If a race of other requests caused it, it passes.
fn false_conflict() -> Error {
    Error::unavailable("the store reports a conflict, but has no object of that name")
}

/// Proves that the store refuses to create an object that exists, by creating `name`, which was
/// created just now, a second time. `bytes` equal the first ones except for `attempt`. If the store
/// accepts them, nothing is lost, because they say the same.
///
/// # Errors
/// Unsupported for a store that ignores the condition: two writers would overwrite each other's
/// log.
pub async fn prove(env: &Env, name: ObjectName, bytes: Bytes, attempt: AttemptId) -> Result<()> {
    let taken = match env.store.put_if_absent(name, bytes).await {
        PutAnswer::Created => true,
        PutAnswer::Exists => false,
        // The answer is another refusal, or was lost. The stored object decides, if it can be read.
        PutAnswer::Refused(_) | PutAnswer::Ambiguous(_) => {
            let found = read_back(env, name, kind_of(name), attempt, false).await;
            matches!(found, Ok(SlotContent::Ours))
        }
    };
    if !taken {
        return Ok(());
    }
    Err(Error::unsupported(
        "the store overwrites objects that exist: it ignores the condition of a create \
         (If-None-Match), and two writers would overwrite each other's log; use a store, or a \
         version of it, that supports conditional writes, or give a transactional store as the \
         store option `transactional_store`",
    )
    .with("object", name))
}

enum SlotContent {
    Ours,
    Another(Bytes),
    Nothing,
}

async fn read_back(
    env: &Env,
    name: ObjectName,
    kind: ObjectKind,
    attempt: AttemptId,
    head_first: bool,
) -> Result<SlotContent> {
    if head_first {
        // An object shorter than a head is not ours; the whole read below handles it.
        let head = env.store.get(name, Some(0..ENVELOPE_BYTES as u64)).await;
        match head {
            Ok(None) => return Ok(SlotContent::Nothing),
            Ok(Some(head)) if is_ours(&head, kind, attempt) => return Ok(SlotContent::Ours),
            Ok(Some(_)) => {}
            Err(error) if error.kind() == ErrorKind::Corruption => {}
            Err(error) => return Err(error),
        }
    }
    let Some(object) = env.store.get(name, None).await? else { return Ok(SlotContent::Nothing) };
    if is_ours(&object, kind, attempt) {
        return Ok(SlotContent::Ours);
    }
    // Bytes damaged in transit must not make our own object look like another's.
    match Envelope::decode(&object, kind) {
        Err(error) if error.kind() == ErrorKind::Corruption => {
            again(env, name, kind, attempt).await
        }
        _ => Ok(SlotContent::Another(object)),
    }
}

async fn again(
    env: &Env,
    name: ObjectName,
    kind: ObjectKind,
    attempt: AttemptId,
) -> Result<SlotContent> {
    match env.store.get(name, None).await? {
        None => Ok(SlotContent::Nothing),
        Some(object) if is_ours(&object, kind, attempt) => Ok(SlotContent::Ours),
        // It is damaged in the store. The next reader reports that, with the object's name.
        Some(object) => Ok(SlotContent::Another(object)),
    }
}

fn is_ours(object: &[u8], kind: ObjectKind, attempt: AttemptId) -> bool {
    matches!(Envelope::decode(object, kind), Ok(head) if head.attempt == attempt)
}

/// The kind of object under a name.
fn kind_of(name: ObjectName) -> ObjectKind {
    match name {
        ObjectName::Manifest(_) | ObjectName::DamagedManifest(..) => ObjectKind::Manifest,
        ObjectName::Wal(_) | ObjectName::DamagedWal(..) => ObjectKind::Wal,
        ObjectName::ManifestBoundary(_)
        | ObjectName::WalBoundary(_)
        | ObjectName::CompactionsBoundary(_) => ObjectKind::Boundary,
        ObjectName::Compacted(_) | ObjectName::IngestSst(..) | ObjectName::DamagedTable(..) => {
            ObjectKind::Table
        }
        ObjectName::Compactions(_) | ObjectName::DamagedCompactions(..) => ObjectKind::Compactions,
        ObjectName::IngestManifest(_) => ObjectKind::Ingest,
        // The stores for encryption, two-phase creates and separate logs read and write their own
        // objects; nothing above them creates one.
        ObjectName::EncryptionKey(_)
        | ObjectName::ProbeRecord
        | ObjectName::ProbeScratch(_)
        | ObjectName::LogIdentity
        | ObjectName::TwoPhaseNamespace
        | ObjectName::TwoPhaseSource(..) => ObjectKind::Probe,
    }
}
