//! A conditional create and what became of it (protocol rule M1).
//!
//! No answer but a plain "created" is believed. A client or a proxy may have sent the request twice
//! and report a conflict with itself; some servers answer "conflict" with nothing stored; a lost
//! connection says nothing. What counts is which attempt's id stands in the object:
//!
//! ```text
//! answer      read back:  ours        another's   nothing      failed
//! Created        -        Committed
//! Exists                  Committed   Lost        NotApplied   Unknown
//! Refused                 Committed   Lost        NotApplied   Unknown
//! Ambiguous               Committed   Lost        Unknown      Unknown
//! ```
//! *Refused* is read back too: the attempt may be a repetition of one that landed. Nothing after
//! *Ambiguous* is Unknown, since the request may still be under way, or have landed and been freed.

use super::PutAnswer;
use crate::io::env::Env;
use bytes::Bytes;
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::{
    AttemptId, Envelope, Error, ErrorKind, ObjectKind, ObjectName, PutOutcome, Result,
};

/// Objects larger than this are told apart by their head first, before they are read whole: a
/// large object that is ours need not travel back.
const HEAD_FIRST_BYTES: usize = 256 << 10;

/// What became of a create.
#[derive(Clone, Debug)]
pub struct Created {
    /// The outcome. `Lost` holds the whole object that won.
    pub outcome: PutOutcome<Bytes>,
    /// The last trouble on the way, also where the outcome is settled: `Denied` here can be told
    /// to a waiting caller at once.
    pub error: Option<Error>,
}

/// Creates `name` once, and finds out what became of it. `bytes` start with an envelope that holds
/// `attempt`. Never repeats the create; the caller may, with the same bytes.
pub async fn create(env: &Env, name: ObjectName, bytes: Bytes, attempt: AttemptId) -> Created {
    let kind = kind_of(name);
    if !matches!(Envelope::decode(&bytes, kind), Ok(head) if head.attempt == attempt) {
        let error = Error::internal("an object is created without its attempt id in its head");
        return Created {
            outcome: PutOutcome::NotApplied,
            error: Some(error.with("object", name)),
        };
    }
    if let Err(error) = env.store.ensure_conditions().await {
        // Nothing was sent.
        return Created { outcome: PutOutcome::NotApplied, error: Some(error) };
    }
    let head_first = bytes.len() > HEAD_FIRST_BYTES;
    let (absent, error) = match env.store.put_if_absent(name, bytes).await {
        PutAnswer::Created => {
            return Created { outcome: PutOutcome::Committed, error: None };
        }
        PutAnswer::Exists => (PutOutcome::NotApplied, None),
        PutAnswer::Refused(error) => (PutOutcome::NotApplied, Some(error)),
        #[cfg(mutation = "create_trusts_ambiguous")]
        PutAnswer::Ambiguous(error) => {
            return Created { outcome: PutOutcome::Committed, error: Some(error) };
        }
        #[cfg(not(mutation = "create_trusts_ambiguous"))]
        PutAnswer::Ambiguous(error) => (PutOutcome::Unknown, Some(error)),
    };
    match read_back(env, name, kind, attempt, head_first).await {
        Ok(SlotContent::Ours) => Created { outcome: PutOutcome::Committed, error },
        Ok(SlotContent::Another(bytes)) => Created { outcome: PutOutcome::Lost(bytes), error },
        Ok(SlotContent::Nothing) => {
            Created { outcome: absent, error: error.or_else(|| Some(false_conflict())) }
        }
        Err(failed) => {
            // What the create itself said comes first: a refusal explains more than what followed.
            Created { outcome: PutOutcome::Unknown, error: error.or(Some(failed)) }
        }
    }
}

/// A conflict with nothing. Time cures it, where it was a race of other requests.
fn false_conflict() -> Error {
    Error::unavailable("the store reports a conflict, and has no object by that name")
}

/// Proves that the store refuses to create what is there, by creating `name`, which was created
/// just now, a second time: `bytes` hold `attempt`, another one than the first, and else the same.
/// Where they take the name all the same nothing is lost, since they say the same.
///
/// # Errors
/// Unsupported for a store that ignores the condition: two writers would overwrite each other's
/// log.
pub(crate) async fn prove(
    env: &Env,
    name: ObjectName,
    bytes: Bytes,
    attempt: AttemptId,
) -> Result<()> {
    let taken = match env.store.put_if_absent(name, bytes).await {
        PutAnswer::Created => true,
        PutAnswer::Exists => false,
        // Refused some other way, or lost: what stands there tells, as far as it can be read.
        PutAnswer::Refused(_) | PutAnswer::Ambiguous(_) => {
            let found = read_back(env, name, kind_of(name), attempt, false).await;
            matches!(found, Ok(SlotContent::Ours))
        }
    };
    if !taken {
        return Ok(());
    }
    Err(Error::unsupported(
        "the store creates objects that are there already: it ignores the condition of a create \
         (If-None-Match), and two writers would overwrite each other's log; use a store, or a \
         version of it, that knows conditional writes",
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
        // An object shorter than a head is nobody's of ours: the whole read below tells.
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
    // Bytes damaged on the way must not make a stranger of our own object.
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
        // Damaged at rest: whoever reads it next says so, with the object's name.
        Some(object) => Ok(SlotContent::Another(object)),
    }
}

#[cfg(not(mutation = "create_trusts_exists"))]
fn is_ours(object: &[u8], kind: ObjectKind, attempt: AttemptId) -> bool {
    matches!(Envelope::decode(object, kind), Ok(head) if head.attempt == attempt)
}

#[cfg(mutation = "create_trusts_exists")]
fn is_ours(_object: &[u8], _kind: ObjectKind, _attempt: AttemptId) -> bool {
    false
}

/// What stands under a name.
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
        ObjectName::Compactions(_) => ObjectKind::Compactions,
        ObjectName::IngestManifest(_) => ObjectKind::Ingest,
        ObjectName::ProbeRecord | ObjectName::ProbeScratch(_) => ObjectKind::Probe,
    }
}
