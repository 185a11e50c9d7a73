//! Carries out the manifest protocols: the machines say what to ask the store for, this asks.

use super::ahead::{CommitAfter, ReadAhead};
use super::conditional_create::{Creating, FIRST_PAUSE, LONGEST_PAUSE};
use super::missing::{lost_beginning, no_database};
use super::objects::{Left, Objects};
use super::rules;
use parking_lot::RwLock;
use siltstone_base::{
    AttemptId, CheckpointId, DatabaseId, Error, ErrorKind, ManifestId, ObjectId, ObjectName,
    PutOutcome, Result,
};
use siltstone_manifest::edit::Conflict;
use siltstone_manifest::protocol::{
    Commit, CommitAction, Listing, Look, LookAction, ManifestAnswer, ManifestRequest,
};
use siltstone_manifest::{Edit, Manifest, Refusal};
use siltstone_store::env::Env;
use siltstone_store::full::is_full;
use siltstone_store::retry::with_retries;
use std::sync::Arc;

/// Performs [`ManifestRequest`]s of one machine.
pub(crate) struct ManifestRequests {
    objects: Objects,
    /// The manifest that is being created: while the same state is asked for, the same bytes go
    /// out, so that a retry recognises an earlier try of its own.
    creating: Option<(Arc<Manifest>, Creating, AttemptId)>,
    ahead: ReadAhead,
    /// Whether the record of the proof was created by a look of this value.
    has_recorded: bool,
    /// Whether a store without room for a manifest ends a commit, instead of a wait for room.
    ends_if_full: bool,
}

impl ManifestRequests {
    pub(crate) fn new(objects: &Objects) -> Self {
        ManifestRequests::before(objects, CommitAfter::Nothing)
    }

    /// For a look that a commit follows.
    pub(crate) fn before(objects: &Objects, then: CommitAfter) -> Self {
        let ahead = ReadAhead::before(then);
        ManifestRequests {
            objects: objects.clone(),
            creating: None,
            ahead,
            has_recorded: false,
            ends_if_full: false,
        }
    }

    /// For a caller that continues without its commit if the store has no room for a manifest:
    /// the commit returns the refusal at once.
    pub(crate) fn ending_if_full(self) -> Self {
        ManifestRequests { ends_if_full: true, ..self }
    }

    /// Whether the record of the store's proof was created beside a look: its date is the store's
    /// time.
    pub(crate) fn has_recorded(&self) -> bool {
        self.has_recorded
    }

    /// Lists the manifests after `after`. If a database may be created, begins the proof of the
    /// store's conditions beside the listing.
    async fn list_and_begin_proof(
        &mut self,
        after: ManifestId,
    ) -> Result<(Listing, Vec<ManifestId>)> {
        let begins = self.ahead.begins_proof();
        let proof =
            async { if begins { self.objects.env.store.begin_proof().await.ok() } else { None } };
        let (listed, is_new) = futures::join!(self.objects.list_run(after, &mut self.ahead), proof);
        self.has_recorded |= is_new.unwrap_or_default();
        if listed.is_err() {
            self.withdraw_record().await;
        }
        listed
    }

    /// Deletes the record of the store's proof if a look of this value has created it: the opening
    /// ends with an error before it creates anything else. Other processes prove the store again.
    pub(crate) async fn withdraw_record(&mut self) {
        if std::mem::take(&mut self.has_recorded) {
            // The error of the opening is reported, not that of the delete.
            drop(self.objects.env.store.delete(ObjectName::ProbeRecord).await);
        }
    }

    /// One request and its answer.
    ///
    /// # Errors
    /// Denied at once, Timeout after the limit of a request; asking again goes on where this
    /// stopped. Corruption and Unsupported for what was read.
    pub(crate) async fn perform(&mut self, request: ManifestRequest) -> Result<ManifestAnswer> {
        match request {
            ManifestRequest::List { after } => {
                let listing = self.objects.list_ahead(after, &mut self.ahead).await?;
                Ok(ManifestAnswer::Listed(listing))
            }
            ManifestRequest::Read(id) => match self.ahead.take(id) {
                Some(answer) => Ok(answer),
                None => Ok(ManifestAnswer::Read(self.objects.manifest(id).await?)),
            },
            ManifestRequest::Create(state) => self.create(state).await,
        }
    }

    /// As [`commit_alone`], for a process that commits again and again: what a listing of this
    /// database takes is remembered.
    ///
    /// # Errors
    /// As [`commit_alone`].
    pub(crate) async fn commit(
        &mut self,
        edit: Edit,
        newest: Arc<Manifest>,
    ) -> Result<Arc<Manifest>> {
        self.try_commit(edit, newest).await?.map_err(Error::from)
    }

