//! Rows in memory in any order. They are split by ranges of keys, so that each range is sorted and
//! made into a table separately.

use super::making::{FillResult, Target};
use super::{Maker, RowBatch};
use crate::tables::writer::{Duplicates, equal_keys_of_load};
use futures::future::try_join_all;
use siltstone_base::entry::check_key;
use siltstone_base::prefix::{head, shared_prefix};
use siltstone_base::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// One key is sampled per this number of row bytes. Samples later determine the ends of ranges of
/// about one table.
const SAMPLE_BYTES: usize = 256 << 10;
/// Minimum number of samples per part. With it the size of a part is usually within an eighth of
/// its target.
const SAMPLES_A_PART: usize = 64;

/// Number of rows whose memory is requested together: several times as many as a core can wait for
/// in parallel, and few enough to stay in its cache until they are used.
const TOUCHED_ROWS: usize = 64;

/// Batches, each with the number of its first row.
type Batches = Arc<Vec<(Arc<dyn RowBatch>, u64)>>;

/// Position of a row, and eight bytes of its key after the prefix that all keys share. Most
/// comparisons need only these bytes.
#[derive(Clone, Copy)]
struct Place {
    head: u64,
    batch: u32,
    row: u32,
}

/// Rows in memory.
#[derive(Default)]
pub(super) struct Heap {
    batches: Vec<(Arc<dyn RowBatch>, u64)>,
    rows: usize,
    bytes: usize,
}

impl Heap {
    pub(super) fn push(&mut self, batch: Arc<dyn RowBatch>, first: u64) -> Result<()> {
        let many = u32::try_from(self.batches.len()).and(u32::try_from(batch.rows()));
        many.map_err(|_| Error::invalid("a batch has too many rows; use smaller batches"))?;
        self.rows += batch.rows();
        self.bytes += Heap::bytes_of(&*batch);
        if batch.rows() > 0 {
            self.batches.push((batch, first));
        }
        Ok(())
    }

