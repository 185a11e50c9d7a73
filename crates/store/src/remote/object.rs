//! A single object in a bucket, outside of any database.

use super::upload::RemoteUpload;
use super::{RemoteShared, RemoteStore};
use crate::env::Effects;
use crate::options::StoreOptions;
use crate::place::Provider;
use crate::profile::Profile;
use crate::{SingleObject, Upload};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{ObjectName, Result, SstId};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The name with which the requests of a [`RemoteStore`] are used for the one object at its root.
pub(super) const LONE_OBJECT: ObjectName = ObjectName::Compacted(SstId::NONE);

/// The object at a path in a bucket.
pub(crate) struct RemoteObject(Arc<RemoteShared>);

impl RemoteObject {
    /// The object at `path`. Makes no request.
    pub(crate) fn new(
        provider: Provider,
        bucket: &str,
        path: &str,
        options: &StoreOptions,
        environment: &[(String, String)],
        effects: Effects,
    ) -> Result<RemoteObject> {
        let path = (path, true);
        let shared = RemoteShared::new(provider, bucket, path, options, environment, effects)?;
        Ok(RemoteObject(shared))
    }
}

impl fmt::Debug for RemoteObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        RemoteStore { shared: Arc::clone(&self.0) }.fmt(f)
    }
}

impl SingleObject for RemoteObject {
    fn get(&self, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let read = self.0.start("get", Arc::clone(&self.0).read(LONE_OBJECT, range));
        async move { Ok(read.await??.map(|(bytes, _)| bytes)) }.boxed()
    }

    fn profile(&self) -> Profile {
        Profile::REMOTE
    }

    fn length(&self) -> BoxFuture<'_, Result<Option<u64>>> {
        let shared = Arc::clone(&self.0);
        let look = self.0.start("list", async move { shared.length().await });
        async move { look.await? }.boxed()
    }

    fn upload(&self) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let upload = RemoteUpload::new(Arc::clone(&self.0), LONE_OBJECT);
        async move {
            let upload: Box<dyn Upload> = Box::new(upload?);
            Ok(upload)
        }
        .boxed()
    }
}