    async fn try_commit(
        &mut self,
        edit: Edit,
        newest: Arc<Manifest>,
    ) -> Result<Result<Arc<Manifest>, Refusal>> {
        self.restart();
        let mut machine = Commit::new(edit, newest, rules::in_force());
        loop {
            match machine.action() {
                CommitAction::Done(state) => return Ok(Ok(state)),
                CommitAction::Failed(refusal) => return Ok(Err(refusal)),
                CommitAction::Request(request) => machine.on_answer(self.perform(request).await?),
            }
        }
    }

    /// Begins the series of tries of a commit.
    fn restart(&mut self) {
        if let Some((_, creating, _)) = &mut self.creating {
            creating.restart(&self.objects);
        }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.objects.env
    }

    async fn create(&mut self, state: Arc<Manifest>) -> Result<ManifestAnswer> {
        let objects = &self.objects;
        let same = self.creating.as_ref().is_some_and(|(creating, ..)| *creating == state);
        if !same {
            let attempt = AttemptId(objects.env.random_u128());
            let bytes = state.encode(ObjectId(objects.env.random_u128()), attempt)?;
            self.creating = Some((state, Creating::new(objects, bytes, attempt), attempt));
        }
        let Some((state, creating, attempt)) = &mut self.creating else {
            return Err(Error::internal("a manifest is created from nothing"));
        };
        let name = ObjectName::Manifest(state.id);
        let outcome = creating.once(objects, name).await?;
        let full = creating.trouble().filter(|trouble| self.ends_if_full && is_full(trouble));
        if let Some(full) = full {
            return Err(full.clone().with("object", name));
        }
        let answer = ManifestAnswer::Created(outcome, *attempt);
        if outcome == PutOutcome::Committed {
            self.ahead.note_created(state);
        }
        if matches!(outcome, PutOutcome::Committed | PutOutcome::Lost(())) {
            self.creating = None;
        }
        Ok(answer)
    }
}

/// The newest manifest, proven.
///
/// # Errors
/// NotFound if there is no database; Corruption if it lost manifests; those of [`look`].
pub(crate) async fn newest(objects: &Objects) -> Result<Arc<Manifest>> {
    match look(objects, None).await? {
        Some(newest) => Ok(newest),
        None => Err(absent(objects).await?),
    }
}

/// The error for a location where a look found no database.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn absent(objects: &Objects) -> Result<Error> {
    Ok(lost_first(objects).await?.unwrap_or_else(|| no_database(&objects.env)))
}

/// The error for a location where a look found no database, if one stands there without its first
/// manifests. A boundary shows that manifests were freed, or that a database is being destroyed.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn lost_first(objects: &Objects) -> Result<Option<Error>> {
    for is_last in [false, true] {
        let left = objects.manifests_listed().await?;
        let lost = if left.1.is_none() { lost_beginning(objects, &left).await? } else { None };
        // A database that was created since the look is whole.
        if is_last || lost.is_none() || look(objects, None).await?.is_some() {
            return Ok(lost.filter(|_| is_last));
        }
    }
    Ok(None)
}

/// The newest manifest, proven; `None` where there is no database.
pub(crate) async fn look(
    objects: &Objects,
    known: Option<Arc<Manifest>>,
) -> Result<Option<Arc<Manifest>>> {
    run_look(objects, Look::new(known, rules::in_force())).await
}

/// The newest manifest, proven; where there is no database, what is left of manifests. For callers
/// that commit next: the store's conditions are proven beside the look.
pub(crate) async fn look_or_left(
    objects: &Objects,
    requests: &mut ManifestRequests,
) -> Result<Result<Arc<Manifest>, Left>> {
    let mut machine = Look::new(None, rules::in_force());
    let mut left = Left::default();
    loop {
        match machine.action() {
            LookAction::Done(newest) => {
                newest.as_deref().map_or(Ok(()), |newest| objects.follow_log(newest))?;
                return Ok(newest.ok_or(left));
            }
            LookAction::Request(ManifestRequest::List { after }) => {
                let (listing, ids) = requests.list_and_begin_proof(after).await?;
                left = (ids, listing.boundary);
                machine.on_answer(ManifestAnswer::Listed(listing));
            }
            LookAction::Request(request) => machine.on_answer(requests.perform(request).await?),
        }
    }
}

async fn run_look(objects: &Objects, mut machine: Look) -> Result<Option<Arc<Manifest>>> {
    let mut requests = ManifestRequests::new(objects);
    loop {
        match machine.action() {
            LookAction::Done(newest) => {
                newest.as_deref().map_or(Ok(()), |newest| objects.follow_log(newest))?;
                return Ok(newest);
            }
            LookAction::Request(request) => machine.on_answer(requests.perform(request).await?),
        }
    }
}

