//! Creation of boundary objects, by a round and by the removal of a database.

use crate::manifests::conditional_create::Creating;
use crate::manifests::objects::Objects;
use bytes::Bytes;
use siltstone_base::{AttemptId, DatabaseId, Error, ObjectId, ObjectName, Result};

/// Encodes a boundary from its number, its database, and the ids of the object and the attempt.
pub(super) type EncodeBoundary = fn(u64, DatabaseId, ObjectId, AttemptId) -> Bytes;

/// Creates boundaries in sequence. Every retry for a boundary uses the same bytes until it is known
/// to exist.
#[derive(Default)]
pub(super) struct BoundaryMaker(Option<(ObjectName, Creating)>);

impl BoundaryMaker {
    /// Returns the creation of the boundary `name`: the pending one, or else a new one.
    ///
    /// # Errors
    /// Internal if `name` is not the name of a boundary.
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
            None => Err(Error::internal("the create of a boundary was not begun")),
        }
    }
}
