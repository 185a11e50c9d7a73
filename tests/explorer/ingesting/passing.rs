//! The job is version 1 of an application (rule N11). Another job brings version 2 and replaces the
//! record of version 1; and the application is forgotten.

use super::driving::Driving;
use super::room::{Late, Room, table};
use super::writing::Running;
use super::{Actor, DATABASE, Ingesting, JOB, STAGED};
use crate::chain;
use bytes::Bytes;
use siltstone_base::{JobId, SstDescriptor, SstId, UnixMillis};
use siltstone_manifest::ingest::{JobApp, JobStatus, standing, standing_as};
use siltstone_manifest::protocol::CommitAction;
use siltstone_manifest::{Edit, FlushL0, IngestEdit, InstallIngest, RequestIngest};
use std::collections::BTreeMap;

/// The job with version 2, and its table.
const NEXT: JobId = JobId((1 << 80) + 1);
const NEWER: SstId = SstId(16);

fn version(version: u64, forgotten: u64) -> JobApp {
    JobApp { name: "app".to_owned(), version, forgotten }
}

impl Ingesting {
    /// The job as a version; it began before anything was forgotten.
    pub(super) fn app(&self) -> Option<JobApp> {
        self.passes.then(|| version(1, 0))
    }

    /// The application and version of the job, for a reader of its closing object.
    pub(super) fn read_app(&self, room: &Room) -> BTreeMap<JobId, JobApp> {
        let app = self.app().filter(|_| room.closed.is_some());
        app.map(|app| (JOB, app)).into_iter().collect()
    }

    /// Requests version 2.
    pub(super) fn pass(&self, room: &mut Room) -> Actor {
        let forgotten = room.newest().forgotten_apps.count;
        let request = RequestIngest {
            job: NEXT,
            database: DATABASE,
            timeline: None,
            digest: Bytes::from_static(b"next"),
            app: Some(version(2, forgotten)),
            requested_at: UnixMillis(0),
        };
        room.commit(Edit::Ingest(IngestEdit::Request(request)), self.rules);
        Actor::Gone
    }

    /// Forgets the application, once it has installed something.
    pub(super) fn forget(&self, room: &mut Room) -> Actor {
        let newest = room.newest();
        if newest.ingest_apps.is_empty() || !newest.pending_ingests.is_empty() {
            return Actor::Forgetter;
        }
        let (app, count) = ("app".to_owned(), newest.forgotten_apps.count);
        room.commit(Edit::Ingest(IngestEdit::ForgetApp { app, count }), self.rules);
        Actor::Gone
    }

    /// The writer adopts version 2 immediately if it is next; returns whether it was.
    pub(super) fn take_next(&self, room: &mut Room, running: &mut Running) -> Option<Actor> {
        let queued = vec![JOB; running.queue.len()];
        let next = siltstone_manifest::ingest::to_adopt(&running.known, &queued, self.rules)?;
        if next.job != NEXT || !running.queue.is_empty() {
            return None;
        }
        room.tables.insert(NEWER);
        let seq_override = Some(running.last.plus(1));
        let newer = SstDescriptor { seq_override, ..table(NEWER, Some(NEXT)) };
        let digest = Bytes::from_static(b"next");
        let install = InstallIngest { after: 0, job: NEXT, digest, layers: vec![vec![newer]] };
        let edit = Edit::FlushL0(FlushL0 {
            ingests: vec![install],
            flushed_seq: running.last.plus(1),
            ..FlushL0::nothing(running.epoch, &running.known)
        });
        match room.commit(edit, self.rules) {
            CommitAction::Done(state) => {
                (running.known, running.last) = (state, running.last.plus(1));
                None
            }
            _ => Some(Actor::Gone),
        }
    }

    /// Whether a table of the job is staged of which no process will know before the deadline that
    /// it may be deleted.
    pub(super) fn is_nobodys(&self, room: &Room) -> bool {
        let newest = chain::newest(&room.manifests);
        let closes = |actor: &Actor| matches!(actor, Actor::Driver(Driving::Close(_)));
        let lands = |late: &Late| matches!(late, Late::Closing(_));
        let was_closed =
            !room.actors.iter().any(|actor| closes(actor)) && !room.network.iter().any(lands);
        let passed = standing(&newest, JOB) == JobStatus::Open
            && standing_as(&newest, JOB, self.app().as_ref()) == JobStatus::Forgotten;
        let named = newest.tables().any(|table| table.id == STAGED);
        passed && was_closed && room.closed.is_none() && room.tables.contains(&STAGED) && !named
    }
}
