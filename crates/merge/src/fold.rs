//! Folding of operands in a flush or compaction. The result replaces the operands, so it must be
//! equal to the result of every later reader, at every later time.

use crate::operands::folded;
use siltstone_base::entry::check_value;
use siltstone_base::{Kind, MergeOperator, Result, Seq, UnixMillis};

/// One version of a key, with its own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    pub(crate) expires_at: Option<UnixMillis>,
    pub(crate) value: Vec<u8>,
}

/// The version below the operands of one stripe.
pub(crate) enum Ground {
    /// A value in the same stripe.
    Value(Version),
    /// The key has no value below them: a tombstone in the same stripe, or the bottom.
    Nothing,
    /// An older version may exist, in an older stripe or another level.
    Unknown,
}

/// Folds `operands` (oldest first) as far as the result is exact, and returns the versions that
/// replace them and the ground, oldest first.
///
/// Exact means equal at every later time. An entry counts as a tombstone once it has expired. So an
/// operand that expires later than the version below it must not be folded onto that version yet:
/// after the lower one has expired, the upper one remains alone. An operand that does not expire
/// later may be folded: when it expires, it hides everything below it. So operands are folded in
/// runs, from the oldest on, in which no expiry is later than the previous one, and the result
/// takes the last expiry, which is the earliest.
///
/// # Errors
/// The operator's errors; Invalid if its value is too large.
pub(crate) fn fold_stripe(
    key: &[u8],
    operator: &dyn MergeOperator,
    ground: Ground,
    operands: &[Version],
) -> Result<Vec<Version>> {
    let mut out = Vec::new();
    let mut rest = operands;
    match ground {
        Ground::Unknown => {}
        Ground::Nothing => {
            let run = split_run(&mut rest, None);
            out.extend(fold_onto(key, operator, None, run)?);
        }
        Ground::Value(put) => {
            let run = split_run(&mut rest, put.expires_at);
            let folded = fold_onto(key, operator, Some(&put.value), run)?;
            out.push(folded.unwrap_or(put));
        }
    }
    while !rest.is_empty() {
        let run = split_run(&mut rest, None);
        match fold_alone(key, operator, run)? {
            Some(folded) => out.push(folded),
            None => out.extend_from_slice(run),
        }
    }
    Ok(out)
}

/// Order of expiries: `None` is the latest.
fn lasts(expires_at: Option<UnixMillis>) -> (bool, Option<UnixMillis>) {
    (expires_at.is_none(), expires_at)
}

/// Removes the longest run from the front of `rest` in which no version expires later than the
/// previous one (rule H5); `limit` counts as the version before the first.
fn split_run<'a>(rest: &mut &'a [Version], limit: Option<UnixMillis>) -> &'a [Version] {
    let mut limit = limit;
    let fits = |operand: &&Version| {
        let fits = lasts(operand.expires_at) <= lasts(limit);
        limit = operand.expires_at;
        fits
    };
    let length = rest.iter().take_while(fits).count();
    let (run, after) = rest.split_at(length);
    *rest = after;
    run
}

/// The value of `run` on `base`; `None` for an empty run.
fn fold_onto(
    key: &[u8],
    operator: &dyn MergeOperator,
    base: Option<&[u8]>,
    run: &[Version],
) -> Result<Option<Version>> {
    let Some(newest) = run.last() else { return Ok(None) };
    let value = folded(operator, key, base, &values(run))?;
    Ok(Some(Version { kind: Kind::Put, value, ..*newest }))
}

/// One operand that replaces `run`, if the operator can make one.
fn fold_alone(
    key: &[u8],
    operator: &dyn MergeOperator,
    run: &[Version],
) -> Result<Option<Version>> {
    let [_, .., newest] = run else { return Ok(None) };
    let Some(value) = operator.fold_operands(key, &values(run))? else { return Ok(None) };
    check_value(&value)?;
    Ok(Some(Version { kind: Kind::Merge, value, ..*newest }))
}

fn values(run: &[Version]) -> Vec<&[u8]> {
    run.iter().map(|operand| operand.value.as_slice()).collect()
}
