//! The edit that gives up a table that cannot be read any more (RFC 0034, rule Y4).
//!
//! Without the table, entries that it deleted or overwrote would become visible again. So if older
//! tables may hold keys of it, a *cover* replaces it: a table in its layer with its bounds that
//! deletes all of these keys at one sequence number, which is above the numbers of every older
//! table that overlaps it and below those of every newer one.
//!
//! ```text
//! L0      [ k@50        ]              [ k@50        ]     stays
//! run 6   [ a … lost … z ]     ─►      [ deletes @49  ]     its rows are unknown,
//! run 0   [ a@7   k@9  z@3]            [ hidden       ]     and which keys it deleted
//! ```

use super::writer::{check_epoch, check_names, close};
use super::{Conflict, Refusal};
use crate::invariant::effective_seqs;
use crate::layer::Layer;
use crate::rules::{Rule, Rules};
use crate::span::Span;
use crate::state::{CheckpointOwner, Manifest};
use siltstone_base::{CheckpointId, Epoch, Seq, SstDescriptor, SstId, TablePart, WalId};

/// Removes every part of one table from the state. The previous writer was fenced, and the next
/// opener finds the epoch closed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GiveUpTable {
    /// The epoch under which the previous writer was fenced.
    pub epoch: Epoch,
    /// The table.
    pub table: SstId,
    /// The replacement of each of its parts, if one is needed; the names are reserved.
    pub covers: Vec<(TablePart, Option<SstDescriptor>)>,
    /// Checkpoints that contain it too and are removed with it. Those of clones and processes stay.
    pub checkpoints: Vec<CheckpointId>,
}

/// A part of a table that is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUpPart {
    /// The part.
    pub table: SstDescriptor,
    /// The layer that contains it.
    pub layer: Layer,
    /// The sequence number at which its cover deletes; `None` if no older table overlaps it.
    pub cover: Option<Seq>,
    /// Number of entries of the older tables that overlap it, which it may have hidden: an upper
    /// bound.
    pub entries_below: u64,
}

impl GivenUpPart {
    /// All parts of `table` in `state`, newest first.
    ///
    /// # Errors
    /// Conflict if there is no sequence number between those of newer and older tables for a cover.
    pub fn all(state: &Manifest, table: SstId, rules: Rules) -> Result<Vec<GivenUpPart>, Refusal> {
        let named = state.layers().flat_map(|(layer, tables)| {
            tables.iter().filter(move |one| one.id == table).map(move |one| (layer, one))
        });
        named.map(|(layer, one)| part(state, layer, one, rules)).collect()
    }
}

fn part(
    state: &Manifest,
    layer: Layer,
    table: &SstDescriptor,
    rules: Rules,
) -> Result<GivenUpPart, Refusal> {
    let span = Span::of(table);
    let (mut below, mut above) = (None::<Seq>, state.flushed_seq.next());
    let mut entries_below = 0u64;
    for (other, tables) in state.layers() {
        for met in tables.iter().filter(|one| other != layer && Span::of(one).meets(&span)) {
            let (lowest, highest) = effective_seqs(met);
            if other > layer {
                above = above.min(lowest);
            } else {
                below = below.max(Some(highest));
                entries_below = entries_below.saturating_add(met.entries);
            }
        }
    }
    let cover = match below {
        _ if !rules.has(Rule::CoverWhatIsGivenUp) => None,
        Some(below) => Some(number(table, below, above, rules)?),
        // A job behind all data may bring older rows later.
        None if state.behind.is_some() => Some(effective_seqs(table).1.min(above.minus(1))),
        None => None,
    };
    Ok(GivenUpPart { table: table.clone(), layer, cover, entries_below })
}

/// The sequence number of a cover: the largest of the table itself, if that is in between.
fn number(table: &SstDescriptor, below: Seq, above: Seq, rules: Rules) -> Result<Seq, Refusal> {
    let own = effective_seqs(table).1;
    if !rules.has(Rule::CoverBetween) {
        return Ok(own);
    }
    if below.next() >= above {
        return Err(Conflict::NoRoomForCover { table: table.id }.into());
    }
    Ok(own.max(below.next()).min(above.minus(1)))
}

impl GiveUpTable {
    pub(super) fn apply(&self, next: &mut Manifest, rules: Rules) -> Result<(), Refusal> {
        check_epoch(next, self.epoch)?;
        let parts = GivenUpPart::all(next, self.table, rules)?;
        if parts.is_empty() || parts.len() != self.covers.len() {
            return Err(Conflict::TableGone { table: self.table }.into());
        }
        let comes = self.covers.iter().filter_map(|(_, cover)| cover.as_ref());
        check_names(next, comes.map(|cover| cover.id), rules)?;
        for part in &parts {
            self.check_cover(part)?;
        }
        for entry in &mut next.l0 {
            self.exchange(&mut entry.tables);
        }
        for run in &mut next.runs {
            self.exchange(&mut run.tables);
        }
        next.l0.retain(|entry| !entry.tables.is_empty());
        next.runs.retain(|run| !run.tables.is_empty());
        next.tables_since = next.id;
        let goes = |one: &crate::state::Checkpoint| {
            one.owner == CheckpointOwner::User && self.checkpoints.contains(&one.id)
        };
        next.checkpoints.retain(|one| !goes(one));
        // It wrote nothing.
        close(next, self.epoch, WalId::NONE)
    }

    fn cover_of(&self, part: &TablePart) -> Option<&Option<SstDescriptor>> {
        self.covers.iter().find(|(named, _)| named == part).map(|(_, cover)| cover)
    }

    /// If the layers have changed since the covers were made, the covers no longer fit.
    fn check_cover(&self, part: &GivenUpPart) -> Result<(), Refusal> {
        let moved = || Refusal::from(Conflict::TableGone { table: self.table });
        let cover = self.cover_of(&part.table.part()).ok_or_else(moved)?;
        match (cover, part.cover) {
            (None, None) => Ok(()),
            (Some(cover), Some(seq)) if effective_seqs(cover) == (seq, seq) => {
                if Span::of(&part.table).contains(&Span::of(cover)) {
                    Ok(())
                } else {
                    Err(Refusal::Invalid("a cover spans keys outside its table"))
                }
            }
            _ => Err(moved()),
        }
    }

    fn exchange(&self, tables: &mut Vec<SstDescriptor>) {
        if !tables.iter().any(|one| one.id == self.table) {
            return;
        }
        let each = std::mem::take(tables).into_iter();
        *tables = each
            .filter_map(|one| match one.id == self.table {
                true => self.cover_of(&one.part()).cloned().flatten(),
                false => Some(one),
            })
            .collect();
    }

    pub(super) fn in_effect(&self, state: &Manifest) -> bool {
        state.writer_epoch == self.epoch
            && state.closed_cleanly()
            && !state.tables().any(|one| one.id == self.table)
    }
}

#[cfg(test)]
mod tests;
