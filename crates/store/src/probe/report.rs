//! The report of a probe of a store. Pure: it makes no request.

use std::collections::BTreeMap;
use std::time::Duration;

/// A property of a store that a probe examines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreProperty {
    /// A get returns an object as soon as its create has succeeded.
    ReadAfterWrite,
    /// A listing shows an object as soon as its create has succeeded.
    ListAfterWrite,
    /// A listing is in the order of the names, and begins behind the name that was given.
    ListOrder,
    /// The second create of a name is refused.
    CreateTwice,
    /// Exactly one of two creates of one name at the same time succeeds.
    RacingCreates,
    /// A get of a range returns the bytes of that range.
    RangeRead,
    /// A get of a range beyond the end of an object is refused or short.
    RangePastEnd,
    /// An object that was deleted is gone, and its name can be created again.
    DeleteThenCreate,
    /// The store copies an object within itself.
    Copy,
    /// The store dates objects, and its clock agrees with that of this machine.
    Clock,
    /// Objects of the sizes of WAL objects and tables can be stored and read.
    LargeObjects,
}

impl StoreProperty {
    /// Every property, in the order in which a probe examines them.
    pub const ALL: [StoreProperty; 11] = [
        StoreProperty::ReadAfterWrite,
        StoreProperty::ListAfterWrite,
        StoreProperty::ListOrder,
        StoreProperty::CreateTwice,
        StoreProperty::RacingCreates,
        StoreProperty::RangeRead,
        StoreProperty::RangePastEnd,
        StoreProperty::DeleteThenCreate,
        StoreProperty::Copy,
        StoreProperty::Clock,
        StoreProperty::LargeObjects,
    ];

    /// The name of the property in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StoreProperty::ReadAfterWrite => "read_after_write",
            StoreProperty::ListAfterWrite => "list_after_write",
            StoreProperty::ListOrder => "list_order",
            StoreProperty::CreateTwice => "create_twice",
            StoreProperty::RacingCreates => "racing_creates",
            StoreProperty::RangeRead => "range_read",
            StoreProperty::RangePastEnd => "range_past_end",
            StoreProperty::DeleteThenCreate => "delete_then_create",
            StoreProperty::Copy => "copy",
            StoreProperty::Clock => "clock",
            StoreProperty::LargeObjects => "large_objects",
        }
    }

    /// Whether a database in a store without this property can lose or refuse data. Without the
    /// other properties it works, but costs more.
    #[must_use]
    pub fn is_needed(self) -> bool {
        match self {
            StoreProperty::ReadAfterWrite
            | StoreProperty::ListAfterWrite
            | StoreProperty::CreateTwice
            | StoreProperty::RacingCreates
            | StoreProperty::RangeRead
            | StoreProperty::RangePastEnd
            | StoreProperty::LargeObjects => true,
            StoreProperty::ListOrder
            | StoreProperty::DeleteThenCreate
            | StoreProperty::Copy
            | StoreProperty::Clock => false,
        }
    }

    /// The remedy for a store that does not have the property.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            StoreProperty::CreateTwice | StoreProperty::RacingCreates => {
                "use another bucket, or a store with conditional writes (If-None-Match), or give a \
                 transactional store as the store option `transactional_store`"
            }
            StoreProperty::ReadAfterWrite | StoreProperty::ListAfterWrite => {
                "use another bucket, or a store whose reads and listings show completed writes; a \
                 caching proxy in front of the store can be the cause"
            }
            StoreProperty::RangeRead | StoreProperty::RangePastEnd => {
                "use another bucket, or a store that honours the Range header"
            }
            StoreProperty::LargeObjects => {
                "use another bucket, raise the limits of the store or of a proxy in front of it, \
                 or probe with a smaller largest_object and set l0_sst_size_bytes and \
                 target_sst_bytes below the limit"
            }
            StoreProperty::ListOrder => "nothing to do: Siltstone sorts listings itself",
            StoreProperty::DeleteThenCreate => {
                "allow deletes and end retention rules, or storage grows and the path of a \
                 destroyed database cannot be used again"
            }
            StoreProperty::Copy => "nothing to do: an export sends the bytes through its process",
            StoreProperty::Clock => "synchronise the clock of this machine",
        }
    }
}

/// The result of the examination of one property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertyResult {
    /// The store has the property, as far as the probe can tell.
    Passed,
    /// The store does not have the property.
    Failed,
    /// The probe could not find out.
    Skipped,
}

impl PropertyResult {
    /// The result as a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PropertyResult::Passed => "passed",
            PropertyResult::Failed => "failed",
            PropertyResult::Skipped => "skipped",
        }
    }
}

