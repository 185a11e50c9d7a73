//! Drives the state machine of an opening. Requests that the machine allows beside each other are
//! sent at once, because an opening of a database in a distant store waits for each round trip.

use crate::manifests::client::ManifestRequests;
use crate::manifests::objects::{Objects, seen};
use crate::manifests::rules;
use crate::wal::readahead::WalReadahead;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use siltstone_base::{
    AttemptId, DatabaseId, Envelope, Error, ErrorKind, ObjectId, ObjectKind, ObjectName,
    PutOutcome, Result, WalId,
};
use siltstone_manifest::protocol::{
    EarlyAnswer, ManifestAnswer, ManifestRequest, OpenAction, OpenWriter, Recovered, WalListing,
    WalSeen, WriterOptions,
};
use siltstone_manifest::{KeptFence, Manifest};
use siltstone_sst::wal::{self, WalObject, encode_fence};
use siltstone_store::conditional;
use siltstone_store::env::Env;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Drives the state machine of an opening.
pub(crate) struct Opening<'a> {
    objects: &'a Objects,
    log: WalReadahead,
    database: DatabaseId,
    machine: OpenWriter,
    requests: ManifestRequests,
    /// WAL objects that the walk has met.
    bodies: BTreeMap<WalId, WalObject>,
    /// The fence that is being created. Each attempt for one fence uploads the same bytes.
    fencing: Option<(KeptFence, Bytes, AttemptId)>,
    fence_tries: u32,
    /// Whether the store has refused to create a fence again, and the fence to prove it by.
    is_proven: bool,
    unproven: Option<KeptFence>,
}

impl<'a> Opening<'a> {
    /// Starts from the manifest `newest`.
    pub(crate) fn new(objects: &'a Objects, newest: Arc<Manifest>, options: WriterOptions) -> Self {
        Opening {
            objects,
            log: WalReadahead::new(objects),
            database: newest.database,
            machine: OpenWriter::new(options, newest, rules::in_force()),
            requests: ManifestRequests::new(objects),
            bodies: BTreeMap::new(),
            fencing: None,
            fence_tries: 0,
            is_proven: false,
            unproven: None,
        }
    }

    /// Goes on with the requests of the look that found the manifest.
    pub(crate) fn after(self, look: ManifestRequests) -> Self {
        Opening { requests: look, ..self }
    }

    /// Runs the machine to its end. Returns the recovered state and the WAL objects that the walk
    /// met.
    ///
    /// # Errors
    /// Why the writer cannot begin; errors of the store.
    pub(crate) async fn drive(mut self) -> Result<(Recovered, BTreeMap<WalId, WalObject>)> {
        loop {
            match self.machine.action() {
                OpenAction::Request(request) => {
                    let beside = self.beside();
                    let (answer, early) =
                        futures::join!(self.perform_beside_proof(request), join_all(beside));
                    self.take_early(early);
                    self.machine.on_answer(answer?);
                }
                OpenAction::ReadWal(id) => {
                    let seen = match self.log.read(id).await? {
                        Some(object) => self.meet(id, object),
                        None => WalSeen::Absent,
                    };
                    self.machine.on_wal(seen);
                }
                OpenAction::ReadCutOff(id) => {
                    let seen = match self.log.read(id).await {
                        Ok(Some(object)) => self.meet(id, object),
                        Ok(None) => WalSeen::Absent,
                        Err(error) if error.kind() == ErrorKind::Corruption => WalSeen::Foreign,
                        Err(error) => return Err(error),
                    };
                    self.machine.on_wal(seen);
                }
                OpenAction::ListWal(after) => {
                    let listing = self.list_wal_beside_a_look(after).await?;
                    self.machine.on_wal_listing(&listing);
                }
                OpenAction::CreateFence(fence) => {
                    let outcome = self.create_fence(fence).await?;
                    let proves = matches!(outcome, PutOutcome::Committed) && !self.is_proven;
                    self.unproven = proves.then_some(fence);
                    self.machine.on_fence(outcome);
                }
                OpenAction::Done(recovered) => {
                    if !self.is_proven {
                        // An earlier try of the fence had landed.
                        prove_conditions(&self.objects.env, self.database, recovered.fence).await?;
                    }
                    return Ok((recovered, self.bodies));
                }
                OpenAction::Failed(failure) => return Err(failure.into()),
            }
        }
    }

