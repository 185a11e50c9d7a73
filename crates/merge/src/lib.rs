//! The k-way merge, the view of a reader on it, and the entries that a flush or compaction keeps.
//!
//! All code here is pure: entries come through [`siltstone_base::Cursor`], the time is an argument,
//! and a move that lacks a block returns its address and is repeated once the caller has fetched
//! it. RFC 0005 contains the rules and, for each, the run that breaks a database without it.
//!
//! | item | purpose |
//! | --- | --- |
//! | [`Merge`] | merges many cursors, in either direction (a loser tree) |
//! | [`RunCursor`] | a cursor over the disjoint tables of a sorted run |
//! | [`Covered`] | a cursor without the entries hidden by range deletes |
//! | [`Visible`] | the user keys and values that a reader sees |
//! | [`DeadSpan`] | keys without a value, which a reader found and later ones seek past |
//! | [`Resolve`] | the value of one key, from entries pushed by the caller |
//! | [`built_in`] | the built-in merge operators |
//! | [`Retain`] | the entries that a flush or compaction must keep |
//!
//! ```text
//! scan:        sources -> Merge -> Visible -> (key, value)
//! get:         sources -> Resolve -> value
//! compaction:  inputs  -> Merge -> Retain -> entries of the new table
//! ```

#![forbid(unsafe_code)]

mod builtin;
mod covered;
mod dead;
mod deletes;
mod effect;
mod fold;
mod group;
mod keep;
mod merge;
mod operands;
mod range;
mod resolve;
mod retain;
mod retention;
mod run;
mod stretches;
mod view;
mod visible;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use builtin::{built_in, built_in_names};
pub use covered::{Covered, VisibleDeleteSet, VisibleDeletes};
pub use dead::DeadSpan;
pub use merge::{Direction, Merge};
pub use resolve::{LookupStep, Newest, Resolve};
pub use retain::{Retain, VisitControl};
pub use retention::Retention;
pub use run::{RunCursor, RunTables, TableBounds};
pub use stretches::{Plain, Stretches};
pub use view::ReadView;
pub use visible::Visible;