/// One property, its result, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyFinding {
    /// The property.
    pub property: StoreProperty,
    /// The result.
    pub result: PropertyResult,
    /// The examination, the defect, or the reason why nothing was examined.
    pub reason: String,
}

/// How far the clock of the store is ahead of the clock of this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockOffset {
    /// Seconds; negative if the store is behind.
    pub seconds: f64,
    /// The true offset is at most this many seconds away: half the time of a create, and half the
    /// resolution of the dates of the store.
    pub precision: f64,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreReport {
    /// The store and the path in it.
    pub store: String,
    /// Every property once, in the order of [`StoreProperty::ALL`].
    pub properties: Vec<PropertyFinding>,
    /// Offset of the store's clock, if the store dates objects.
    pub clock: Option<ClockOffset>,
    /// Size in bytes of the largest object that was stored and read back; 0 if none was.
    pub largest_object: u64,
    /// Median latency of small requests, by operation.
    pub latency: BTreeMap<&'static str, Duration>,
    /// Requests, those of the clean-up included.
    pub requests: u64,
    /// Names of objects that the probe created and could not delete.
    pub left: Vec<String>,
}

impl StoreReport {
    /// Whether every property that Siltstone needs passed.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        let needed = self.properties.iter().filter(|one| one.property.is_needed());
        needed.into_iter().all(|one| one.result == PropertyResult::Passed)
    }
}

/// The median of the samples of each operation.
pub(super) fn medians(
    samples: BTreeMap<&'static str, Vec<Duration>>,
) -> BTreeMap<&'static str, Duration> {
    let median = |(name, mut samples): (&'static str, Vec<Duration>)| {
        samples.sort_unstable();
        samples.get(samples.len() / 2).map(|middle| (name, *middle))
    };
    samples.into_iter().filter_map(median).collect()
}

/// The offset of the store's clock: an object dated `modified` was created between `before` and
/// `after`, all in milliseconds. Many stores cut dates to whole seconds.
pub(super) fn clock_offset(before: u64, modified: u64, after: u64) -> ClockOffset {
    let resolution = if modified.is_multiple_of(1000) { 1000.0 } else { 1.0 };
    let (before, modified, after) = (before as f64, modified as f64, after as f64);
    let (least, most) = (modified - after, modified + resolution - before);
    ClockOffset { seconds: (least + most) / 2000.0, precision: (most - least).max(0.0) / 2000.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_a_sample_in_the_middle() {
        let millis = |all: &[u64]| all.iter().copied().map(Duration::from_millis).collect();
        let samples = BTreeMap::from([
            ("get", millis(&[9, 1, 5])),
            ("list", millis(&[7])),
            ("copy", Vec::new()),
        ]);
        let expected = [("get", Duration::from_millis(5)), ("list", Duration::from_millis(7))];
        assert_eq!(medians(samples), BTreeMap::from(expected));
    }

    #[test]
    fn an_offset_has_the_precision_of_dates_and_latency() {
        // A date with milliseconds: 60 s ahead, 20 ms of latency.
        let exact = clock_offset(100_000, 160_011, 100_020);
        assert!((exact.seconds - 60.0).abs() < 0.01, "{exact:?}");
        assert!(exact.precision < 0.011, "{exact:?}");
        // A date cut to seconds.
        let cut = clock_offset(100_900, 100_000, 100_950);
        assert!(cut.seconds.abs() <= cut.precision, "{cut:?}");
        assert!(cut.precision > 0.5 && cut.precision < 0.53, "{cut:?}");
        let behind = clock_offset(100_000, 40_500, 100_000);
        assert!((behind.seconds + 59.5).abs() < 0.01, "{behind:?}");
    }

    #[test]
    fn a_report_is_ok_if_all_that_is_needed_passed() {
        let with = |result, reason: fn(StoreProperty) -> bool| StoreReport {
            store: String::new(),
            properties: StoreProperty::ALL
                .map(|property| PropertyFinding {
                    property,
                    result: if reason(property) { result } else { PropertyResult::Passed },
                    reason: String::new(),
                })
                .to_vec(),
            clock: None,
            largest_object: 0,
            latency: BTreeMap::new(),
            requests: 0,
            left: Vec::new(),
        };
        assert!(with(PropertyResult::Failed, |property| !property.is_needed()).is_ok());
        assert!(!with(PropertyResult::Failed, |one| one == StoreProperty::CreateTwice).is_ok());
        assert!(!with(PropertyResult::Skipped, |one| one == StoreProperty::RangeRead).is_ok());
        let names: std::collections::BTreeSet<_> =
            StoreProperty::ALL.iter().map(|property| property.name()).collect();
        assert_eq!(names.len(), StoreProperty::ALL.len());
        assert!(StoreProperty::ALL.iter().all(|property| !property.remedy().is_empty()));
    }
}
