//! Before-images of a feed: the value that a key had before each change (RFC 0041).
//!
//! The base is a reader at a checkpoint; the overlay has the changes after it. A feed that begins
//! after the checkpoint first reads the changes up to its position without returning them. The two
//! together must always be the state at the position of the feed, or no image is right.

use super::{Changes, check_logged, check_state};
use crate::api::reader::{Reader, ReaderOptions};
use crate::feed::before::ChangeOverlay;
use crate::feed::rows::{BeforeColumn, ChangeRows};
use crate::feed::token::ChangeToken;
use crate::follower::at_checkpoint::ReadAt;
use crate::manifests::objects::Objects;
use crate::options::{DiskCacheOptions, Options};
use crate::read::Keys;
use crate::read::value::LastingEntry;
use siltstone_base::{Error, ErrorKind, Kind, MergeOperator, Result, UnixMillis};
use siltstone_manifest::{CheckpointName, Manifest};
use std::collections::HashMap;
use std::sync::Arc;

/// Memory for blocks of the checkpoint, if the handle of the feed has more.
const CACHE_BYTES: usize = 64 << 20;
/// Changes whose before-images are read together: at first, and at most.
const FIRST_ROWS: usize = 64;
const MOST_ROWS: usize = 4096;
/// Bytes of before-images that are to be read together.
const BYTES_AT_ONCE: usize = 16 << 20;
/// Rows and bytes that one step without before-images reads.
const STEP: (usize, usize) = (1 << 16, 16 << 20);

/// The checkpoint from which a feed with before-images computes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageBase {
    /// The checkpoint at which the feed begins.
    Start,
    /// This checkpoint, at or before the start of the feed.
    Checkpoint(CheckpointName),
}

/// How a feed reads the checkpoint: the options and the operator of its handle.
#[derive(Clone, Default)]
pub(super) struct BaseOptions {
    pub(super) options: Options,
    pub(super) operator: Option<Arc<dyn MergeOperator>>,
}

/// The state at the position of a feed.
pub(super) struct BeforeImages {
    reader: Reader,
    overlay: ChangeOverlay,
    /// The position of the checkpoint.
    base: ChangeToken,
    /// The position before the last read.
    settled: ChangeToken,
    /// The position up to which changes are read without being returned.
    target: Option<ChangeToken>,
    /// Changes whose before-images are read together.
    rows: usize,
}

impl BeforeImages {
    /// The images of a feed that begins at `base`, the position of the checkpoint `name`.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub(super) async fn open(
        objects: &Objects,
        name: CheckpointName,
        base: ChangeToken,
        how: BaseOptions,
    ) -> Result<BeforeImages> {
        let options = Options {
            block_cache_bytes: how.options.block_cache_bytes.min(CACHE_BYTES),
            deadline: objects.limit,
            // The environment of a handle has the cache already.
            disk_cache: DiskCacheOptions::default(),
            ..how.options
        };
        let at = Some(ReadAt::Checkpoint(name));
        let how = ReaderOptions { options, at, merge_operator: how.operator };
        let reader = Reader::open(objects.env.clone(), how).await?;
        let overlay = ChangeOverlay::new(reader.operator());
        let (settled, target, rows) = (base, None, FIRST_ROWS);
        Ok(BeforeImages { reader, overlay, base, settled, target, rows })
    }

    /// Where the feed reads first if it is to begin at `start`.
    ///
    /// # Errors
    /// Invalid if the checkpoint is newer than `start`; Expired if a restore has undone it.
    pub(super) fn begin_at(&mut self, start: ChangeToken, state: &Manifest) -> Result<ChangeToken> {
        check_state(state, &self.base, None)?;
        check_logged(state, self.base.seq)?;
        if self.base.order() > start.order() {
            return Err(Error::invalid(
                "the checkpoint for before-images is newer than the start of the feed; pass a \
                 checkpoint at or before the start, or begin at the checkpoint",
            )
            .with("checkpoint at sequence number", self.base.seq)
            .with("start", start.seq));
        }
        self.target = (self.base.order() < start.order()).then_some(start);
        Ok(self.base)
    }

    pub(super) fn target(&self) -> Option<ChangeToken> {
        self.target
    }

    /// The caller has the changes of the last read: the position is `place` now.
    fn settle(&mut self, place: ChangeToken) {
        self.overlay.settle();
        self.settled = place;
    }

    /// The changes of the last read will be read again.
    pub(super) fn take_back(&mut self) {
        self.overlay.take_back();
    }

    /// Takes the state back to `token`, an earlier position, and returns where the feed reads next.
    pub(super) fn rewind(&mut self, token: ChangeToken) -> ChangeToken {
        self.overlay.take_back();
        if token == self.settled && self.target.is_none() {
            return token;
        }
        self.overlay.clear();
        (self.settled, self.target) = (self.base, Some(token));
        self.base
    }

    /// Adds the before-images of the changes from number `from` on.
    ///
    /// # Errors
    /// Expired if the checkpoint was deleted; as [`ChangeOverlay::push`]; errors of the store.
    async fn fill(&mut self, changed: &mut ChangeRows, from: usize) -> Result<()> {
        let mut images = changed.before.take().unwrap_or_default();
        let (began, added) = (images.values.bytes.len(), changed.len() - from);
        let filled = self.fill_column(changed, from, &mut images).await;
        let bytes = images.values.bytes.len() - began;
        changed.before = Some(images);
        self.rows = (BYTES_AT_ONCE * added / bytes.max(1)).clamp(1, MOST_ROWS);
        filled
    }

    async fn fill_column(
        &mut self,
        changed: &ChangeRows,
        from: usize,
        images: &mut BeforeColumn,
    ) -> Result<()> {
        let changes = || (from..changed.len()).filter_map(|row| changed.entry(row));
        let (mut keys, mut bases) = (Keys::default(), HashMap::new());
        for (change, at) in changes() {
            let is_new = change.kind != Kind::RangeDelete && !bases.contains_key(change.key);
            if is_new && self.overlay.needs_base(change.key, at) {
                keys.push(change.key);
                bases.insert(change.key, None);
            }
        }
        if let Some((_, at)) = changes().next().filter(|_| keys.len() > 1) {
            self.reader.warm_keys(keys, at).await?;
        }
        for (change, at) in changes() {
            let needs = change.kind != Kind::RangeDelete && self.overlay.needs_base(change.key, at);
            if !needs {
                self.overlay.push(&change, at, None, images)?;
                continue;
            }
            let known: &mut Option<BaseValue> = bases.entry(change.key).or_default();
            if known.as_ref().is_none_or(|known| known.has_ended(at)) {
                *known = Some(BaseValue(self.reader.get_at(change.key, at)?.wait().await?));
            }
            let base = known.as_ref().and_then(|known| known.0.as_ref());
            self.overlay.push(&change, at, base, images)?;
        }
        Ok(())
    }

    /// Adds changes that are not returned.
    fn pass(&mut self, changed: &ChangeRows) -> Result<()> {
        let changes = (0..changed.len()).filter_map(|row| changed.entry(row));
        for (change, at) in changes {
            self.overlay.add(&change, at)?;
        }
        Ok(())
    }
}

