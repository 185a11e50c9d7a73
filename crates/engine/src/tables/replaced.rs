//! The range that an ingest job replaces (RFC 0035, rule P5). A table in the job's folder, below
//! all others of the job, deletes the range. The delete thus shares the sequence number, the log
//! record and the install of the rows, and needs no format of its own.

use crate::options::Options;
use bytes::Bytes;
use siltstone_base::entry::check_key;
use siltstone_base::open_end::{GREATEST_KEY, LEAST_KEY};
use siltstone_base::range_delete::check_range;
use siltstone_base::{
    AttemptId, DatabaseId, Entry, Envelope, Error, JobId, Kind, ObjectId, ObjectKind, ObjectName,
    RangeDelete, Result, Seq, SstDescriptor, SstId,
};
use siltstone_sst::TableBuilder;
use siltstone_store::env::Env;
use siltstone_store::retry::with_retries;
use std::time::Duration;

/// Keys whose existing rows a job deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedRange {
    start: Bytes,
    end: Option<Bytes>,
}

impl ReplacedRange {
    /// The keys of `[start, end)`. `None` means from the least or up to the greatest key.
    ///
    /// # Errors
    /// Invalid if a bound is not a valid key, or `start` is not below `end`.
    pub fn new(start: Option<&[u8]>, end: Option<&[u8]>) -> Result<ReplacedRange> {
        let start = start.unwrap_or(LEAST_KEY);
        match end {
            Some(end) => check_range(start, end)?,
            None => check_key(start)?,
        }
        let end = end.map(Bytes::copy_from_slice);
        Ok(ReplacedRange { start: Bytes::copy_from_slice(start), end })
    }

    /// The first key.
    #[must_use]
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// The first key after the range; `None` if it extends to the last key.
    #[must_use]
    pub fn end(&self) -> Option<&[u8]> {
        self.end.as_deref()
    }

    /// Whether all keys of a table lie in the range.
    pub(crate) fn holds(&self, table: &SstDescriptor) -> bool {
        *self.start <= *table.first_key
            && self.end.as_ref().is_none_or(|end| *table.last_key < **end)
    }

    /// Checks that all rows of a job lie in the range that it replaces. A row outside of it would
    /// be added beside rows that are not replaced, which is usually a mistake in splitting the
    /// rows.
    ///
    /// # Errors
    /// Invalid, with the first table outside.
    pub(crate) fn check_inside(&self, tables: &[SstDescriptor]) -> Result<()> {
        let Some(outside) = tables.iter().find(|table| !self.holds(table)) else { return Ok(()) };
        let text = "rows lie outside of the range that the job replaces; load them by a job that \
                    replaces nothing";
        let none = "the last key".to_owned();
        let end = self.end().map_or(none, |end| end.escape_ascii().to_string());
        Err(Error::invalid(text)
            .with("first key", outside.first_key.escape_ascii())
            .with("last key", outside.last_key.escape_ascii())
            .with("replaced from", self.start().escape_ascii())
            .with("up to", end))
    }

    /// Whether a table is such a range table and not rows of a part: parts have no range deletes.
    pub(crate) fn is_of_one(table: &SstDescriptor) -> bool {
        table.range_deletes.is_some()
    }

    /// Uploads the table, with a fresh name for each attempt.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn stage(
        &self,
        env: &Env,
        job: (JobId, DatabaseId),
        limit: Duration,
    ) -> Result<SstDescriptor> {
        with_retries(env, limit, "upload", async || self.upload(env, job).await).await
    }

    async fn upload(
        &self,
        env: &Env,
        (job, database): (JobId, DatabaseId),
    ) -> Result<SstDescriptor> {
        let (name, attempt) = (SstId(env.new_ulid()), AttemptId(env.random_u128()));
        let object = ObjectId(name.get());
        let envelope = Envelope::new(ObjectKind::Table, database, object, attempt);
        let (bytes, descriptor) = self.table(envelope)?;
        let mut upload = env.store.upload(ObjectName::IngestSst(job, name)).await?;
        upload.write(bytes).await?;
        upload.finish().await?;
        Ok(SstDescriptor { job: Some(job), ..descriptor })
    }

    /// Builds it at sequence number 0, as tables of parts: all of it counts at the number of its
    /// layer.
    fn table(&self, envelope: Envelope) -> Result<(Bytes, SstDescriptor)> {
        let mut table = TableBuilder::new(Options::default().table_options(), envelope);
        let end = self.end.as_deref().unwrap_or(&GREATEST_KEY);
        if *self.start < *end {
            table.add_range_deletes(&[RangeDelete::new(&self.start, end, Seq::NONE)])?;
        }
        if self.end.is_none() {
            // A range delete ends before a key, and there is no key after the greatest. The change
            // feed returns both as one range delete.
            let (key, seq, kind) = (GREATEST_KEY.as_slice(), Seq::NONE, Kind::Delete);
            table.add(&Entry { key, seq, kind, expires_at: None, value: &[] })?;
        }
        table.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_base::ErrorKind;

    fn table(range: &ReplacedRange) -> SstDescriptor {
        let envelope = Envelope::new(ObjectKind::Table, DatabaseId(1), ObjectId(2), AttemptId(3));
        range.table(envelope).expect("a table").1
    }

    #[test]
    fn its_table_meets_every_key_of_it() {
        let range = ReplacedRange::new(Some(b"b"), Some(b"d")).expect("a range");
        let told = table(&range);
        assert_eq!((told.first_key.as_ref(), told.last_key.as_ref()), (&b"b"[..], &b"d"[..]));
        assert!(ReplacedRange::is_of_one(&told));
        let open = table(&ReplacedRange::new(None, None).expect("a range"));
        assert_eq!(
            (open.first_key.as_ref(), open.last_key.as_ref()),
            (LEAST_KEY, &GREATEST_KEY[..])
        );
        // For the greatest key alone there is no range.
        let last = ReplacedRange::new(Some(&GREATEST_KEY), None).expect("a range");
        assert_eq!(table(&last).first_key.as_ref(), GREATEST_KEY);
    }

    #[test]
    fn keys_outside_are_told_from_keys_inside() {
        let of = |first: &'static [u8], last: &'static [u8]| {
            let some = table(&ReplacedRange::new(None, Some(b"x")).expect("a range"));
            let (first_key, last_key) = (Bytes::from_static(first), Bytes::from_static(last));
            SstDescriptor { first_key, last_key, ..some }
        };
        let range = ReplacedRange::new(Some(b"b"), Some(b"d")).expect("a range");
        assert!(range.holds(&of(b"b", b"c")));
        assert!(!range.holds(&of(b"a", b"c")));
        assert!(!range.holds(&of(b"b", b"d")));
        assert!(ReplacedRange::new(None, None).expect("a range").holds(&of(b"\0", b"\xff")));
    }

    #[test]
    fn bounds_are_keys_in_order() {
        let refused = |start: Option<&[u8]>, end: Option<&[u8]>| {
            ReplacedRange::new(start, end).expect_err("no range").kind()
        };
        assert_eq!(refused(Some(b"b"), Some(b"a")), ErrorKind::Invalid);
        assert_eq!(refused(Some(b"a"), Some(b"a")), ErrorKind::Invalid);
        assert_eq!(refused(Some(b""), None), ErrorKind::Invalid);
        assert_eq!(refused(None, Some(b"\0")), ErrorKind::Invalid);
    }
}
