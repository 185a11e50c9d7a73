//! The places of tables of a clone's ancestors (rule K3, RFC 0029): by the number that a descriptor
//! names, the store of that ancestor, and whose tables must stand there.

use parking_lot::RwLock;
use siltstone_base::sst::SstLocation;
use siltstone_base::{DatabaseId, Error, ErrorKind, Result, SstDescriptor};
use siltstone_manifest::Manifest;
use siltstone_sst::Table;
use siltstone_store::Store;
use siltstone_store::in_use::StoreUse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The ancestors of one database, as its manifests name them: a number means one of them for ever.
#[derive(Debug, Default)]
pub(crate) struct Ancestors(RwLock<KnownAncestors>);

#[derive(Debug, Default)]
struct KnownAncestors {
    places: BTreeMap<u32, AncestorPlace>,
    /// The handle's uses of their stores.
    uses: Vec<StoreUse>,
    /// The handle has ended: nothing is kept open for it.
    is_at_rest: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct AncestorPlace {
    pub(crate) database: DatabaseId,
    location: Arc<str>,
    /// Once it was asked for.
    store: Option<Arc<dyn Store>>,
}

/// The part of an error that names the place where a parent should be.
const LOST_PARENT: &str = "parent";

impl AncestorPlace {
    /// The error when the parent is not at its place.
    pub(crate) fn lost(&self) -> Error {
        Error::new(
            ErrorKind::NotFound,
            "a parent of this clone is not at its place: it was moved, removed or replaced; put it \
             back there",
        )
        .with(LOST_PARENT, &self.location)
    }
}

/// Whether the error says that a parent is not at its place. No newer version of the clone helps.
pub(crate) fn is_lost_parent(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound
        && error.context().iter().any(|(name, _)| *name == LOST_PARENT)
}

impl Ancestors {
    /// Takes note of those that `manifest` names.
    pub(crate) fn learn(&self, manifest: &Manifest) {
        if manifest.ancestors.is_empty() {
            return;
        }
        let mut known = self.0.write();
        for entry in &manifest.ancestors {
            known.places.entry(entry.number).or_insert_with(|| AncestorPlace {
                database: entry.database,
                location: entry.location.as_str().into(),
                store: None,
            });
        }
    }

    fn place(&self, number: u32) -> Result<AncestorPlace> {
        let place = self.0.read().places.get(&number).cloned();
        let unknown = || Error::corruption("a table lies in an ancestor that no manifest names");
        place.ok_or_else(|| unknown().with("ancestor", number))
    }

    /// The ancestor that holds the table; `None` for the database's own, and for a table without
    /// an entry.
    pub(crate) fn parent_of(&self, table: &SstDescriptor) -> Option<AncestorPlace> {
        match table.location {
            SstLocation::Own => None,
            SstLocation::Ancestor(number) => self.place(number).ok(),
        }
    }

    /// The place of the ancestor that holds the table; `None` as of [`Ancestors::parent_of`].
    pub(crate) fn location_of(&self, table: &SstDescriptor) -> Option<Arc<str>> {
        self.parent_of(table).map(|parent| parent.location)
    }

    /// The store that holds the table, `home` being that of the database itself.
    ///
    /// # Errors
    /// Unsupported where the store follows no such place; Corruption where no entry has its number.
    pub(crate) fn store_of(
        &self,
        home: &Arc<dyn Store>,
        table: &SstDescriptor,
    ) -> Result<Arc<dyn Store>> {
        let SstLocation::Ancestor(number) = table.location else { return Ok(Arc::clone(home)) };
        let place = self.place(number)?;
        if let Some(store) = place.store {
            return Ok(store);
        }
        let store = home.neighbours().neighbour(&place.location)?;
        let begun = store.place().begin_use();
        let mut known = self.0.write();
        let Some(place) = known.places.get_mut(&number) else { return Ok(store) };
        if let Some(quicker) = &place.store {
            return Ok(Arc::clone(quicker));
        }
        place.store = Some(Arc::clone(&store));
        if !known.is_at_rest {
            known.uses.push(begun);
        }
        Ok(store)
    }

    /// The handle has ended: its uses of these stores end too.
    pub(crate) fn end_use(&self) {
        let mut known = self.0.write();
        known.is_at_rest = true;
        let ended = std::mem::take(&mut known.uses);
        drop(known);
        drop(ended);
    }

    /// The database that the table belongs to, `own` being the database itself.
    ///
    /// # Errors
    /// Corruption where no entry has its number.
    pub(crate) fn database_of(&self, own: DatabaseId, table: &SstDescriptor) -> Result<DatabaseId> {
        match table.location {
            SstLocation::Own => Ok(own),
            SstLocation::Ancestor(number) => Ok(self.place(number)?.database),
        }
    }

    /// Holds a table of an ancestor to the identity that its entry names: another database may have
    /// been made in the place of a parent. One in a job's folder was built elsewhere; that name is
    /// its identity.
    ///
    /// # Errors
    /// Corruption, with the place.
    pub(crate) fn check(&self, table: &Table) -> Result<()> {
        let SstLocation::Ancestor(number) = table.descriptor().location else { return Ok(()) };
        if table.descriptor().job.is_some() {
            return Ok(());
        }
        let place = self.place(number)?;
        let found = table.envelope().database;
        if found == place.database {
            return Ok(());
        }
        Err(Error::corruption("a table in the place of an ancestor is another database's")
            .with("table", table.descriptor().id)
            .with("ancestor", &place.location)
            .with("expected", place.database)
            .with("found", found))
    }

    /// `error` about `table`, with the place of the ancestor that should hold it.
    pub(crate) fn placed(&self, error: Error, table: &SstDescriptor) -> Error {
        match table.location {
            SstLocation::Own => error,
            SstLocation::Ancestor(number) => match self.place(number) {
                Ok(place) => error.with("ancestor", &place.location),
                Err(_) => error.with("ancestor", number),
            },
        }
    }
}

/// `error` with the object that `missing` is about, and the ancestor that should hold it.
pub(crate) fn naming(error: Error, missing: &Error) -> Error {
    let told = |error: &Error, name| error.context().iter().any(|(one, _)| *one == name);
    missing.context().iter().fold(error, |error, (name, value)| match told(&error, *name) {
        true => error,
        false => error.with(name, value),
    })
}
