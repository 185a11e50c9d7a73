//! A store whose log lies in another store (RFC 0055): names of WAL objects and of their boundary
//! lead there, all others to the main store.
//!
//! The log of a database has a folder of its own, found by the newest manifest. This module must
//! never read a log before a manifest has named it, and never read a missing log as an empty one.

mod identity;
mod option;

use crate::env::{Random, random_u128};
use crate::in_use::StoreUse;
use crate::presence::Presence;
use crate::profile::Profile;
use crate::sent::{SentKind, SentOutcome, SentRequests};
use crate::{
    Listed, LocalReads, LogIdentityStep, LogStore, Observed, Place, PutAnswer, Store, SweepReport,
    TaggedBytes, passed_on,
};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture, join, try_join};
use identity::LogIdentity;
pub(crate) use option::{LogOption, UrlLogs};
use parking_lot::Mutex;
use siltstone_base::WalStore;
use siltstone_base::name::prefix;
use siltstone_base::{DatabaseId, Error, ObjectName, Result, StoreId, UnixMillis};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The stores of logs below one place.
pub trait LogStores: Send + Sync {
    /// The place itself.
    fn base(&self) -> &dyn Store;
    /// The folder of the log of `database`.
    ///
    /// # Errors
    /// Those of [`Neighbours::neighbour`](crate::Neighbours::neighbour).
    fn of(&self, database: DatabaseId) -> Result<Arc<dyn Store>>;
}

/// A store whose log lies in another store.
pub struct SeparateLogStore {
    main: Arc<dyn Store>,
    /// `None` for the store of another database whose log is never read from here.
    logs: Option<(Arc<dyn LogStores>, Arc<dyn Random>)>,
    state: Arc<Mutex<LogState>>,
    /// Requests for the log, where its store does not count them and the main store does.
    counted: Arc<SentRequests>,
}

#[derive(Default)]
struct LogState {
    /// The log of the newest manifest that was found.
    log: Option<Arc<DatabaseLog>>,
    /// Number of handles that use this store.
    uses: usize,
    /// The use of the log's store, while there is a handle.
    in_use: Option<StoreUse>,
    /// Objects that are created in both stores to read both clocks.
    clocks: HashSet<ObjectName>,
}

/// The log of one database.
struct DatabaseLog {
    database: DatabaseId,
    id: StoreId,
    store: Arc<dyn Store>,
    /// The store of the other objects.
    main: Arc<dyn Store>,
    proven: OnceCell<()>,
}

impl DatabaseLog {
    /// Checks once that the store still has this log.
    async fn prove(&self) -> Result<()> {
        let proven = self.proven.get_or_try_init(|| async {
            let proof = identity::prove(&*self.store, &*self.main, self.database, self.id).await;
            proof.map_err(|error| self.told(error))
        });
        proven.await.map(drop)
    }

    /// As [`LogStore::identity`].
    async fn step(&self, step: LogIdentityStep) -> Result<()> {
        let told = |error| self.told(error);
        match step {
            LogIdentityStep::Check => self.prove().await,
            LogIdentityStep::Ignore => {
                identity::check_absent(&*self.store).await.map_err(told)?;
                // It is set if a proof has succeeded meanwhile.
                let _ = self.proven.set(());
                Ok(())
            }
            LogIdentityStep::Renew => {
                let own = self.identity();
                identity::renew(&*self.store, &*self.main, &own).await.map_err(told)
            }
        }
    }

    fn identity(&self) -> LogIdentity {
        let place = self.main.place().location().unwrap_or_default();
        LogIdentity { log: self.id, database: self.database, place }
    }

    /// `error` with the place of the log.
    fn told(&self, error: Error) -> Error {
        error.with("store of the log", self.store.place().location().unwrap_or_default())
    }

    /// Performs `request` while the identity is checked.
    async fn proving<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        try_join(self.prove(), request).await.map(|(_, answer)| answer)
    }
}

