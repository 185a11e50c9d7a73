//! Making a database: its first manifest, and the numbers that all later ones count from (RFC 0004,
//! rule E1).
//!
//! Where a place may be emptied under processes that do not know it yet, what those still send and
//! delete goes by the numbers of the database that was deleted. So a new one counts from the time
//! of its creation, by the store's clock: beyond all that an older one came to.
//!
//! ```text
//! manifest/1 ─ decides who makes the database, and says where it counts from: n
//! manifest/n, n + 1, …   wal/n, n + 1, …   compactions/n, n + 1, …
//! ```
//! The identity that every manifest carries says it for good.
//!
//! Where a database was destroyed, V is the last boundary of its manifests, and says so: the place
//! is free. All numbers go on above those that it had (RFC 0030, rule D4).
//!
//! ```text
//! manifest/V+1 ─ decides      wal/n, n + 1, …   compactions/n, n + 1, …
//! manifest/V+2, …
//! ```

use super::client::{Left, ManifestRequests, found};
use super::objects::Objects;
use super::rules;
use super::store_time::{dated, delete_scratch};
use bytes::Bytes;
use siltstone_base::id::NUMBERS_A_MILLI;
use siltstone_base::name::prefix;
use siltstone_base::{
    DatabaseId, Error, ErrorKind, ManifestId, ObjectName, Result, SstDescriptor, UnixMillis,
};
use siltstone_manifest::{Manifest, Settings};
use std::collections::HashSet;
use std::sync::Arc;

/// Makes a database, of this schema, which ingest jobs may come `behind`, where there is none, and
/// no more than `left`. Returns another process's database if that came first. The caller's look
/// goes on with `requests`.
///
/// # Errors
/// Corruption where something of an older database is left; those of the store.
pub(crate) async fn create(
    objects: &Objects,
    requests: &mut ManifestRequests,
    settings: Settings,
    (schema, behind): (Option<Bytes>, bool),
    left: Left,
) -> Result<Arc<Manifest>> {
    let boundary = left.1;
    refuse_what_is_left(objects, left).await?;
    // The proof of the store's conditions takes two requests, one after the other, and so does its
    // time. If the proof fails, the create repeats it and reports the error.
    let proof = objects.env.store.ensure_conditions();
    let (identity, _) = futures::join!(dated_identity(objects, boundary), proof);
    let (database, scratch) = identity?;
    let first = Manifest::new_database_behind(boundary, database, settings);
    let first = if behind { first.allowing_behind() } else { first };
    let founded = found(objects, requests, Manifest { schema, ..first });
    futures::join!(founded, delete_scratch(objects, scratch)).0
}

/// The identity of a database that is to be made where there is none, and no more than `left`: its
/// first manifest is the one behind the boundary of `left`.
///
/// # Errors
/// As [`database`].
pub(crate) async fn identity(objects: &Objects, left: Left) -> Result<DatabaseId> {
    let boundary = left.1;
    refuse_what_is_left(objects, left).await?;
    let (database, scratch) = dated_identity(objects, boundary).await?;
    delete_scratch(objects, scratch).await;
    Ok(database)
}

/// An object that told the store's time, and is to be deleted.
type LeftScratch = Option<ObjectName>;

/// The identity of a database behind `boundary`, and the object that told the store's time.
async fn dated_identity(
    objects: &Objects,
    boundary: ManifestId,
) -> Result<(DatabaseId, LeftScratch)> {
    let database = DatabaseId(objects.env.random_u128());
    if boundary.is_none() && !objects.env.store.profile().may_be_emptied {
        return Ok((database, None));
    }
    let (mut first, scratch) = first_number(objects, database).await?;
    if !boundary.is_none() {
        // On every store: no folder went, so handles of the old database still reach this place.
        first = objects.numbers_left().await?.first_number(first, rules::in_force());
    }
    Ok((DatabaseId::counting_from(first, database.0 as u64), scratch))
}

/// Where a database that is made now counts from.
async fn first_number(objects: &Objects, database: DatabaseId) -> Result<(u64, LeftScratch)> {
    let own = objects.env.clock.now();
    let (millis, scratch) = match dated(objects, database).await {
        Ok((stored, scratch)) => {
            (within_its_second(stored, own, objects.env.random.next_u64()), Some(scratch))
        }
        // A listing that does not show what was stored just now: the own clock has to do.
        Err(error) if error.kind() == ErrorKind::Unavailable => (own.0, None),
        Err(error) => return Err(error),
    };
    Ok((millis.saturating_mul(NUMBERS_A_MILLI), scratch))
}

/// Many stores date by whole seconds: within that one the own clock tells, when it agrees, or
/// chance.
fn within_its_second(stored: UnixMillis, own: UnixMillis, random: u64) -> u64 {
    if !stored.0.is_multiple_of(1000) {
        return stored.0;
    }
    let agrees = (stored.0..stored.0 + 1000).contains(&own.0);
    if agrees { own.0 } else { stored.0 + random % 1000 }
}

/// Manifests without those before them: a process that did not know yet that its database was
/// deleted left one, which does not count; or a part of a database was lost, which must not be
/// covered by a new one: its collector would delete the rest. It counts as a database if all that
/// the newest manifest needs is there.
async fn refuse_what_is_left(objects: &Objects, (ids, boundary): Left) -> Result<()> {
    let left = Error::corruption(
        "what is left of a database stands here, and its manifests are not: if it was deleted, \
         delete the rest as well; if not, put them back, from the store's older versions or a \
         backup",
    );
    if !boundary.is_none() && !objects.is_emptied(boundary).await? {
        // Nothing may be created at or below it, and the numbers above it are unknown.
        return Err(left.with("object", ObjectName::ManifestBoundary(boundary)));
    }
    let newest = ids.last().copied().filter(|newest| *newest > boundary);
    let Some(newest) = newest else { return Ok(()) };
    let Some(state) = objects.manifest(newest).await? else { return Ok(()) };
    match what_is_left_of(objects, &state).await? {
        Some(there) => Err(left.with("manifest", newest).with("object", there)),
        None => Ok(()),
    }
}

/// An object that `state` names, where all of them are there: its tables, or, where it has none,
/// the log from its beginning.
async fn what_is_left_of(objects: &Objects, state: &Manifest) -> Result<Option<ObjectName>> {
    let tables: HashSet<ObjectName> = state.tables().map(SstDescriptor::name).collect();
    if tables.is_empty() {
        objects.follow_log(state)?;
        if objects.give_up_lost_log().await?.is_some() {
            return Ok(None);
        }
        let first = objects.wal(state.replay_from).await?;
        let of_this = first.is_some_and(|object| object.envelope.database == state.database);
        return Ok(of_this.then_some(ObjectName::Wal(state.replay_from)));
    }
    let mut there = Vec::new();
    for folder in [prefix::COMPACTED, prefix::INGEST] {
        let listed = objects.names(folder).await?;
        there.extend(listed.into_iter().filter(|name| tables.contains(name)));
    }
    Ok(there.first().copied().filter(|_| there.len() == tables.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_that_date_by_seconds_leave_the_rest_to_the_own_clock() {
        let at = UnixMillis;
        assert_eq!(within_its_second(at(5_123), at(9_000), 7), 5_123);
        assert_eq!(within_its_second(at(5_000), at(5_999), 7), 5_999);
        assert_eq!(within_its_second(at(5_000), at(6_000), 7_001), 5_001);
    }

    #[test]
    fn a_number_fits_into_53_bits_until_2039() {
        let last_of_2038 = 2_177_452_800_000_u64;
        assert!(last_of_2038 * NUMBERS_A_MILLI < 1 << 53);
    }
}
