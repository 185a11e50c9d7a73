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

use super::client::{ManifestRequests, found};
use super::missing::lost_beginning;
use super::objects::{Left, Objects};
use super::rules;
use super::store_time::{date_of_proof, dated, delete_scratch};
use bytes::Bytes;
use siltstone_base::id::NUMBERS_A_MILLI;
use siltstone_base::{DatabaseId, ErrorKind, ManifestId, ObjectName, Result, UnixMillis};
use siltstone_manifest::{Manifest, Settings};
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
    if let Err(refused) = refuse_what_is_left(objects, &left).await {
        requests.withdraw_record().await;
        return Err(refused);
    }
    // The rest of the proof of the store's conditions is sent beside the listing that shows the
    // store's time. If the proof fails, the create repeats it and reports the error.
    let (proof, recorded) = (objects.env.store.ensure_conditions(), requests.has_recorded());
    let (identity, _) = futures::join!(dated_identity(objects, boundary, recorded), proof);
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
    refuse_what_is_left(objects, &left).await?;
    let (database, scratch) = dated_identity(objects, boundary, false).await?;
    delete_scratch(objects, scratch).await;
    Ok(database)
}

/// An object that told the store's time, and is to be deleted.
type LeftScratch = Option<ObjectName>;

/// The identity of a database behind `boundary`, and the object that told the store's time.
/// `recorded`: the record of the store's proof was created just now, so its date is that time.
async fn dated_identity(
    objects: &Objects,
    boundary: ManifestId,
    recorded: bool,
) -> Result<(DatabaseId, LeftScratch)> {
    let database = DatabaseId(objects.env.random_u128());
    if boundary.is_none() && !objects.env.store.profile().may_be_emptied {
        return Ok((database, None));
    }
    let (mut first, scratch) = first_number(objects, database, recorded).await?;
    if !boundary.is_none() {
        // On every store: no folder went, so handles of the old database still reach this place.
        first = objects.numbers_left().await?.first_number(first, rules::in_force());
    }
    Ok((DatabaseId::counting_from(first, database.0 as u64), scratch))
}

/// The first number of a database that is created now.
async fn first_number(
    objects: &Objects,
    database: DatabaseId,
    recorded: bool,
) -> Result<(u64, LeftScratch)> {
    let own = objects.env.clock.now();
    if recorded && let Some(stored) = date_of_proof(objects).await? {
        let millis = within_its_second(stored, own, objects.env.random.next_u64());
        return Ok((millis.saturating_mul(NUMBERS_A_MILLI), None));
    }
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

async fn refuse_what_is_left(objects: &Objects, left: &Left) -> Result<()> {
    lost_beginning(objects, left).await?.map_or(Ok(()), Err)
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
