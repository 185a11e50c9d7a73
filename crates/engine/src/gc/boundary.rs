//! The making of boundaries, by a round and by the end of a database.

use crate::manifests::conditional_create::Creating;
use crate::manifests::objects::Objects;
use bytes::Bytes;
use siltstone_base::{AttemptId, DatabaseId, Error, ObjectId, ObjectName, Result};

/// The bytes of a boundary: its number, whose it is, and the identities of object and attempt.
pub(super) type EncodeBoundary = fn(u64, DatabaseId, ObjectId, AttemptId) -> Bytes;

/// One boundary after the other: the same is created by the same bytes until it is known to be
/// there.
#[derive(Default)]
pub(super) struct BoundaryMaker(Option<(ObjectName, Creating)>);

impl BoundaryMaker {
    /// The creation of the boundary `name`: the one under way, else a new one.
    ///
    /// # Errors
    /// Internal for a name that is no boundary's.
    pub(super) fn creating(
        &mut self,
        objects: &Objects,
        name: ObjectName,
        database: DatabaseId,
        encode: EncodeBoundary,
    ) -> Result<&mut Creating> {
        if self.0.as_ref().is_none_or(|(making, _)| *making != name) {
            let id = match name {
                ObjectName::ManifestBoundary(id) => id.get(),
                ObjectName::WalBoundary(id) => id.get(),
                ObjectName::CompactionsBoundary(number) => number,
                other => return Err(Error::internal("no boundary").with("object", other)),
            };
            let attempt = AttemptId(objects.env.random_u128());
            let object = ObjectId(objects.env.random_u128());
            let bytes = encode(id, database, object, attempt);
            self.0 = Some((name, Creating::new(objects, bytes, attempt)));
        }
        match &mut self.0 {
            Some((_, creating)) => Ok(creating),
            None => Err(Error::internal("a boundary is made from nothing")),
        }
    }
}
