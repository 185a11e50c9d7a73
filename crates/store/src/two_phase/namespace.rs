//! Which records belong to a database: those of the namespace that `two-phase/namespace` names.
//!
//! ```text
//! namespace <32 hex digits>
//! ```
//! The object lies beside the data, so a database that is moved keeps its records. The
//! transactional store decides between two processes that create it at once, so both write the same
//! bytes. It also keeps the location: a copy of the data would share the records of the original,
//! and is refused.

use super::Shared;
use crate::env::random_u128;
use bytes::Bytes;
use siltstone_base::name::prefix;
use siltstone_base::{Error, ErrorKind, ObjectName, Result};
use tokio::sync::OnceCell;

const NAME: ObjectName = ObjectName::TwoPhaseNamespace;
const HEAD: &str = "namespace ";

/// The namespace of one database, found by the first operation that needs it.
#[derive(Default)]
pub(super) struct Namespace {
    id: OnceCell<u128>,
}

fn encode(namespace: u128) -> Bytes {
    Bytes::from(format!("{HEAD}{namespace:032x}\n"))
}

fn decode(bytes: &Bytes) -> Result<u128> {
    let text = std::str::from_utf8(bytes).ok();
    let digits = text.and_then(|text| text.strip_prefix(HEAD)?.strip_suffix('\n'));
    let digits = digits.filter(|digits| digits.len() == 32);
    digits
        .and_then(|digits| u128::from_str_radix(digits, 16).ok())
        .ok_or_else(|| Error::corruption("not a namespace of records").with("object", NAME))
}

impl Shared {
    /// The namespace of this database.
    ///
    /// # Errors
    /// Unsupported for a database that was created without a transactional store, or whose
    /// namespace was deleted; Conflict for a copy of another one; those of both stores.
    pub(super) async fn namespace(&self) -> Result<u128> {
        self.namespace.id.get_or_try_init(|| self.find_namespace()).await.copied()
    }

    /// The namespace, if the database has one already: reads create none.
    ///
    /// # Errors
    /// As [`Shared::namespace`].
    pub(super) async fn known_namespace(&self) -> Result<Option<u128>> {
        if let Some(known) = self.namespace.id.get() {
            return Ok(Some(*known));
        }
        let Some(bytes) = self.store.get(NAME, None).await? else { return Ok(None) };
        let found = self.namespace.id.get_or_try_init(|| self.found_namespace(&bytes)).await;
        found.copied().map(Some)
    }

    fn location(&self) -> String {
        self.store.place().location().unwrap_or_default()
    }

    async fn find_namespace(&self) -> Result<u128> {
        match self.store.get(NAME, None).await? {
            Some(bytes) => self.found_namespace(&bytes).await,
            None => self.new_namespace().await,
        }
    }

    async fn found_namespace(&self, bytes: &Bytes) -> Result<u128> {
        let namespace = decode(bytes)?;
        self.check_location(namespace).await?;
        Ok(namespace)
    }

    async fn new_namespace(&self) -> Result<u128> {
        if !self.store.names(prefix::MANIFEST, None).await?.is_empty() {
            // Another process may have created the database since the first look.
            if let Some(bytes) = self.store.get(NAME, None).await? {
                return self.found_namespace(&bytes).await;
            }
            return Err(Error::unsupported(
                "the database has no namespace of records. If it was created without a \
                 transactional store, open it without the store option `transactional_store`, or \
                 export it and import it into a place with that option: the two kinds of creates \
                 must not be mixed. If it was created with one, its namespace was deleted: restore \
                 that (see \"A lost namespace\" in the guide to transactional stores)",
            )
            .with("database", self.location())
            .with("missing object", NAME));
        }
        let fresh = random_u128(&*self.effects.random);
        let namespace = self.records.bind(&self.location(), fresh).await?;
        self.purge(namespace).await?;
        self.write(NAME, encode(namespace)).await?;
        Ok(namespace)
    }

    /// Removes the records of a database whose objects were deleted by other means, before a new
    /// one is created in its place. A process inserts no record before it has written the
    /// namespace, so while that is missing every record listed is an old one.
    async fn purge(&self, namespace: u128) -> Result<()> {
        let mut old = self.records.list(namespace, false).await?;
        old.extend(self.records.list(namespace, true).await?);
        if old.is_empty() || self.store.get(NAME, None).await?.is_some() {
            return Ok(());
        }
        for record in old {
            self.records.purge(namespace, record).await?;
        }
        Ok(())
    }

    /// Refuses a copy, and records where a database was moved to.
    async fn check_location(&self, namespace: u128) -> Result<()> {
        let recorded = self.records.location_of(namespace).await?;
        let Some(recorded) = recorded else {
            return Err(Error::unsupported(
                "the transactional store has no records of this database: give the store that it \
                 was created with, or restore that from its backup",
            )
            .with("database", self.location())
            .with("transactional store", self.records.kind()));
        };
        if recorded == self.location() || self.store.place().stands_at(&recorded) {
            return Ok(());
        }
        let original = self.store.neighbours().neighbour(&recorded);
        let found = match original {
            Ok(original) => original.get(NAME, None).await?,
            Err(_) => Some(encode(namespace)),
        };
        if found.is_some_and(|bytes| decode(&bytes).is_ok_and(|id| id == namespace)) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "this is a copy of a database whose creates are committed in a transactional \
                 store, and both would share their records: clone the original, or export it and \
                 import that",
            )
            .with("copy", self.location())
            .with("original", recorded));
        }
        self.records.rebind(namespace, &self.location()).await
    }
}
