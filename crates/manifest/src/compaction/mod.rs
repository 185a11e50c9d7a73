//! The decisions of compaction (RFC 0018): which tables to merge, which scheduler plans it, which
//! plans are valid, and which steps a plan needs. This module reads no table.
//!
//! | module | holds |
//! | --- | --- |
//! | [`plan`] | [`Plan`]: sources, destination and reason, with a text form for logs and manual
//! plans |
//! | [`valid`] | which plans may run beside the running jobs |
//! | [`work`], [`split`] | the steps of a plan: tables to drop, tables to move, key ranges to merge
//! |
//! | [`filter_bits`] | filter bits per key, by the size of the run |
//! | [`scheduler`] | [`CompactionScheduler`], and triggers shared by several schedulers |
//! | [`tiered`], [`lazy_leveled`], [`time_window`] | the schedulers |
//! | [`options`] | options by name, and the scheduler that they select |
//! | [`manual`] | major compaction, compaction of a key range |
//! | [`record`] | the record of running jobs: its changes and its encoding |

pub mod filter_bits;
pub mod lazy_leveled;
pub mod manual;
pub mod options;
pub mod plan;
pub mod record;
pub mod scheduler;
pub mod split;
pub mod tiered;
pub mod time_window;
pub mod valid;
pub mod work;

pub use crate::layer::Layer;
pub use filter_bits::{filter_bits, filter_bits_of_flush};
pub use lazy_leveled::LazyLeveled;
pub use options::{CompactionOptions, SchedulerName, Windows};
pub use plan::{Pick, Plan, PlanReason, Source};
pub use record::{
    Append, AppendAction, Change, ChangeRefusal, Claim, ClaimWatch, Compactions, FinishedUnit, Job,
    JobParameters, JobRange,
};
pub use scheduler::{CompactionScheduler, SpaceAmplification, View};
pub use split::Anchor;
pub use tiered::Tiered;
pub use time_window::{TimeWindow, WindowBy};
pub use valid::{Input, PlanRefusal, Running, validate};
pub use work::{Facts, Group, KeyRange, TableSizing, Work, seen_output};
