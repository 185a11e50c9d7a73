//! The examinations, one for each property. An examination must never rely on a property that it
//! does not examine, other than reading an object back.

use super::ProbeOptions;
use super::race::{RaceOutcome, RaceSlot, judge};
use super::report::{ClockOffset, PropertyFinding, PropertyResult, StoreProperty, clock_offset};
use super::scratch::{ScratchObjects, is_short};
use crate::PutAnswer;
use crate::env::Env;
use crate::progress::Progress;
use bytes::Bytes;
use siltstone_base::{ObjectName, Result};

/// Objects of the examinations of reads and listings.
const SAMPLES: usize = 8;
/// Second creates of names that exist.
const SECOND_CREATES: usize = 4;
/// Objects that are deleted and created again.
const DELETES: usize = 4;
/// Bytes of a small object: an envelope and a few.
const SMALL_BYTES: usize = 100;
/// Bytes of the object that is read by ranges.
const RANGED_BYTES: usize = 1000;
/// Bytes of every other race: a server that checks the name before it has received the bytes is
/// found by bytes that take a while.
const RACING_BYTES: usize = 48 << 10;
/// Offset of the clocks that is reported as a failure.
const MOST_CLOCK_SECONDS: f64 = 60.0;
/// Sizes of conditional creates: the largest is that of the largest WAL object that the default
/// options make.
const CREATED_BYTES: [u64; 3] = [64 << 10, 1 << 20, 16 << 20];
/// Bytes at both ends of a large object that are compared.
const COMPARED_BYTES: u64 = 64 << 10;

/// After this many properties in a row that the store did not answer for, the others are skipped:
/// each takes the whole deadline.
const UNANSWERED_PROPERTIES: u32 = 2;

/// The findings of the examinations.
pub(super) struct StoreFindings {
    pub(super) properties: Vec<PropertyFinding>,
    pub(super) clock: Option<ClockOffset>,
    pub(super) largest_object: u64,
}

/// The result of an examination, and its reason.
type Examined = (PropertyResult, String);

fn passed(reason: impl Into<String>) -> Examined {
    (PropertyResult::Passed, reason.into())
}

fn failed(reason: impl Into<String>) -> Examined {
    (PropertyResult::Failed, reason.into())
}

fn skipped(reason: impl Into<String>) -> Examined {
    (PropertyResult::Skipped, reason.into())
}

/// The examinations of one store.
pub(super) struct StoreChecks<'a> {
    env: &'a Env,
    options: ProbeOptions,
    progress: &'a Progress,
    scratch: ScratchObjects,
    findings: StoreFindings,
    /// Small objects that exist, with their bytes.
    objects: Vec<(ObjectName, Bytes)>,
}

impl<'a> StoreChecks<'a> {
    pub(super) fn new(env: &'a Env, options: ProbeOptions, progress: &'a Progress) -> Self {
        let steps = StoreProperty::ALL.len() as u64 - 1 + u64::from(options.rounds);
        progress.expect(steps);
        let properties = Vec::with_capacity(StoreProperty::ALL.len());
        StoreChecks {
            env,
            options,
            progress,
            scratch: ScratchObjects::new(env, options.deadline),
            findings: StoreFindings { properties, clock: None, largest_object: 0 },
            objects: Vec::new(),
        }
    }

