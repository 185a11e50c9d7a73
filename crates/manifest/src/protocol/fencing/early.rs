//! Requests of an opening that are sent beside the current one, to save round trips.
//!
//! ```text
//! list after the claim's create   ─┬─ read the WAL id at which the walk begins
//! list the WAL after an absent id ─┴─ list the manifests, for the look before the fence
//! ```
//! Each keeps the order on which the rules depend. The claim has taken effect by its create, not by
//! the listing that confirms it, so the WAL is read after the claim (rule F2). The look before the
//! fence begins after the read that found no object; the listing of the WAL only shows holes.
//! An answer counts for the next action alone, and is dropped if that is another one.

use super::{OpenAction, OpenPhase, OpenWriter};
use crate::protocol::look::Look;
use crate::protocol::{LookAction, ManifestAnswer, ManifestRequest, WalSeen};
use crate::rules::Rule;
use siltstone_base::WalId;

/// The answer to [`OpenWriter::beside`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EarlyAnswer {
    /// To [`OpenAction::ReadWal`] of this id.
    Wal(WalId, WalSeen),
    /// To [`OpenAction::Request`] of this request.
    Manifests(ManifestRequest, ManifestAnswer),
}

impl OpenWriter {
    /// The action that may be performed beside the current one; its answer goes to
    /// [`OpenWriter::on_early`] before that of the current one.
    #[must_use]
    pub fn beside(&self) -> Option<OpenAction> {
        if self.early.is_some() || self.options.cut.is_some() {
            return None;
        }
        match &self.phase {
            OpenPhase::Claim(commit) => {
                let claim = commit.unconfirmed()?;
                Some(OpenAction::ReadWal(claim.replay_from))
            }
            OpenPhase::List(_) if self.rules.has(Rule::LookBeforeFence) => {
                let known = self.claimed.as_ref().map(|claimed| claimed.known.clone());
                match Look::new(known, self.rules).action() {
                    LookAction::Request(request) => Some(OpenAction::Request(request)),
                    LookAction::Done(_) => None,
                }
            }
            _ => None,
        }
    }

    /// The answer to [`OpenWriter::beside`]. It may be left out.
    pub fn on_early(&mut self, answer: EarlyAnswer) {
        if self.beside().is_some() {
            self.early = Some(Box::new(answer));
        }
    }

    /// Continues with the early answer if the next action asks for it.
    pub(super) fn take_early(&mut self) {
        let Some(early) = self.early.take() else { return };
        match (self.action(), *early) {
            (OpenAction::ReadWal(id), EarlyAnswer::Wal(read, seen)) if id == read => {
                self.on_wal(seen);
            }
            (OpenAction::Request(next), EarlyAnswer::Manifests(request, answer))
                if next == request =>
            {
                self.on_answer(answer);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
