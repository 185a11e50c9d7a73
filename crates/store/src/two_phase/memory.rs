//! Records in the memory of this process: for `memory:` databases and tests.

use super::records::{InsertOutcome, Record, RecordStore};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use siltstone_base::{ObjectName, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

/// Records in memory. They end with the process, as the objects of a `memory:` store do.
#[derive(Debug, Default)]
pub struct MemoryRecords {
    tables: Mutex<RecordTables>,
}

#[derive(Debug, Default)]
struct RecordTables {
    namespaces: BTreeMap<String, u128>,
    records: BTreeMap<(u128, ObjectName), Record>,
    /// Sources of records, and revoked ones.
    sources: BTreeSet<(u128, ObjectName)>,
}

/// Stores with a name live as long as the process.
static NAMED: LazyLock<Mutex<HashMap<String, Arc<MemoryRecords>>>> = LazyLock::new(Mutex::default);

impl MemoryRecords {
    /// The store of this name, shared by every user in this process.
    #[must_use]
    pub fn named(name: &str) -> Arc<MemoryRecords> {
        Arc::clone(NAMED.lock().entry(name.to_owned()).or_default())
    }
}

fn done<T: Send + 'static>(value: T) -> BoxFuture<'static, Result<T>> {
    ready(Ok(value)).boxed()
}

impl RecordStore for MemoryRecords {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn bind(&self, location: &str, fresh: u128) -> BoxFuture<'_, Result<u128>> {
        let mut tables = self.tables.lock();
        done(*tables.namespaces.entry(location.to_owned()).or_insert(fresh))
    }

    fn location_of(&self, namespace: u128) -> BoxFuture<'_, Result<Option<String>>> {
        let tables = self.tables.lock();
        let found = tables.namespaces.iter().find(|(_, id)| **id == namespace);
        done(found.map(|(location, _)| location.clone()))
    }

    fn rebind(&self, namespace: u128, location: &str) -> BoxFuture<'_, Result<()>> {
        let mut tables = self.tables.lock();
        tables.namespaces.retain(|_, id| *id != namespace);
        tables.namespaces.insert(location.to_owned(), namespace);
        done(())
    }

    fn insert(
        &self,
        namespace: u128,
        destination: ObjectName,
        source: ObjectName,
    ) -> BoxFuture<'_, Result<InsertOutcome>> {
        let mut tables = self.tables.lock();
        if tables.records.contains_key(&(namespace, destination)) {
            return done(InsertOutcome::Taken);
        }
        if !tables.sources.insert((namespace, source)) {
            return done(InsertOutcome::Revoked);
        }
        let record = Record { destination, source, complete: false };
        tables.records.insert((namespace, destination), record);
        done(InsertOutcome::Inserted)
    }

    fn get(&self, namespace: u128, name: ObjectName) -> BoxFuture<'_, Result<Option<Record>>> {
        done(self.tables.lock().records.get(&(namespace, name)).copied())
    }

    fn list(&self, namespace: u128, complete: bool) -> BoxFuture<'_, Result<Vec<Record>>> {
        let tables = self.tables.lock();
        let of_kind = |((of, _), record): &(&(u128, ObjectName), &Record)| {
            *of == namespace && record.complete == complete
        };
        done(tables.records.iter().filter(of_kind).map(|(_, record)| *record).collect())
    }

    fn complete(&self, namespace: u128, record: Record) -> BoxFuture<'_, Result<()>> {
        let mut tables = self.tables.lock();
        if let Some(found) = tables.records.get_mut(&(namespace, record.destination))
            && found.source == record.source
        {
            found.complete = true;
        }
        done(())
    }

    fn remove(&self, namespace: u128, names: Vec<ObjectName>) -> BoxFuture<'_, Result<()>> {
        let mut tables = self.tables.lock();
        for name in names {
            let at = (namespace, name);
            if tables.records.get(&at).is_some_and(|record| record.complete)
                && let Some(record) = tables.records.remove(&at)
            {
                tables.sources.remove(&(namespace, record.source));
            }
        }
        done(())
    }

    fn purge(&self, namespace: u128, record: Record) -> BoxFuture<'_, Result<()>> {
        let mut tables = self.tables.lock();
        let at = (namespace, record.destination);
        if tables.records.get(&at).is_some_and(|one| one.source == record.source) {
            tables.records.remove(&at);
            tables.sources.remove(&(namespace, record.source));
        }
        done(())
    }

    fn revoke(&self, namespace: u128, source: ObjectName) -> BoxFuture<'_, Result<bool>> {
        let mut tables = self.tables.lock();
        let named = |((of, _), record): (&(u128, ObjectName), &Record)| {
            *of == namespace && record.source == source
        };
        if tables.records.iter().any(named) {
            return done(false);
        }
        tables.sources.insert((namespace, source));
        done(true)
    }
}