    /// Lists and creates once: without these there is nothing to examine.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn reach(&mut self) -> Result<()> {
        self.scratch.list(None).await?;
        let object = self.scratch.new_object(SMALL_BYTES).await?;
        self.objects.push(object);
        Ok(())
    }

    /// Examines every property.
    pub(super) async fn run(&mut self) {
        let mut unanswered = 0;
        for property in StoreProperty::ALL {
            let examined = if unanswered == UNANSWERED_PROPERTIES {
                Ok(skipped("not examined, because the store has stopped answering"))
            } else {
                let examined = self.examine(property).await;
                let fails = examined.as_ref().is_err_and(|error| error.kind().is_transient());
                unanswered = if fails { unanswered + 1 } else { 0 };
                examined
            };
            let (result, reason) = examined.unwrap_or_else(|error| {
                // A store that does not answer, or a missing right, says nothing about the
                // property.
                let unknown = error.kind().may_pass();
                let result = if unknown { PropertyResult::Skipped } else { PropertyResult::Failed };
                (result, error.to_string())
            });
            self.findings.properties.push(PropertyFinding { property, result, reason });
            if property != StoreProperty::RacingCreates {
                self.progress.add(1);
            }
        }
    }

    /// The findings, and the objects to delete.
    pub(super) fn end(self) -> (StoreFindings, ScratchObjects) {
        (self.findings, self.scratch)
    }

    async fn examine(&mut self, property: StoreProperty) -> Result<Examined> {
        match property {
            StoreProperty::ReadAfterWrite => self.read_after_write().await,
            StoreProperty::ListAfterWrite => self.list_after_write().await,
            StoreProperty::ListOrder => self.list_order().await,
            StoreProperty::CreateTwice => self.create_twice().await,
            StoreProperty::RacingCreates => self.racing_creates().await,
            StoreProperty::RangeRead => self.range_read().await,
            StoreProperty::RangePastEnd => self.range_past_end().await,
            StoreProperty::DeleteThenCreate => self.delete_then_create().await,
            StoreProperty::Copy => self.copy().await,
            StoreProperty::Clock => self.clock().await,
            StoreProperty::LargeObjects => self.large_objects().await,
        }
    }

    /// Each object is asked for before it exists, so that a cache of absent names is found.
    async fn read_after_write(&mut self) -> Result<Examined> {
        for _ in 0..SAMPLES {
            let (name, body) = (self.scratch.fresh_name(), self.scratch.body(SMALL_BYTES));
            if self.scratch.get(name, None).await?.is_some() {
                return Ok(failed("a get of a name without an object returned an object"));
            }
            self.scratch.create(name, &body).await?;
            match self.scratch.get(name, None).await? {
                None => return Ok(failed("a get after a create did not find the object")),
                Some(found) if found != body => {
                    return Ok(failed("a get after a create returned other bytes"));
                }
                Some(_) => self.objects.push((name, body)),
            }
        }
        Ok(passed(format!("{SAMPLES} of {SAMPLES} objects were read right after their create")))
    }

    /// Each listing follows one that does not have the object.
    async fn list_after_write(&mut self) -> Result<Examined> {
        for _ in 0..SAMPLES {
            self.scratch.list(None).await?;
            let (name, body) = self.scratch.new_object(SMALL_BYTES).await?;
            match self.scratch.listed(name).await? {
                None => return Ok(failed("a listing after a create did not have the object")),
                Some(listed) if listed.bytes != body.len() as u64 => {
                    let (found, stored) = (listed.bytes, body.len());
                    let text = format!("a listing has {found} bytes for an object of {stored}");
                    return Ok(failed(text));
                }
                Some(_) => self.objects.push((name, body)),
            }
        }
        Ok(passed(format!("{SAMPLES} of {SAMPLES} objects were listed right after their create")))
    }

    async fn list_order(&mut self) -> Result<Examined> {
        let all: Vec<_> = self.scratch.list(None).await?.iter().map(|one| one.name).collect();
        if !all.is_sorted_by(|left, right| left < right) {
            return Ok(failed("a listing is not in the order of the names"));
        }
        let Some(middle) = all.get(all.len() / 2).copied() else {
            return Ok(skipped("no object was listed"));
        };
        let rest = self.scratch.list(Some(middle)).await?;
        let expected = all.iter().filter(|name| **name > middle);
        if !rest.iter().map(|one| &one.name).eq(expected) {
            return Ok(failed("a listing behind a name has other objects than those behind it"));
        }
        if self.env.store.observed().lists_in_order == Some(false) {
            return Ok(failed("the store does not list objects in the order of their names"));
        }
        Ok(passed(format!("{} objects were listed in the order of their names", all.len())))
    }

    async fn create_twice(&mut self) -> Result<Examined> {
        let objects: Vec<_> = self.objects.iter().take(SECOND_CREATES).cloned().collect();
        let mut refused = 0;
        for (name, first) in &objects {
            let second = self.scratch.body(SMALL_BYTES);
            let answer = self.scratch.create_again(*name, &second).await;
            let slot = self.scratch.slot(*name, &[first.clone(), second]).await?;
            match (answer, slot) {
                (PutAnswer::Created, RaceSlot::Of(0)) => {
                    return Ok(failed("a second create of a name succeeded, and stored nothing"));
                }
                (PutAnswer::Created, _) | (_, RaceSlot::Of(1)) => {
                    return Ok(failed("a second create of a name overwrote the object"));
                }
                (_, RaceSlot::Empty | RaceSlot::Foreign) => {
                    return Ok(failed("a second create of a name damaged the object"));
                }
                (PutAnswer::Ambiguous(_), _) => {}
                _ => refused += 1,
            }
        }
        if refused == 0 {
            return Ok(skipped("the store answered no second create"));
        }
        Ok(passed(format!("{refused} of {} second creates were refused", objects.len())))
    }

    async fn racing_creates(&mut self) -> Result<Examined> {
        let rounds = self.options.rounds;
        let (mut decided, mut empty) = (0, 0);
        for round in 0..rounds {
            let bytes = if round.is_multiple_of(2) { SMALL_BYTES } else { RACING_BYTES };
            let name = self.scratch.fresh_name();
            let bodies = [self.scratch.body(bytes), self.scratch.body(bytes)];
            let answers = self.scratch.race(name, bodies.clone()).await;
            if let Some(PutAnswer::Refused(error)) = answers.iter().find(|one| is_refused(one)) {
                return Err(error.clone());
            }
            let slot = self.scratch.slot(name, &bodies).await?;
            match judge(&answers, slot) {
                RaceOutcome::OneWinner => decided += 1,
                RaceOutcome::NoWinner => empty += 1,
                RaceOutcome::Broken(how) => {
                    return Ok(failed(format!("in round {} of {rounds} {how}", round + 1)));
                }
            }
            self.progress.add(1);
        }
        if decided == 0 {
            return Ok(skipped(format!("no create succeeded in {rounds} rounds")));
        }
        let rest = if empty == 0 { String::new() } else { format!("; none in {empty} rounds") };
        Ok(passed(format!("one of two creates succeeded in {decided} of {rounds} rounds{rest}")))
    }

    async fn range_read(&mut self) -> Result<Examined> {
        let (name, body) = self.scratch.new_object(RANGED_BYTES).await?;
        let end = body.len() as u64;
        for range in [0..1, 100..200, 333..end, 0..end] {
            let found = self.scratch.get(name, Some(range.clone())).await?;
            let wanted = body.get(range.start as usize..range.end as usize).unwrap_or_default();
            if found.as_deref() != Some(wanted) {
                let (start, end) = (range.start, range.end);
                return Ok(failed(format!("a get of bytes {start} to {end} returned others")));
            }
        }
        Ok(passed("4 of 4 ranges were read"))
    }

    /// A store that answers with fewer bytes is fine, because the engine compares the length; one
    /// that answers as if the object were longer is not.
    async fn range_past_end(&mut self) -> Result<Examined> {
        let (name, body) = self.scratch.new_object(RANGED_BYTES).await?;
        let end = body.len() as u64;
        for range in [end - 100..end + 100, end..end + 1, end + 100..end + 200] {
            match self.scratch.get(name, Some(range.clone())).await {
                Err(error) if is_short(&error) => {}
                Err(error) => return Err(error),
                Ok(found) => {
                    let found = found.map_or(0, |found| found.len());
                    let (start, stop) = (range.start, range.end);
                    return Ok(failed(format!(
                        "a get of bytes {start} to {stop} of {end} returned {found} bytes"
                    )));
                }
            }
        }
        Ok(passed("3 of 3 ranges beyond the end were refused"))
    }

    async fn delete_then_create(&mut self) -> Result<Examined> {
        for _ in 0..DELETES {
            let (name, first) = self.scratch.new_object(SMALL_BYTES).await?;
            if let Err(error) = self.scratch.delete(name).await {
                return Ok(skipped(format!("the store refused a delete: {error}")));
            }
            if self.scratch.get(name, None).await?.is_some() {
                return Ok(failed("a get after a delete found the object"));
            }
            if self.scratch.listed(name).await?.is_some() {
                return Ok(failed("a listing after a delete has the object"));
            }
            let second = self.scratch.body(SMALL_BYTES);
            self.scratch.create(name, &second).await?;
            if self.scratch.slot(name, &[first, second]).await? != RaceSlot::Of(1) {
                return Ok(failed("the object has other bytes than those of the second create"));
            }
        }
        Ok(passed(format!("{DELETES} of {DELETES} deleted names were created again")))
    }

    async fn copy(&mut self) -> Result<Examined> {
        let (from, body) = self.scratch.new_object(RANGED_BYTES).await?;
        let to = self.scratch.fresh_name();
        if !self.scratch.copy(from, to).await? {
            return Ok(skipped("Siltstone copies through its process in this kind of store"));
        }
        match self.scratch.slot(to, &[body]).await? {
            RaceSlot::Of(_) => Ok(passed("an object was copied")),
            RaceSlot::Empty => Ok(failed("a copy succeeded, and the object does not exist")),
            RaceSlot::Foreign => Ok(failed("a copy has other bytes")),
        }
    }

    async fn clock(&mut self) -> Result<Examined> {
        let before = self.env.clock.now();
        let (name, _) = self.scratch.new_object(SMALL_BYTES).await?;
        let after = self.env.clock.now();
        let Some(listed) = self.scratch.listed(name).await? else {
            return Ok(skipped("the object was not listed"));
        };
        if listed.modified.0 == 0 {
            return Ok(failed("the store does not date its objects"));
        }
        let offset = clock_offset(before.0, listed.modified.0, after.0);
        self.findings.clock = Some(offset);
        let (seconds, precision) = (offset.seconds.abs(), offset.precision);
        let side = if offset.seconds < 0.0 { "behind" } else { "ahead" };
        let text = format!("the store's clock is {seconds:.3} s {side}, +- {precision:.3} s");
        let agrees = seconds - precision <= MOST_CLOCK_SECONDS;
        Ok(if agrees { passed(text) } else { failed(text) })
    }

    /// Conditional creates as of WAL objects, and an upload as of a table.
    async fn large_objects(&mut self) -> Result<Examined> {
        let largest = self.options.largest_object;
        for bytes in CREATED_BYTES.into_iter().filter(|bytes| *bytes <= largest) {
            if let Some(examined) = self.large_object(bytes, true).await {
                return Ok(examined);
            }
        }
        if let Some(examined) = self.large_object(largest, false).await {
            return Ok(examined);
        }
        Ok(passed(format!("an object of {largest} bytes was stored and read back")))
    }

    /// Stores, reads and deletes an object; what is wrong, if anything is.
    async fn large_object(&mut self, bytes: u64, by_create: bool) -> Option<Examined> {
        let (name, body) = (self.scratch.fresh_name(), self.scratch.body(bytes as usize));
        let stored = match by_create {
            true => self.scratch.create(name, &body).await,
            false => self.scratch.upload(name, &body).await,
        };
        let way = if by_create { "created" } else { "uploaded" };
        let read = match stored {
            Ok(()) => self.is_read_back(name, &body).await,
            Err(error) => Err(error),
        };
        // The clean-up deletes the object if this fails.
        drop(self.scratch.delete(name).await);
        match read {
            Ok(true) => {
                self.findings.largest_object = self.findings.largest_object.max(body.len() as u64);
                None
            }
            Ok(false) => {
                Some(failed(format!("an object of {bytes} bytes was {way} and came back changed")))
            }
            Err(error) => {
                let text =
                    format!("an object of {bytes} bytes could not be {way} and read: {error}");
                Some(if error.kind().may_pass() { skipped(text) } else { failed(text) })
            }
        }
    }

    /// Compares the length and both ends of an object.
    async fn is_read_back(&mut self, name: ObjectName, body: &Bytes) -> Result<bool> {
        let end = body.len() as u64;
        let listed = self.scratch.listed(name).await?;
        if listed.is_some_and(|listed| listed.bytes != end) {
            return Ok(false);
        }
        for range in [0..end.min(COMPARED_BYTES), end.saturating_sub(COMPARED_BYTES)..end] {
            let wanted = body.get(range.start as usize..range.end as usize).unwrap_or_default();
            if self.scratch.get(name, Some(range)).await?.as_deref() != Some(wanted) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn is_refused(answer: &PutAnswer) -> bool {
    matches!(answer, PutAnswer::Refused(_))
}
