//! The identity of a log in its store: one object, created before the first manifest that names it.
//!
//! ```text
//! log <32 hex digits>
//! database <32 hex digits>
//! place <URL of the main store>
//! ```
//! The manifest records the first number. A store that was emptied or replaced lacks the object or
//! has another one, so its log is never read as an empty log. The place tells a copy of the main
//! store from the original, because both would write to one log.

use crate::{PutAnswer, Store};
use bytes::Bytes;
use siltstone_base::{DatabaseId, Error, ErrorKind, ObjectName, Result, StoreId};

/// The name of the identity, in the folder of the log.
const NAME: ObjectName = ObjectName::LogIdentity;

/// Which log it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogIdentity {
    pub(super) log: StoreId,
    pub(super) database: DatabaseId,
    /// The place of the other objects of the database; empty if their store has no URL.
    pub(super) place: String,
}

impl LogIdentity {
    fn encode(&self) -> Bytes {
        let LogIdentity { log, database, place } = self;
        Bytes::from(format!("log {:032x}\ndatabase {:032x}\nplace {place}\n", log.0, database.0))
    }

    fn decode(bytes: &[u8]) -> Result<LogIdentity> {
        let decode = || {
            let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
            let (log, text) = text.strip_prefix("log ")?.split_once('\n')?;
            let (database, text) = text.strip_prefix("database ")?.split_once('\n')?;
            // A path may contain any character.
            let place = text.strip_prefix("place ")?.to_owned();
            let (log, database) = (StoreId::parse(log)?, DatabaseId::parse(database)?);
            Some(LogIdentity { log, database, place })
        };
        let wrong = || Error::corruption("not the identity of a log").with("object", NAME);
        decode().ok_or_else(wrong)
    }
}

/// Creates the identity of the log of a new database, and returns its number. If an earlier attempt
/// has created one, returns that of the earlier attempt.
///
/// # Errors
/// Unsupported for a store that ignores the condition of a create; those of the store.
pub(super) async fn create(store: &dyn Store, identity: &LogIdentity) -> Result<StoreId> {
    store.ensure_conditions().await?;
    let error = match store.put_if_absent(NAME, identity.encode()).await {
        PutAnswer::Created => return Ok(identity.log),
        PutAnswer::Exists => None,
        PutAnswer::Refused(error) | PutAnswer::Ambiguous(error) => Some(error),
    };
    let found = store.get(NAME, None).await.map_err(|failed| error.clone().unwrap_or(failed))?;
    let absent = || Error::unavailable("the store has not created the identity of the log");
    let found = found.ok_or_else(|| error.unwrap_or_else(absent))?;
    let found = LogIdentity::decode(&found)?;
    check_database(&found, identity.database)?;
    Ok(found.log)
}

/// Creates the identity again, after a repair that continues without the lost log.
///
/// # Errors
/// Those of [`create`]; Corruption if another identity is there.
pub(super) async fn renew(store: &dyn Store, main: &dyn Store, own: &LogIdentity) -> Result<()> {
    create(store, own).await?;
    prove(store, main, own.database, own.log).await
}

/// Checks that there is no identity, so that a repair can create it again.
///
/// # Errors
/// Corruption if there is an object in its place; those of the store.
pub(super) async fn check_absent(store: &dyn Store) -> Result<()> {
    match store.get(NAME, None).await? {
        None => Ok(()),
        Some(_) => Err(Error::corruption(
            "the store of the log has another object in place of the identity of this database's \
             log: put the objects of the log back; to give up what was only in that log, delete \
             that object and repair again",
        )
        .with("object", NAME)),
    }
}

/// Checks that the store has the log `log` of `database`, and that the log belongs to the database
/// in `main` rather than to one of which that is a copy.
///
/// # Errors
/// Corruption if the identity is missing or another one; Conflict for a copy; those of the store.
pub(super) async fn prove(
    store: &dyn Store,
    main: &dyn Store,
    database: DatabaseId,
    log: StoreId,
) -> Result<()> {
    let Some(bytes) = store.get(NAME, None).await? else {
        return Err(Error::corruption(
            "the store of the log was emptied or replaced: the identity of this database's log is \
             missing, and with the log all acknowledged writes that are not in tables yet; put \
             the objects back, from the store's older versions or a backup; a repair gives them up",
        )
        .with("object", NAME));
    };
    let found = LogIdentity::decode(&bytes)?;
    check_database(&found, database)?;
    if found.log != log {
        return Err(Error::corruption(
            "the store of the log was replaced: it has a log of this database with another \
             identity; put the objects back, from the store's older versions or a backup",
        )
        .with("object", NAME)
        .with("recorded", log)
        .with("found", found.log));
    }
    check_place(main, &found.place)
}

fn check_database(found: &LogIdentity, database: DatabaseId) -> Result<()> {
    if found.database == database {
        return Ok(());
    }
    Err(Error::corruption("the log of another database is in the folder of this one")
        .with("object", NAME)
        .with("database", database)
        .with("found", found.database))
}

/// Whether the main store stands where the log was created. *The run that breaks without it:* the
/// main store is copied. A writer of the copy and one of the original both claim epoch 2, and each
/// recovers the rows of the other from their one log.
fn check_place(main: &dyn Store, made_at: &str) -> Result<()> {
    let Some(here) = main.place().location() else { return Ok(()) };
    let unknown = made_at.is_empty();
    if unknown || main.place().stands_at(made_at) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Conflict,
        "this database was moved or copied, and its log in a store of its own belongs to the \
         original: put it back where it was made (in a folder, a symbolic link there will do); to \
         have another copy of it, export the original and import that",
    )
    .with("made at", made_at)
    .with("found at", here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_has_one_form() {
        for place in ["", "s3://bucket/db", "file:///a\nplace b\n"] {
            let (log, database) = (StoreId(7), DatabaseId(u128::MAX));
            let identity = LogIdentity { log, database, place: place.to_owned() };
            let bytes = identity.encode();
            assert_eq!(LogIdentity::decode(&bytes).unwrap(), identity);
            let text = std::str::from_utf8(&bytes).unwrap();
            let wrong = [
                text.replace("log 0", "log "),
                text.replace("log 0", "log +"),
                text.replace("database", "Database"),
                text.replacen("\nplace ", "\n", 1),
                text.trim_end_matches('\n').to_owned(),
                String::new(),
            ];
            for wrong in wrong {
                assert!(LogIdentity::decode(wrong.as_bytes()).is_err(), "{wrong:?}");
            }
        }
    }
}