fn is_of_log(name: ObjectName) -> bool {
    matches!(name, ObjectName::Wal(_) | ObjectName::WalBoundary(_) | ObjectName::LogIdentity)
}

impl SeparateLogStore {
    /// A store for databases whose logs lie in `logs`.
    #[must_use]
    pub fn new(
        main: Arc<dyn Store>,
        logs: Arc<dyn LogStores>,
        random: Arc<dyn Random>,
    ) -> Arc<SeparateLogStore> {
        SeparateLogStore::made(main, Some((logs, random)))
    }

    /// The store of another database, of which this process reads no log, wherever it lies.
    pub fn without_log(main: Arc<dyn Store>) -> Arc<SeparateLogStore> {
        SeparateLogStore::made(main, None)
    }

    fn made(
        main: Arc<dyn Store>,
        logs: Option<(Arc<dyn LogStores>, Arc<dyn Random>)>,
    ) -> Arc<SeparateLogStore> {
        let (state, counted) = (Arc::default(), Arc::default());
        Arc::new(SeparateLogStore { main, logs, state, counted })
    }

    fn base(&self) -> Option<&dyn Store> {
        self.logs.as_ref().map(|(logs, _)| logs.base())
    }

    fn known(&self) -> Option<Arc<DatabaseLog>> {
        self.state.lock().log.clone()
    }

    /// The log of the database.
    fn log(&self) -> Result<Arc<DatabaseLog>> {
        self.known().ok_or_else(|| match self.logs {
            Some(_) => Error::internal("a log is used before its manifest was read"),
            None => Error::internal("the log of an ancestor is used"),
        })
    }

    /// The log of the database, once its identity was checked: another log is never changed.
    async fn proven(&self) -> Result<Arc<DatabaseLog>> {
        let log = self.log()?;
        log.prove().await?;
        Ok(log)
    }

    fn take_up(&self, log: DatabaseLog) {
        let mut state = self.state.lock();
        let begun = if state.uses > 0 { Some(log.store.place().begin_use()) } else { None };
        let before =
            (std::mem::replace(&mut state.in_use, begun), state.log.replace(Arc::new(log)));
        drop(state);
        // This closes files, so it is done outside of the lock.
        drop(before);
    }

    fn counting<'a, T: Send + 'a>(
        &'a self,
        kind: SentKind,
        request: impl Future<Output = T> + Send + 'a,
    ) -> BoxFuture<'a, T> {
        self.counted.sends(kind);
        let ended = |_: &T| self.counted.ended(SentOutcome::Answered);
        request.inspect(ended).boxed()
    }

    /// Whether the log lies where `recorded` says.
    fn check_place(&self, base: &dyn Store, recorded: &WalStore) -> Result<()> {
        let Some(place) = recorded.location.as_deref() else { return Ok(()) };
        if base.place().stands_at(place) {
            return Ok(());
        }
        Err(Error::unsupported(
            "the log of this database lies in another store than the store option `wal_url` \
             gives: give the recorded one",
        )
        .with("recorded", place)
        .with("given", base.place().location().unwrap_or_default()))
    }

    /// Lists both stores. Objects that are being created to read the clocks count once both stores
    /// have them, by the earlier clock.
    async fn list_both(
        &self,
        log: &DatabaseLog,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> Result<Vec<Listed>> {
        let lists = try_join(self.main.list(prefix, after), log.store.list(prefix, after));
        let (main, logs) = log.proving(lists).await?;
        let mut all: BTreeMap<ObjectName, (Listed, u32)> = BTreeMap::new();
        for listed in main.into_iter().chain(logs) {
            let (known, times) = all.entry(listed.name).or_insert((listed, 0));
            known.modified = known.modified.min(listed.modified);
            *times += 1;
        }
        let clocks = self.state.lock().clocks.clone();
        let counts = |(listed, times): &(Listed, u32)| *times > 1 || !clocks.contains(&listed.name);
        Ok(all.into_values().filter(counts).map(|(listed, _)| listed).collect())
    }

    /// Creates an object in both stores, to read both clocks.
    async fn create_in_both(&self, log: &DatabaseLog, name: ObjectName, bytes: Bytes) -> PutAnswer {
        if let Err(error) = log.prove().await {
            return PutAnswer::Refused(error);
        }
        self.state.lock().clocks.insert(name);
        match log.store.put_if_absent(name, bytes.clone()).await {
            PutAnswer::Created | PutAnswer::Exists => self.main.put_if_absent(name, bytes).await,
            failed => failed,
        }
    }

    async fn delete_in_both(&self, log: &DatabaseLog, name: ObjectName) -> Result<()> {
        let (main, logs) = join(self.main.delete(name), log.store.delete(name)).await;
        self.state.lock().clocks.remove(&name);
        main.and(logs)
    }

    /// The log, for an object that is created in both stores once the log is known.
    fn log_of_clock(&self, name: ObjectName) -> Option<Arc<DatabaseLog>> {
        matches!(name, ObjectName::ProbeScratch(_)).then(|| self.known()).flatten()
    }
}