/// Creates the first manifest of a database, or returns the one of another process that came first.
/// A separate log gets its identity before a manifest names it.
pub(crate) async fn found(
    objects: &Objects,
    requests: &mut ManifestRequests,
    initial: Manifest,
) -> Result<Arc<Manifest>> {
    let store = &objects.env.store;
    let features = initial.features.clone().committed_by(store.profile().records);
    let create = || store.log().create(initial.database);
    let wal_store = with_retries(&objects.env, objects.limit, "create the log", create).await?;
    let initial = Manifest { features, wal_store, ..initial };
    let mut machine = Commit::found(initial, rules::in_force());
    loop {
        match machine.action() {
            CommitAction::Done(state) => {
                objects.follow_log(&state)?;
                return Ok(state);
            }
            CommitAction::Failed(refusal) => return Err(refusal.into()),
            CommitAction::Request(request) => machine.on_answer(requests.perform(request).await?),
        }
    }
}

/// Commits `edit` once, in the caller's task: a caller that gives up, or meets an error, does not
/// know the outcome. It must repeat the same edit, or make one that holds for either outcome.
///
/// # Errors
/// Why the edit was refused; Denied, Timeout, Corruption.
pub(crate) async fn commit_alone(
    objects: &Objects,
    edit: Edit,
    newest: Arc<Manifest>,
) -> Result<Arc<Manifest>> {
    ManifestRequests::new(objects).commit(edit, newest).await
}

/// As [`commit_alone`]; within: why the edit was refused.
///
/// # Errors
/// Denied, Timeout, Corruption.
pub(crate) async fn try_commit_alone(
    objects: &Objects,
    edit: Edit,
    newest: Arc<Manifest>,
) -> Result<Result<Arc<Manifest>, Refusal>> {
    ManifestRequests::new(objects).try_commit(edit, newest).await
}

/// The process that a client commits for, which is notified of newer states.
pub(crate) trait Observer: Send + Sync {
    /// A newer state is known. Told in the order of the states, under a lock: it must not wait.
    fn learns(&self, newest: &Arc<Manifest>);
    /// A commit has met what may pass, and is tried again.
    fn meets(&self, _trouble: &Error) {}
    /// Why the process has ended, which ends the trying; `None` while it goes on.
    fn ended(&self) -> Option<Error>;
}

/// The commits of a process, one at a time.
pub(crate) struct ManifestClient {
    objects: Objects,
    database: DatabaseId,
    known: RwLock<Arc<Manifest>>,
    /// Held by the commit whose turn it is.
    turn: tokio::sync::Mutex<ManifestRequests>,
    observer: Arc<dyn Observer>,
}