    /// Bytes of memory that a batch takes in a heap.
    pub(super) fn bytes_of(batch: &dyn RowBatch) -> usize {
        // While the heap is cut, two lists hold the position of each row.
        batch.bytes() + 2 * batch.rows() * size_of::<Place>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The rows of both; those of `later` are newer.
    pub(super) fn followed_by(mut self, mut later: Heap) -> Heap {
        self.batches.append(&mut later.batches);
        Heap { rows: self.rows + later.rows, bytes: self.bytes + later.bytes, ..self }
    }

    /// Approximate bytes of memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A heap that is split.
pub(super) struct CutHeap {
    /// Nonempty parts in key order.
    pub(super) parts: Vec<HeapPart>,
    /// Some of the keys, in order.
    pub(super) samples: Vec<Vec<u8>>,
    /// A key, and the number of leading bytes that all keys share.
    pub(super) common: (Vec<u8>, usize),
}

/// Splits a nonempty heap into about `parts` parts.
pub(super) async fn cut(maker: &Maker, heap: Heap, parts: usize) -> Result<CutHeap> {
    let row_bytes = heap.bytes / heap.rows.max(1) + 1;
    let stride = (heap.rows / (parts * SAMPLES_A_PART)).clamp(1, SAMPLE_BYTES / row_bytes + 1);
    let batches: Batches = Arc::new(heap.batches);
    let stripes = stripes(&batches, heap.rows / maker.env.spawn.cores() + 1);
    let looks = stripes.iter().cloned().map(|stripe| {
        let batches = Arc::clone(&batches);
        maker.env.blocking("look through", move || look(&batches, stripe, stride))
    });
    let looks = try_join_all(looks).await?.into_iter().collect::<Result<Vec<_>>>()?;
    let common = looks.iter().map(|look| look.common.clone()).reduce(both).unwrap_or_default();
    let mut samples: Vec<Vec<u8>> = looks.into_iter().flat_map(|look| look.samples).collect();
    samples.sort_unstable();
    let ends: Arc<Vec<(u64, Vec<u8>)>> = Arc::new(
        (1..parts)
            .filter_map(|part| samples.get(part * samples.len() / parts))
            .map(|key| (head(key.get(common.1..).unwrap_or_default()), key.clone()))
            .collect(),
    );
    let dealt = stripes.into_iter().map(|stripe| {
        let (batches, ends) = (Arc::clone(&batches), Arc::clone(&ends));
        maker.env.blocking("cut", move || deal(&batches, stripe, &ends, common.1))
    });
    let mut places: Vec<Vec<Vec<Place>>> = (0..=ends.len()).map(|_| Vec::new()).collect();
    for stripe in try_join_all(dealt).await? {
        for (part, of_stripe) in places.iter_mut().zip(stripe) {
            if !of_stripe.is_empty() {
                part.push(of_stripe);
            }
        }
    }
    let parts = places.into_iter().filter(|places| !places.is_empty());
    let part = |places| HeapPart { batches: Arc::clone(&batches), places, common: common.1 };
    Ok(CutHeap { parts: parts.map(part).collect(), samples, common })
}

/// Combines two representative keys and their shared lengths into that of both.
pub(super) fn both(a: (Vec<u8>, usize), b: (Vec<u8>, usize)) -> (Vec<u8>, usize) {
    let shared = shared_prefix(&a.0, &b.0).min(a.1).min(b.1);
    (a.0, shared)
}

/// Ranges of batches with about `rows` rows each.
fn stripes(batches: &Batches, rows: usize) -> Vec<Range<usize>> {
    let (mut stripes, mut start, mut held) = (Vec::new(), 0, 0);
    for (at, (batch, _)) in batches.iter().enumerate() {
        held += batch.rows();
        if held >= rows {
            stripes.push(start..at + 1);
            (start, held) = (at + 1, 0);
        }
    }
    if start < batches.len() {
        stripes.push(start..batches.len());
    }
    stripes
}

/// The result of the first pass over a stripe.
struct Look {
    common: (Vec<u8>, usize),
    samples: Vec<Vec<u8>>,
}

/// # Errors
/// Invalid for a key that exceeds a limit, with its row.
fn look(batches: &Batches, stripe: Range<usize>, stride: usize) -> Result<Look> {
    let (mut first, mut shared): (&[u8], usize) = (&[], 0);
    let (mut samples, mut left) = (Vec::new(), 0);
    for (batch, number) in batches.get(stripe).unwrap_or_default() {
        for row in 0..batch.rows() {
            let key = batch.key(row);
            check_key(key).map_err(|error| error.with("row", number + row as u64))?;
            if first.is_empty() {
                (first, shared) = (key, key.len());
            } else if key.get(..shared) != first.get(..shared) {
                shared = shared_prefix(first, key).min(shared);
            }
            if left == 0 {
                samples.push(key.to_vec());
                left = stride;
            }
            left -= 1;
        }
    }
    Ok(Look { common: (first.to_vec(), shared), samples })
}

/// The rows of a stripe by their part: the first one whose end is above the key.
fn deal(
    batches: &Batches,
    stripe: Range<usize>,
    ends: &[(u64, Vec<u8>)],
    common: usize,
) -> Vec<Vec<Place>> {
    let of_stripe = batches.get(stripe.clone()).unwrap_or_default();
    let rows: usize = of_stripe.iter().map(|(batch, _)| batch.rows()).sum();
    // An eighth more than an even share, so that the list rarely grows.
    let share = rows / (ends.len() + 1) * 9 / 8;
    let mut parts: Vec<Vec<Place>> = (0..=ends.len()).map(|_| Vec::with_capacity(share)).collect();
    for (batch, number) in of_stripe.iter().zip(stripe).map(|((batch, _), at)| (batch, at as u32)) {
        for row in 0..batch.rows() {
            let key = batch.key(row);
            let head = head(key.get(common..).unwrap_or_default());
            let part = ends.partition_point(|(end_head, end)| {
                *end_head < head || (*end_head == head && end.as_slice() <= key)
            });
            if let Some(part) = parts.get_mut(part) {
                part.push(Place { head, batch: number, row: row as u32 });
            }
        }
    }
    parts
}

/// A range of keys of a heap.
pub(super) struct HeapPart {
    batches: Batches,
    places: Vec<Vec<Place>>,
    common: usize,
}

impl HeapPart {
    /// Sorts the rows by ascending key; of equal keys the row that came last is first.
    pub(super) fn sorted(self, duplicates: Duplicates) -> SortedPart {
        let HeapPart { batches, places, common } = self;
        let mut places = match <[Vec<Place>; 1]>::try_from(places) {
            Ok([places]) => places,
            Err(several) => several.concat(),
        };
        let key = |place: &Place| {
            let batch = batches.get(place.batch as usize);
            batch.map_or(&[][..], |(batch, _)| batch.key(place.row as usize))
        };
        let tail = |place: &Place| key(place).get(common..).unwrap_or_default();
        // First sort by the heads alone, without key accesses and branches.
        places.sort_unstable_by_key(|place| place.head);
        for equal in places.chunk_by_mut(|a, b| a.head == b.head) {
            if equal.len() > 1 {
                equal.sort_unstable_by(|a, b| {
                    let later = || (b.batch, b.row).cmp(&(a.batch, a.row));
                    tail(a).cmp(tail(b)).then_with(later)
                });
            }
        }
        SortedPart { batches, places, next: 0, touched: 0, duplicates }
    }
}

/// A range of keys of a heap, in order.
pub(super) struct SortedPart {
    batches: Batches,
    places: Vec<Place>,
    next: usize,
    /// Rows before this index were touched.
    touched: usize,
    duplicates: Duplicates,
}

/// A row and its number, counted from 0.
pub(super) type NumberedRow<'a> = (&'a [u8], &'a [u8], u64);

fn row_at<'a>(batches: &'a Batches, place: &Place) -> Option<NumberedRow<'a>> {
    let (batch, first) = batches.get(place.batch as usize)?;
    let (key, value) = batch.row(place.row as usize);
    Some((key, value, first + u64::from(place.row)))
}