impl fmt::Debug for SeparateLogStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.main.fmt(f)
    }
}

impl Store for SeparateLogStore {
    passed_on!(main: upload, list_job, names_a_delete, neighbours);

    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        if !is_of_log(name) {
            return self.main.get(name, range);
        }
        let get = async move {
            let log = self.log()?;
            log.proving(log.store.get(name, range)).await
        };
        self.counting(SentKind::Get, get)
    }

    fn get_tagged(&self, name: ObjectName) -> BoxFuture<'_, Result<Option<TaggedBytes>>> {
        if !is_of_log(name) {
            return self.main.get_tagged(name);
        }
        let get = self.get(name, None);
        async move { Ok(get.await?.map(|bytes| (bytes, None))) }.boxed()
    }

    fn get_clamped(
        &self,
        name: ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        if !is_of_log(name) {
            return self.main.get_clamped(name, range);
        }
        async move {
            let log = self.log()?;
            log.proving(log.store.get_clamped(name, range)).await
        }
        .boxed()
    }

    /// The profile of the main store, which has the tables. Both have to decide creates.
    fn profile(&self) -> Profile {
        let main = self.main.profile();
        let logs = self.base().map_or(main, |base| base.profile());
        Profile { decides_itself: main.decides_itself && logs.decides_itself, ..main }
    }

    fn unanswered(&self) -> Option<String> {
        self.main.unanswered().or_else(|| self.base()?.unanswered())
    }

    fn ensure_conditions(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            if let Some(log) = self.known() {
                log.store.ensure_conditions().await?;
            }
            self.main.ensure_conditions().await
        }
        .boxed()
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        if is_of_log(name) {
            let put = async move {
                match self.proven().await {
                    Ok(log) => log.store.put_if_absent(name, bytes).await,
                    Err(error) => PutAnswer::Refused(error),
                }
            };
            return self.counting(SentKind::Put, put);
        }
        match self.log_of_clock(name) {
            Some(log) => async move { self.create_in_both(&log, name, bytes).await }.boxed(),
            None => self.main.put_if_absent(name, bytes),
        }
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        let log = match (prefix, self.log()) {
            (prefix::PROBE | prefix::WAL | prefix::WAL_BOUNDARY, Ok(log)) => log,
            (prefix::WAL, Err(error)) => return async { Err(error) }.boxed(),
            // Before a database is created, boundaries of an older one are looked for.
            _ => return self.main.list(prefix, after),
        };
        if prefix == prefix::PROBE {
            return async move { self.list_both(&log, prefix, after).await }.boxed();
        }
        let list = async move { log.proving(log.store.list(prefix, after)).await };
        self.counting(SentKind::List, list)
    }

    fn names(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<ObjectName>>> {
        let log = match (prefix, self.log()) {
            (prefix::WAL | prefix::WAL_BOUNDARY, Ok(log)) => log,
            (prefix::WAL, Err(error)) => return async { Err(error) }.boxed(),
            (prefix::PROBE, Ok(_)) => {
                let listed = self.list(prefix, after);
                let name = |listed: Listed| listed.name;
                return listed.map(move |all| Ok(all?.into_iter().map(name).collect())).boxed();
            }
            _ => return self.main.names(prefix, after),
        };
        let names = async move { log.proving(log.store.names(prefix, after)).await };
        self.counting(SentKind::List, names)
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<()>> {
        if is_of_log(name) {
            let delete = async move { self.proven().await?.store.delete(name).await };
            return self.counting(SentKind::Delete, delete);
        }
        match self.log_of_clock(name) {
            Some(log) => async move { self.delete_in_both(&log, name).await }.boxed(),
            None => self.main.delete(name),
        }
    }

    fn delete_many(&self, names: Vec<ObjectName>) -> BoxFuture<'_, Vec<Result<()>>> {
        let in_both = |name: ObjectName| self.log_of_clock(name).is_some();
        let is_mixed = |name: &ObjectName| is_of_log(*name) || in_both(*name);
        if !names.iter().any(is_mixed) {
            return self.main.delete_many(names);
        }
        let of_main = |name: &ObjectName| !is_of_log(*name);
        let of_logs = |name: &ObjectName| is_mixed(name);
        let main: Vec<ObjectName> = names.iter().copied().filter(of_main).collect();
        let logs: Vec<ObjectName> = names.iter().copied().filter(of_logs).collect();
        async move {
            let mut answers: BTreeMap<ObjectName, Result<()>> = BTreeMap::new();
            let deleted = match self.proven().await {
                Ok(log) => {
                    let requests = (log.store.delete_many(logs.clone()), SentKind::Delete);
                    let logged = self.counting(requests.1, requests.0);
                    let (main_answers, logged) =
                        join(self.main.delete_many(main.clone()), logged).await;
                    main.into_iter().zip(main_answers).chain(logs.into_iter().zip(logged)).collect()
                }
                Err(error) => {
                    let main_answers = self.main.delete_many(main.clone()).await;
                    let failed = logs.into_iter().map(|name| (name, Err(error.clone())));
                    let done = main.into_iter().zip(main_answers);
                    done.chain(failed).collect::<Vec<_>>()
                }
            };
            for (name, answer) in deleted {
                let known = answers.remove(&name).unwrap_or(Ok(()));
                answers.insert(name, known.and(answer));
            }
            names.iter().map(|name| answers.get(name).cloned().unwrap_or(Ok(()))).collect()
        }
        .boxed()
    }

    fn sweep(&self, cutoff: UnixMillis) -> BoxFuture<'_, Result<SweepReport>> {
        let Some(log) = self.known() else { return self.main.sweep(cutoff) };
        async move {
            let (main, logs) = try_join(self.main.sweep(cutoff), log.store.sweep(cutoff)).await?;
            let (uploads, bytes) = (main.uploads + logs.uploads, main.bytes + logs.bytes);
            Ok(SweepReport { uploads, bytes })
        }
        .boxed()
    }

    fn at_rest(&self) -> BoxFuture<'_, ()> {
        async move {
            let log = self.known();
            let log = OptionFuture::from(log.as_ref().map(|log| log.store.at_rest()));
            join(self.main.at_rest(), log).await;
        }
        .boxed()
    }

    fn observed(&self) -> Observed {
        let main = self.main.observed();
        let moved = self.base().map_or(0, |base| base.observed().moved);
        Observed { moved: main.moved + moved, ..main }
    }

    fn reads(&self) -> &dyn LocalReads {
        self
    }

    fn place(&self) -> &dyn Place {
        self
    }

    fn log(&self) -> &dyn LogStore {
        self
    }
}