impl ManifestClient {
    /// Goes on from `newest`, of which the observer has been told. The client remembers which
    /// manifests a listing needs, and its next commit reads them beside the listing.
    pub(crate) fn new(
        objects: Objects,
        newest: Arc<Manifest>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let requests = ManifestRequests::new(&objects);
        ManifestClient {
            objects,
            database: newest.database,
            known: RwLock::new(newest),
            turn: tokio::sync::Mutex::new(requests),
            observer,
        }
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    pub(crate) fn database(&self) -> DatabaseId {
        self.database
    }

    /// The newest manifest this process knows.
    pub(crate) fn newest_known(&self) -> Arc<Manifest> {
        Arc::clone(&self.known.read())
    }

    /// A state that was proven, or that only costs requests when it is false.
    pub(crate) fn learn(&self, state: &Arc<Manifest>) {
        let mut known = self.known.write();
        if state.id > known.id {
            *known = Arc::clone(state);
            // Under the lock, so that an older state does not come after a newer one.
            self.observer.learns(state);
        }
    }

    /// Looks for a newer manifest: by one read of the next number, or `thorough`ly by a listing. A
    /// read that finds nothing proves nothing, so nothing may depend on it (rule M4). Either way it
    /// finds out that the database is gone.
    ///
    /// # Errors
    /// NotFound when the database was deleted, whether or not another stands in its place; those of
    /// the store.
    pub(crate) async fn probe(&self, thorough: bool) -> Result<Arc<Manifest>> {
        let known = self.newest_known();
        let mut newest = self.sought(Arc::clone(&known), thorough).await?;
        if !thorough
            && newest.as_ref().is_some_and(|newest| newest.id == known.id)
            && self.objects.env.store.profile().may_be_emptied
            && self.objects.owner_of(known.id).await? != Some(self.database)
        {
            // Freed, or deleted with all the rest: what follows it says which (rule E1).
            newest = self.sought(known, true).await?;
        }
        let newest = newest.filter(|newest| newest.database == self.database);
        let newest = newest.ok_or(Refusal::Conflict(Conflict::OtherDatabase))?;
        // The writer's own commits plan on what they know; any newer state is a better base.
        self.learn(&newest);
        Ok(newest)
    }

    /// Looks for a newer state in passing: one read; with `thorough` a listing, which finds one
    /// that no read of the next number can (rule M4). The client learns a newer state. No decision
    /// depends on it: a writer checks by itself whether the database still exists.
    pub(crate) async fn glance(&self, thorough: bool) {
        let newest = self.sought(self.newest_known(), thorough).await.ok().flatten();
        if let Some(newest) = newest.filter(|newest| newest.database == self.database) {
            self.learn(&newest);
        }
    }

    /// The result of a look that starts from `known`: by one read, or by a listing.
    async fn sought(&self, known: Arc<Manifest>, thorough: bool) -> Result<Option<Arc<Manifest>>> {
        let (known, rules) = (Some(known), rules::in_force());
        let machine = if thorough { Look::new(known, rules) } else { Look::probe(known, rules) };
        run_look(&self.objects, machine).await
    }

    /// Commits `edit`. Goes on through troubles of the store until the outcome is settled or the
    /// handle has ended: an outcome left open could land under a later commit.
    ///
    /// # Errors
    /// Why the edit was refused; Fenced, Closed when the handle ended meanwhile; what the store
    /// refuses for good; Corruption.
    pub(crate) async fn commit(&self, edit: Edit) -> Result<Arc<Manifest>> {
        self.commit_through(edit, RetryWindow::Endless).await?.map_err(Error::from)
    }

    /// Commits an edit of a compactor, which rivals of another process make as well: that one left
    /// open lands under a later commit is to that one a rival's, which it plans anew behind. So it
    /// ends, and the caller gets the reason.
    ///
    /// # Errors
    /// Denied at once; Timeout after the limit of a request, caused by the last refusal (rule E4):
    /// the outcome is not known then; Fenced or Closed if the handle ended meanwhile; a permanent
    /// refusal of the store; Corruption.
    pub(crate) async fn try_commit(&self, edit: Edit) -> Result<Result<Arc<Manifest>, Refusal>> {
        self.commit_through(edit, RetryWindow::OneRequest).await
    }

    async fn commit_through(
        &self,
        edit: Edit,
        patience: RetryWindow,
    ) -> Result<Result<Arc<Manifest>, Refusal>> {
        let mut requests = self.turn.lock().await;
        requests.restart();
        let mut machine = Commit::new(edit, self.newest_known(), rules::in_force());
        let clock = &self.objects.env.clock;
        let (began, mut pause) = (clock.monotonic(), FIRST_PAUSE);
        loop {
            let request = match machine.action() {
                CommitAction::Done(state) => {
                    self.learn(&state);
                    return Ok(Ok(state));
                }
                CommitAction::Failed(refusal) => return Ok(Err(refusal)),
                CommitAction::Request(request) => request,
            };
            match requests.perform(request).await {
                Ok(answer) => machine.on_answer(answer),
                Err(error) if error.kind().may_pass() => {
                    if let Some(dead) = self.observer.ended() {
                        return Err(dead);
                    }
                    self.observer.meets(&error);
                    let waited = clock.monotonic().saturating_sub(began);
                    let ends = waited >= self.objects.limit || error.kind() == ErrorKind::Denied;
                    if ends && patience == RetryWindow::OneRequest {
                        return Err(error);
                    }
                    clock.sleep(self.objects.env.jittered(pause)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// For how long a commit goes on through troubles of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetryWindow {
    /// Until its outcome is settled.
    Endless,
    /// As long as a request may take.
    OneRequest,
}

impl ManifestClient {
    /// The version that `checkpoint` names, which a commit of this writer added: `state`, or an
    /// older one when another commit came before this one was settled. Goes on like a commit.
    ///
    /// # Errors
    /// Fenced when a newer writer removed the checkpoint; Closed when the handle ended meanwhile.
    pub(crate) async fn version_of(
        &self,
        state: &Arc<Manifest>,
        checkpoint: CheckpointId,
    ) -> Result<Arc<Manifest>> {
        let named = state.checkpoint(checkpoint).map(|one| one.manifest_id);
        // Only where a test has dropped the rule that adds it.
        let id = named.unwrap_or(state.id);
        if id == state.id {
            return Ok(Arc::clone(state));
        }
        let mut pause = FIRST_PAUSE;
        loop {
            match self.objects.manifest(id).await {
                Ok(Some(version)) => return Ok(version),
                // It is pinned: who let go of it has taken over.
                Ok(None) => return Err(Refusal::Fenced { by: state.writer_epoch.next() }.into()),
                Err(error) if error.kind().may_pass() => {
                    if let Some(dead) = self.observer.ended() {
                        return Err(dead);
                    }
                    let env = &self.objects.env;
                    env.clock.sleep(env.jittered(pause)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