impl SortedPart {
    /// Reads a byte of each of the next rows. The rows lie anywhere in memory, and parallel
    /// accesses cost about as much as one. Returns the index after the last touched row.
    pub(super) fn touch(&self, from: usize) -> usize {
        let end = self.places.len().min(from + TOUCHED_ROWS);
        let places = self.places.get(from..end).unwrap_or_default();
        let mut rows: [(&[u8], &[u8]); TOUCHED_ROWS] = [(&[], &[]); TOUCHED_ROWS];
        for (row, place) in rows.iter_mut().zip(places) {
            if let Some((key, value, _)) = row_at(&self.batches, place) {
                *row = (key, value);
            }
        }
        let byte = |byte: Option<&u8>| byte.copied().unwrap_or_default();
        let seen = rows.iter().fold(0u8, |seen, (key, value)| {
            seen ^ byte(key.first()) ^ byte(value.first()) ^ byte(value.last())
        });
        std::hint::black_box(seen);
        end
    }

    /// Number of rows, including those that do not count.
    pub(super) fn rows(&self) -> usize {
        self.places.len()
    }

    /// The row at an index.
    #[inline]
    pub(super) fn row(&self, at: usize) -> Option<NumberedRow<'_>> {
        row_at(&self.batches, self.places.get(at)?)
    }

    /// Index of the first row with a key at or above `key`.
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        self.places.partition_point(|place| {
            row_at(&self.batches, place).is_some_and(|(of_row, ..)| of_row < key)
        })
    }

    /// Advances to the next row that counts and returns it.
    ///
    /// # Errors
    /// Invalid for equal keys that are refused.
    pub(super) fn next(&mut self) -> Result<Option<NumberedRow<'_>>> {
        if self.next >= self.touched {
            self.touched = self.touch(self.next);
        }
        let SortedPart { batches, places, next, duplicates, .. } = self;
        let Some(place) = places.get(*next) else { return Ok(None) };
        let row = row_at(batches, place);
        *next += 1;
        while let Some(other) = places.get(*next)
            && other.head == place.head
            && let (Some((key, _, number)), Some((same, _, before))) = (row, row_at(batches, other))
            && key == same
        {
            if *duplicates == Duplicates::Refuse {
                return Err(equal_keys_of_load(key, before, number));
            }
            *next += 1;
        }
        Ok(row)
    }

    /// Adds rows until there is a reason to return.
    pub(super) fn fill(&mut self, target: &mut Target, table_bytes: u64) -> Result<FillResult> {
        // A part is about one table; a somewhat larger part stays one table.
        while self.next < self.places.len() {
            if target.row_bytes() >= table_bytes.saturating_mul(2) {
                return Ok(FillResult::Full);
            }
            let Some((key, value, _)) = self.next()? else { return Ok(FillResult::End) };
            if target.add(key, value)? {
                return Ok(FillResult::Chunk);
            }
        }
        Ok(FillResult::End)
    }
}