impl LocalReads for SeparateLogStore {
    fn get_now(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> Option<Result<Option<Bytes>>> {
        if is_of_log(name) { None } else { self.main.reads().get_now(name, range) }
    }

    fn get_now_into(
        &self,
        name: ObjectName,
        range: Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Option<Result<bool>> {
        if is_of_log(name) { None } else { self.main.reads().get_now_into(name, range, buffer) }
    }

    fn lend(&self, name: ObjectName, bytes: u64) -> Option<Bytes> {
        self.main.reads().lend(name, bytes)
    }
}

impl Place for SeparateLogStore {
    fn location(&self) -> Option<String> {
        self.main.place().location()
    }

    fn stands_at(&self, location: &str) -> bool {
        self.main.place().stands_at(location)
    }

    fn begin_use(&self) -> StoreUse {
        let main = self.main.place().begin_use();
        let mut state = self.state.lock();
        state.uses += 1;
        if let Some(log) = state.log.clone().filter(|_| state.in_use.is_none()) {
            state.in_use = Some(log.store.place().begin_use());
        }
        drop(state);
        let state = Arc::clone(&self.state);
        StoreUse::ending(move || {
            drop(main);
            let mut state = state.lock();
            state.uses = state.uses.saturating_sub(1);
            let ended = if state.uses == 0 { state.in_use.take() } else { None };
            drop(state);
            // This closes files, so it is done outside of the lock.
            drop(ended);
        })
    }

    fn occupy(&self, database: DatabaseId, take_over: bool) -> BoxFuture<'_, Result<Presence>> {
        self.main.place().occupy(database, take_over)
    }
}

impl LogStore for SeparateLogStore {
    fn follow(&self, database: DatabaseId, recorded: Option<&WalStore>) -> Result<()> {
        let Some((logs, _)) = &self.logs else { return Ok(()) };
        let Some(recorded) = recorded else {
            return Err(Error::unsupported(
                "the log of this database lies beside its other objects: open it without the \
                 store option `wal_url`, or export it and import it into a place with that option",
            ));
        };
        let is_known = |log: &Arc<DatabaseLog>| log.database == database && log.id == recorded.id;
        if self.known().as_ref().is_some_and(is_known) {
            return Ok(());
        }
        self.check_place(logs.base(), recorded)?;
        let (store, main) = (logs.of(database)?, Arc::clone(&self.main));
        self.take_up(DatabaseLog {
            database,
            id: recorded.id,
            store,
            main,
            proven: OnceCell::new(),
        });
        Ok(())
    }

