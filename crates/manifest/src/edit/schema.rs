//! The edit that changes the columns of a table (RFC 0040). The bindings interpret schemas; in this
//! crate a schema is bytes, except that its first line, the key schema, must not change.

use super::refusal::{Conflict, Refusal};
use crate::state::Manifest;
use bytes::Bytes;

/// Replaces one schema by another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Evolve {
    /// The schema from which it was planned, so that a concurrent change is not overwritten.
    pub from: Bytes,
    /// The new schema.
    pub to: Bytes,
}

impl Evolve {
    pub(super) fn apply(&self, next: &mut Manifest) -> Result<(), Refusal> {
        let keys = next.settings.key_schema.as_deref().map(str::as_bytes);
        let first_line = self.to.split(|byte| *byte == b'\n').next();
        if next.schema.is_none() || keys.is_none() {
            return Err(Refusal::Invalid("the database has no schema, and none can be added"));
        }
        if keys != first_line {
            return Err(Refusal::Invalid("the key schema of a table cannot change"));
        }
        if next.schema.as_ref() != Some(&self.from) {
            return Err(Conflict::SchemaMoved.into());
        }
        next.schema = Some(self.to.clone());
        Ok(())
    }

    pub(super) fn in_effect(&self, state: &Manifest) -> bool {
        state.schema.as_ref() == Some(&self.to)
    }
}
