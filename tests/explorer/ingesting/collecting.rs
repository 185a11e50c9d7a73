//! A compactor that merges installed tables, and a collector whose clock has passed the deadline.

use super::room::{Room, table};
use super::{Actor, Ingesting, MERGED, NOW, STAGED};
use siltstone_base::{JobId, ObjectName};
use siltstone_manifest::gc::{Evidence, ListedObject, PinnedNames, dead};
use siltstone_manifest::protocol::{Commit, CommitAction};
use siltstone_manifest::{Edit, FinishCompaction, IngestEdit, Rule};

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Collecting {
    Listed(Vec<ListedObject>),
    Horizon(Vec<ListedObject>, Commit),
    Delete(Vec<ObjectName>),
    Nothing,
}

impl Ingesting {
    /// Merges the installed table into another table, in another run.
    pub(super) fn compact(&self, room: &mut Room) -> Actor {
        let newest = room.newest();
        if !newest.tables().any(|table| table.id == STAGED) {
            return Actor::Compactor;
        }
        let edit = Edit::FinishCompaction(FinishCompaction {
            epoch: newest.compactor_epoch,
            job: JobId(1),
            planned_on: newest.id,
            remove: room.staged.iter().map(|id| (*id).into()).collect(),
            add: vec![table(MERGED, None)],
            destination: 0,
            retire: Vec::new(),
        });
        room.commit(edit, self.rules);
        Actor::Gone
    }

    /// A round: list, move the horizon, read the newest, delete.
    pub(super) fn collect(&self, room: &mut Room, rounds: u8, doing: Collecting) -> Actor {
        let doing = match doing {
            Collecting::Nothing if rounds == 0 => return Actor::Gone,
            Collecting::Nothing => {
                let listed = room.listed();
                let rounds = rounds - 1;
                // By a clock alone nothing is committed.
                let doing = if self.rules.has(Rule::HorizonFirst) && !self.passes {
                    let edit = Edit::Ingest(IngestEdit::Horizon { to: NOW });
                    Collecting::Horizon(listed, Commit::new(edit, room.newest(), self.rules))
                } else {
                    Collecting::Listed(listed)
                };
                return Actor::Collector { rounds, doing };
            }
            Collecting::Horizon(listed, mut commit) => match commit.action() {
                CommitAction::Request(request) => {
                    commit.on_answer(room.serve(request));
                    Collecting::Horizon(listed, commit)
                }
                _ => Collecting::Listed(listed),
            },
            Collecting::Listed(listed) => {
                let newest = room.newest();
                let mut pinned = PinnedNames::default();
                for one in &newest.checkpoints {
                    room.manifests.get(&one.manifest_id).iter().for_each(|one| pinned.note(one));
                }
                let (newest, apps) = (Some(newest), self.read_app(room));
                let found =
                    Evidence { listed, newest, pinned, apps, cutoff: NOW, ..Evidence::default() };
                // Taken from the end.
                Collecting::Delete(dead(&found, self.rules).deletes.into_iter().rev().collect())
            }
            Collecting::Delete(mut names) => match names.pop() {
                Some(name) => {
                    room.delete(name);
                    Collecting::Delete(names)
                }
                None => Collecting::Nothing,
            },
        };
        Actor::Collector { rounds, doing }
    }
}
