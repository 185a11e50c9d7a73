//! Refusals of a writer without a WAL (RFC 0055). Its rows are not in the log, so it must not begin
//! where a consumer of the log waits for them, and must take nothing that only the log can commit.

use super::state::Writer;
use crate::options::Options;
use siltstone_base::{Error, ErrorKind, Result};
use siltstone_manifest::Manifest;

/// Refuses a writer without a WAL while consumers of the change feed wait for its rows.
pub(crate) fn check_consumers(newest: &Manifest, options: &Options) -> Result<()> {
    match newest.holds.first() {
        Some(hold) if !options.writes.wal_enabled => Err(Error::new(
            ErrorKind::Conflict,
            "a consumer of the change feed reads this database, and rows without a WAL are not in \
             the feed: remove the consumer, or open with `writes.wal_enabled` on",
        )
        .with("consumer", &hold.name)),
        _ => Ok(()),
    }
}

impl Writer {
    /// # Errors
    /// Unsupported without a WAL: the log holds the commit of an ingest.
    pub(crate) fn check_logs(&self) -> Result<()> {
        match self.options.writes.wal_enabled {
            true => Ok(()),
            false => Err(Error::unsupported(
                "a writer without a WAL takes no loads and ingest jobs, whose commits the WAL \
                 holds: open the database with `writes.wal_enabled` on; a load writes only one \
                 record to the WAL",
            )),
        }
    }
}