/// The value of a key at the checkpoint, as of some time.
struct BaseValue(Option<LastingEntry>);

impl BaseValue {
    /// Whether it may be another value at the time `at`. A key without a value stays without one.
    fn has_ended(&self, at: UnixMillis) -> bool {
        let until = self.0.as_ref().and_then(|entry| entry.lasts_until);
        until.is_some_and(|until| until <= at)
    }
}

impl Changes {
    /// Sets the position to the start of the feed, or to that of the checkpoint for before-images.
    ///
    /// # Errors
    /// As [`BeforeImages::begin_at`].
    pub(super) fn go_to_start(&mut self, start: ChangeToken) -> Result<()> {
        let next = match &mut self.before {
            Some(images) => images.begin_at(start, &self.state)?,
            None => start,
        };
        self.go_back(next);
        Ok(())
    }

    /// Reads changes up to the start of the feed into the state for before-images.
    ///
    /// # Errors
    /// As [`Changes::read`]; Expired if the changes after the checkpoint are no longer retained.
    pub(super) async fn catch_up(&mut self) -> Result<()> {
        self.repeat_unfinished();
        self.refresh().await?;
        self.unfinished = Some(self.place);
        let mut changed = ChangeRows::default();
        let read = self.read_on(STEP.0, STEP.1, &mut changed).await;
        let ended = self.has_ended();
        let Some(images) = &mut self.before else { return Ok(()) };
        let passed = read.map_err(not_retained).and_then(|()| images.pass(&changed));
        // After an error the next step begins where this one did.
        passed?;
        self.unfinished = None;
        images.settle(self.place);
        if let Some(target) = images.target.take_if(|_| ended) {
            images.settled = target;
            self.go_back(target);
        }
        Ok(())
    }

    /// Reads the next changes into `rows`, with their before-images if the feed has them.
    pub(super) async fn read_rows(
        &mut self,
        most_rows: usize,
        most_bytes: usize,
        rows: &mut ChangeRows,
    ) -> Result<()> {
        let Some(images) = &mut self.before else {
            return self.read_on(most_rows, most_bytes, rows).await;
        };
        images.settle(self.place);
        let clock = Arc::clone(&self.objects.env.clock);
        let enough = clock.monotonic() + self.objects.limit / 2;
        rows.before = Some(BeforeColumn::default());
        while rows.len() < most_rows && rows.bytes() < most_bytes {
            let (from, bytes) = (rows.len(), rows.bytes());
            if from > 0 && (self.has_ended() || clock.monotonic() >= enough) {
                break;
            }
            let at_once = self.before.as_ref().map_or(MOST_ROWS, |images| images.rows);
            let until = (most_rows.min(from + at_once), most_bytes.min(bytes + BYTES_AT_ONCE));
            self.read_on(until.0, until.1, rows).await?;
            if rows.len() == from {
                break;
            }
            if let Some(images) = &mut self.before {
                images.fill(rows, from).await?;
            }
        }
        Ok(())
    }
}

/// The error for changes after the checkpoint that are gone.
fn not_retained(error: Error) -> Error {
    if error.kind() != ErrorKind::Expired {
        return error;
    }
    Error::new(
        ErrorKind::Expired,
        "before-images need all changes after their checkpoint, and some before the start of the \
         feed are no longer retained; pass a newer checkpoint, or begin at one",
    )
    .caused_by(error)
}
