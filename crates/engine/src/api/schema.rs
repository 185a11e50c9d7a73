//! The schema of a table (RFC 0040): what a handle knows of it, what is newest, and its evolution.
//! Here it is bytes; what they say is the bindings'.

use super::db::Database;
use super::reader::Reader;
use crate::manifests::client::{self, commit_alone};
use crate::manifests::missing::no_database;
use crate::manifests::objects::Objects;
use crate::writer::snapshot::Snapshot;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{Error, Result};
use siltstone_manifest::{Edit, Evolve, Manifest};
use siltstone_store::counting::within;
use siltstone_store::env::Env;
use std::sync::Arc;
use std::time::Duration;

impl Database {
    /// The schema as this handle knows it; `None` for a database of bytes.
    ///
    /// # Errors
    /// Closed, Fenced.
    pub fn schema(&self) -> Result<Option<Bytes>> {
        Ok(self.writer()?.manifests.newest_known().schema.clone())
    }

    /// The schema of the newest manifest.
    ///
    /// # Errors
    /// Closed, Fenced; those of the store.
    pub fn newest_schema(&self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        async move {
            let writer = self.writer()?;
            let look = writer.manifests.probe(true);
            let newest = writer.context.deadline(writer.options.deadline, "schema", look).await?;
            Ok(newest.schema.clone())
        }
        .boxed()
    }

    /// Puts `to` in the place of `from`.
    ///
    /// # Errors
    /// Conflict where something else stands there; Invalid for a database of bytes, and for other
    /// keys; Closed, Fenced; those of the store, and then it may have come to pass.
    pub fn evolve(&self, from: Bytes, to: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            let writer = self.writer()?;
            let commit = writer.try_commit_apart(Edit::Evolve(Evolve { from, to }));
            let limit = writer.options.deadline;
            let done = writer.context.deadline(limit, "evolve schema", commit).await?;
            done.map(drop).map_err(Error::from)
        }
        .boxed()
    }
}

impl Snapshot {
    /// The schema as its writer knows it: every row that the snapshot sees is of it, or older.
    #[must_use]
    pub fn schema(&self) -> Option<Bytes> {
        self.writer().manifests.newest_known().schema.clone()
    }

    /// The schema of the newest manifest.
    ///
    /// # Errors
    /// Those of the store.
    pub fn newest_schema(&self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        async move {
            let writer = self.writer();
            let look = writer.manifests.probe(true);
            let newest = writer.context.deadline(writer.options.deadline, "schema", look).await?;
            Ok(newest.schema.clone())
        }
        .boxed()
    }
}

impl Reader {
    /// The schema of the version that it reads.
    #[must_use]
    pub fn schema(&self) -> Option<Bytes> {
        self.manifest().schema.clone()
    }

    /// The schema of the newest manifest. A row of the log may be of a later generation than the
    /// tables beside which it is read.
    ///
    /// # Errors
    /// NotFound where the database is gone; those of the store.
    pub fn newest_schema(&self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        async move {
            let database = self.manifest().database;
            let env = self.env();
            let newest = newest(env, self.options().deadline).await?;
            if newest.database == database {
                Ok(newest.schema.clone())
            } else {
                Err(no_database(env))
            }
        }
        .boxed()
    }
}

/// Puts `to` in the place of `from`, from any process.
///
/// # Errors
/// As [`Database::evolve`]; NotFound where there is no database.
pub fn evolve(env: &Env, from: Bytes, to: Bytes, deadline: Duration) -> BoxFuture<'_, Result<()>> {
    async move {
        within(env, deadline, "evolve schema", |env| async move {
            let objects = Objects { env, limit: deadline };
            let newest = client::newest(&objects).await?;
            let edit = Edit::Evolve(Evolve { from, to });
            commit_alone(&objects, edit, newest).await.map(drop)
        })
        .await
    }
    .boxed()
}

async fn newest(env: &Env, deadline: Duration) -> Result<Arc<Manifest>> {
    let look = |env| async move { client::newest(&Objects { env, limit: deadline }).await };
    within(env, deadline, "schema", look).await
}
