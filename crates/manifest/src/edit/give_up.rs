//! The edit that gives a table up which nobody can read any more (RFC 0034, rule Y4).
//!
//! What such a table deleted or overwrote would return with it gone. So where older tables may hold
//! keys of it, a *cover* takes its place: a table of its layer and its bounds that deletes them all
//! at one number, above those of every older table that it meets and below those of every newer
//! one.
//!
//! ```text
//! L0      [ k@50        ]              [ k@50        ]     stays
//! run 6   [ a … lost … z ]     ─►      [ deletes @49  ]     what it held, nobody knows
//! run 0   [ a@7   k@9  z@3]            [ hidden       ]     nor which of these it deleted
//! ```

use super::writer::{check_epoch, check_names, close};
use super::{Conflict, Refusal};
use crate::invariant::effective_seqs;
use crate::layer::Layer;
use crate::rules::{Rule, Rules};
use crate::span::Span;
use crate::state::{CheckpointOwner, Manifest};
use siltstone_base::{CheckpointId, Epoch, Seq, SstDescriptor, SstId, TablePart};

/// Takes every part of one table out of the state, under the epoch of who does; the writer before
/// was fenced, and whoever opens next finds nothing unsettled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GiveUpTable {
    /// Under which whoever was the writer has been fenced.
    pub epoch: Epoch,
    /// The table.
    pub table: SstId,
    /// For each of its parts what takes its place, if it needs anything; names are reserved.
    pub covers: Vec<(TablePart, Option<SstDescriptor>)>,
    /// Checkpoints that hold it too, and go with it. Those of clones and processes stay.
    pub checkpoints: Vec<CheckpointId>,
}

/// A part of a table that is to be given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUpPart {
    /// The part.
    pub table: SstDescriptor,
    /// Where it is.
    pub layer: Layer,
    /// The number at which its cover deletes; `None` where no older table meets it.
    pub cover: Option<Seq>,
    /// Entries of the older tables that meet it, which it may have hidden: so many at most.
    pub entries_below: u64,
}

impl GivenUpPart {
    /// Every part of `table` that `state` names, newest first.
    ///
    /// # Errors
    /// Conflict where the numbers of newer and older tables leave none for a cover.
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
        Some(below) if rules.has(Rule::CoverWhatIsGivenUp) => {
            Some(number(table, below, above, rules)?)
        }
        _ => None,
    };
    Ok(GivenUpPart { table: table.clone(), layer, cover, entries_below })
}

/// The number of a cover: the table's own largest where that lies between.
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
        close(next, self.epoch)
    }

    fn cover_of(&self, part: &TablePart) -> Option<&Option<SstDescriptor>> {
        self.covers.iter().find(|(named, _)| named == part).map(|(_, cover)| cover)
    }

    /// Layers moved since the covers were made: they fit no more.
    fn check_cover(&self, part: &GivenUpPart) -> Result<(), Refusal> {
        let moved = || Refusal::from(Conflict::TableGone { table: self.table });
        let cover = self.cover_of(&part.table.part()).ok_or_else(moved)?;
        match (cover, part.cover) {
            (None, None) => Ok(()),
            (Some(cover), Some(seq)) if effective_seqs(cover) == (seq, seq) => {
                if Span::of(&part.table).contains(&Span::of(cover)) {
                    Ok(())
                } else {
                    Err(Refusal::Invalid("a cover reaches beyond what it covers"))
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
