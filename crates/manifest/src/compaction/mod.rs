//! Compaction, as far as it is a matter of deciding (RFC 0018): what is merged into what, who
//! chooses, which choices are right, and what is left to do. Nothing here reads a table.
//!
//! | module | holds |
//! | --- | --- |
//! | [`plan`] | [`Plan`]: sources, destination, why; as text for logs and for plans made by hand |
//! | [`valid`] | which plans may run, beside which jobs |
//! | [`work`], [`split`] | what a plan comes to: drops, moves, key ranges to merge |
//! | [`filter_bits`] | how many filter bits a key gets, by the size of its run |
//! | [`scheduler`] | [`CompactionScheduler`], and triggers that several of them share |
//! | [`tiered`], [`lazy_leveled`], [`time_window`] | the schedulers |
//! | [`options`] | options by name, and the scheduler that they choose |
//! | [`manual`] | major compaction, compaction of a key range |
//! | [`record`] | the jobs under way, as an object: its changes and its bytes |

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
    JobFacts, JobRange,
};
pub use scheduler::{CompactionScheduler, SpaceAmplification, View};
pub use split::Anchor;
pub use tiered::Tiered;
pub use time_window::{TimeWindow, WindowBy};
pub use valid::{Input, PlanRefusal, Running, validate};
pub use work::{Facts, Group, KeyRange, TableSizing, Work, seen_output};