    fn create(&self, database: DatabaseId) -> BoxFuture<'_, Result<Option<WalStore>>> {
        async move {
            let Some((logs, random)) = &self.logs else { return Ok(None) };
            let (store, main) = (logs.of(database)?, Arc::clone(&self.main));
            let id = StoreId(random_u128(&**random));
            let mut log =
                DatabaseLog { database, id, store, main, proven: OnceCell::new_with(Some(())) };
            log.id = identity::create(&*log.store, &log.identity()).await?;
            let id = log.id;
            self.take_up(log);
            Ok(Some(WalStore { id, location: logs.base().place().location() }))
        }
        .boxed()
    }

    fn identity(&self, step: LogIdentityStep) -> BoxFuture<'_, Result<()>> {
        async move {
            match self.known() {
                Some(log) => log.step(step).await,
                None => Ok(()),
            }
        }
        .boxed()
    }

    fn location(&self) -> Option<String> {
        self.known().and_then(|log| log.store.place().location())
    }

    fn sent(&self) -> Option<Arc<SentRequests>> {
        // Without clients of the main store, all requests are counted above this seam.
        drop(self.main.observed().sent?);
        let base = self.base()?;
        Some(base.observed().sent.unwrap_or_else(|| Arc::clone(&self.counted)))
    }
}
