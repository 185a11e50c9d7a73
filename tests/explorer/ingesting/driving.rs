//! The processes that close and request the job, and the one that aborts it (rule N8).

use super::room::{Room, digest};
use super::{Actor, DATABASE, Ingesting, JOB};
use siltstone_base::{AttemptId, UnixMillis};
use siltstone_manifest::ingest::{JobStatus, pending, standing, standing_as};
use siltstone_manifest::protocol::{Commit, CommitAction};
use siltstone_manifest::{Edit, IngestEdit, RequestIngest};

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Driving {
    Close(AttemptId),
    Request(Commit),
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Aborting {
    Close,
    Look,
    Withdraw(Commit),
}

impl Ingesting {
    pub(super) fn drive(&self, room: &mut Room, driving: Driving) -> Actor {
        match driving {
            Driving::Close(attempt) => match room.closed.get_or_insert(Some(attempt)) {
                None => Actor::Gone,
                Some(attempt) => {
                    let request = RequestIngest {
                        job: JOB,
                        database: DATABASE,
                        timeline: None,
                        digest: digest(*attempt),
                        app: self.app(),
                        requested_at: UnixMillis(0),
                    };
                    let edit = Edit::Ingest(IngestEdit::Request(request));
                    Actor::Driver(Driving::Request(Commit::new(edit, room.newest(), self.rules)))
                }
            },
            Driving::Request(mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(room.serve(request));
                    Actor::Driver(Driving::Request(commit))
                }
                CommitAction::Done(_) | CommitAction::Failed(_) => Actor::Gone,
            },
        }
    }

    pub(super) fn abort(&self, room: &mut Room, aborting: Aborting) -> Actor {
        let says_aborted = |room: &mut Room| {
            let chain = room.manifests.values();
            let asked = chain.clone().any(|state| pending(state, JOB).is_some());
            if asked {
                room.breaks("N8: a job that was asked for is called aborted");
            }
        };
        let withdraws = |room: &Room| {
            let edit = Edit::Ingest(IngestEdit::Withdraw { job: JOB, app: self.app() });
            Actor::Abort(Aborting::Withdraw(Commit::new(edit, room.newest(), self.rules)))
        };
        match aborting {
            Aborting::Close => match room.closed.get_or_insert(None) {
                None if self.looks => Actor::Abort(Aborting::Look),
                None => {
                    says_aborted(room);
                    Actor::Gone
                }
                Some(_) => withdraws(room),
            },
            Aborting::Look => match standing_as(&room.newest(), JOB, self.app().as_ref()) {
                // A job that was closed as aborted cannot be requested; the commit has its tables
                // collected.
                JobStatus::Open => {
                    says_aborted(room);
                    withdraws(room)
                }
                _ => Actor::Gone,
            },
            Aborting::Withdraw(mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(room.serve(request));
                    Actor::Abort(Aborting::Withdraw(commit))
                }
                CommitAction::Done(state) => {
                    if standing(&state, JOB) == JobStatus::Withdrawn {
                        says_aborted(room);
                    }
                    Actor::Gone
                }
                CommitAction::Failed(_) => Actor::Gone,
            },
        }
    }
}