    /// The requests of the log that the machine allows beside its current action. A request that
    /// fails has no answer, and is repeated in its turn.
    fn beside(&self) -> Vec<BoxFuture<'static, Option<EarlyLog>>> {
        let mut requests = Vec::new();
        if !self.objects.is_distant() {
            return requests;
        }
        for action in self.machine.beside() {
            let objects = self.objects.clone();
            requests.push(match action {
                OpenAction::ReadWal(id) => async move {
                    let found = objects.wal(id).await.ok()?;
                    Some(EarlyLog::Read(id, found))
                }
                .boxed(),
                OpenAction::ListWal(after) => async move {
                    let listing = objects.list_wal(after).await.ok()?;
                    Some(EarlyLog::Listed(after, listing))
                }
                .boxed(),
                _ => continue,
            });
        }
        requests
    }

    fn take_early(&mut self, early: Vec<Option<EarlyLog>>) {
        for answer in early.into_iter().flatten() {
            let answer = match answer {
                EarlyLog::Read(id, found) => {
                    let seen = found.map_or(WalSeen::Absent, |object| self.meet(id, object));
                    EarlyAnswer::Wal(id, seen)
                }
                EarlyLog::Listed(after, listing) => EarlyAnswer::WalListed(after, listing),
            };
            self.machine.on_early(answer);
        }
    }

    /// Lists the WAL, and performs the first request of the next look beside it.
    async fn list_wal_beside_a_look(&mut self, after: WalId) -> Result<WalListing> {
        let look = self.machine.beside().into_iter().find_map(|action| match action {
            OpenAction::Request(look) => Some(look),
            _ => None,
        });
        let Some(look) = look.filter(|_| self.objects.is_distant()) else {
            return self.objects.list_wal(after).await;
        };
        let (listing, early) =
            futures::join!(self.objects.list_wal(after), self.requests.perform(look.clone()));
        if let Ok(answer) = early {
            self.machine.on_early(EarlyAnswer::Manifests(look, answer));
        }
        listing
    }

    /// Performs `request`. Once the fence is there, the store's conditions are proven by it at the
    /// same time.
    async fn perform_beside_proof(&mut self, request: ManifestRequest) -> Result<ManifestAnswer> {
        let Some(fence) = self.unproven.take() else {
            return self.requests.perform(request).await;
        };
        let proof = prove_conditions(&self.objects.env, self.database, fence);
        let (answer, proof) = futures::join!(self.requests.perform(request), proof);
        proof?;
        self.is_proven = true;
        answer
    }

    fn meet(&mut self, id: WalId, object: WalObject) -> WalSeen {
        let seen = seen(&object, self.database);
        self.bodies.insert(id, object);
        seen
    }

    async fn create_fence(&mut self, fence: KeptFence) -> Result<PutOutcome<WalSeen>> {
        let env = &self.objects.env;
        if self.fencing.as_ref().is_none_or(|(fencing, ..)| *fencing != fence) {
            let attempt = AttemptId(env.random_u128());
            let object = ObjectId(env.random_u128());
            let envelope = Envelope::new(ObjectKind::Wal, self.database, object, attempt);
            let bytes = encode_fence(envelope, fence.epoch, fence.id, fence.next_id);
            self.fencing = Some((fence, bytes, attempt));
            self.fence_tries = 0;
        }
        let Some((_, bytes, attempt)) = self.fencing.clone() else {
            return Err(Error::internal("the fence to create is missing"));
        };
        if self.fence_tries > 0 {
            let pause = Duration::from_millis(10 << self.fence_tries.min(6));
            env.clock.sleep(env.jittered(pause)).await;
        }
        self.fence_tries += 1;
        let name = ObjectName::Wal(fence.id);
        let created = conditional::create(env, name, bytes, attempt).await;
        let settled = matches!(created.outcome, PutOutcome::Committed | PutOutcome::Lost(_));
        if let Some(error) = created.error.filter(|_| !settled)
            && (!error.may_be_repeated() || self.fence_tries > FENCE_TRIES)
        {
            return Err(error.with("object", name));
        }
        Ok(match created.outcome {
            PutOutcome::Committed => PutOutcome::Committed,
            PutOutcome::NotApplied => PutOutcome::NotApplied,
            PutOutcome::Unknown => PutOutcome::Unknown,
            PutOutcome::Lost(bytes) => {
                let object = match wal::decode(bytes, fence.id) {
                    Ok(object) => Some(object),
                    // The bytes were damaged in transit or in the store; a second read decides.
                    Err(_) => self.objects.wal(fence.id).await?,
                };
                PutOutcome::Lost(match object {
                    Some(object) => self.meet(fence.id, object),
                    None => WalSeen::Vanished,
                })
            }
        })
    }
}

/// The answer to a request of the log that was sent early.
enum EarlyLog {
    Read(WalId, Option<WalObject>),
    Listed(WalId, WalListing),
}

/// Attempts for one fence before opening fails: about half a minute, with pauses of up to 1.3 s.
const FENCE_TRIES: u32 = 30;

/// Checks that the store refuses a second fence under the same name, before any write is
/// acknowledged. A folder and memory decide this themselves and need no check.
async fn prove_conditions(env: &Env, database: DatabaseId, fence: KeptFence) -> Result<()> {
    if env.store.profile().decides_itself {
        return Ok(());
    }
    let KeptFence { id, epoch, next_id } = fence;
    let (object, attempt) = (ObjectId(env.random_u128()), AttemptId(env.random_u128()));
    let envelope = Envelope::new(ObjectKind::Wal, database, object, attempt);
    let again = encode_fence(envelope, epoch, id, next_id);
    conditional::prove(env, ObjectName::Wal(id), again, attempt).await
}
