//! The k-way merge, what a reader sees of it, and what a flush or compaction keeps of it.
//!
//! Everything here is pure: entries come in through [`siltstone_base::Cursor`], the time is a
//! value, and a move that lacks a block says which and is repeated once it is there. RFC 0005 has
//! the rules and, for each, the run that breaks a database without it.
//!
//! | item | what it does |
//! | --- | --- |
//! | [`Merge`] | many cursors as one, in either direction (a loser tree) |
//! | [`RunCursor`] | the disjoint tables of a sorted run as one cursor |
//! | [`Covered`] | a cursor without what range deletes hide |
//! | [`Visible`] | user keys and values that a reader sees, of any cursor |
//! | [`Resolve`] | the same for one key, fed entry by entry |
//! | [`built_in`] | the merge operators that every process has |
//! | [`Retain`] | the entries that a flush or compaction must keep, of any cursor |
//!
//! ```text
//! scan:        sources -> Merge -> Visible -> (key, value)
//! get:         sources -> Resolve -> value
//! compaction:  inputs  -> Merge -> Retain -> entries of the new table
//! ```

#![forbid(unsafe_code)]

mod builtin;
mod covered;
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
pub use merge::{Direction, Merge};
pub use resolve::{LookupStep, Newest, Resolve};
pub use retain::{Retain, VisitControl};
pub use retention::Retention;
pub use run::{RunCursor, TableBounds};
pub use stretches::{Plain, Stretches};
pub use view::ReadView;
pub use visible::Visible;
