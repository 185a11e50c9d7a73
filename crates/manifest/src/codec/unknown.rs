//! Detection of fields that this version does not know: they would be lost if the body were written
//! again.
//!
//! The vtable of a table lists its fields. A field after the last known one was written by a newer
//! version.

use flatbuffers::{Follow, ForwardsUOffset, Table, VOffsetT, Vector};
use siltstone_fbs::manifest as fb;

/// A table of a schema, its name, and the position of its last known field in the vtable.
macro_rules! known {
    ($($schema:ident :: $name:ident up to $last:ident;)*) => {
        $(impl KnownFields for $schema::$name<'_> {
            const NAME: &'static str = stringify!($name);
            const LAST: flatbuffers::VOffsetT = $schema::$name::$last;
            fn table(&self) -> flatbuffers::Table<'_> {
                self._tab
            }
        })*
    };
}
pub(crate) use known;

/// A table that is checked.
pub(crate) trait KnownFields {
    /// Its name in the schema.
    const NAME: &'static str;
    /// Position of the last known field in the vtable.
    const LAST: VOffsetT;
    /// The table itself.
    fn table(&self) -> Table<'_>;

    /// Its name, if it has a field that this version does not know.
    fn unknown(&self) -> Option<&'static str> {
        // A vtable begins with two lengths; then it has two bytes per field, 0 if the field is
        // missing.
        let vtable = self.table().vtable();
        let places = vtable.num_bytes() as VOffsetT;
        let mut behind = (Self::LAST + 2..places.max(Self::LAST + 2)).step_by(2);
        behind.any(|place| vtable.get(place) != 0).then_some(Self::NAME)
    }
}

known! {
    fb::Settings up to VT_KEY_SCHEMA;
    fb::Feature up to VT_SINCE;
    fb::Extension up to VT_VALUE;
    fb::WalStore up to VT_LOCATION;
    fb::Ancestor up to VT_NUMBER;
    fb::WriterRecord up to VT_TRANSIENT;
    fb::KeptFence up to VT_NEXT_ID;
    fb::SstDescriptor up to VT_SUM_KIND;
    fb::L0Entry up to VT_TABLES;
    fb::SortedRun up to VT_TABLES;
    fb::FinishedJob up to VT_EPOCH;
    fb::Fact up to VT_VALUE;
    fb::Checkpoint up to VT_MANIFEST_ATTEMPT;
    fb::LeasedVersion up to VT_MANIFEST_ATTEMPT;
    fb::Lease up to VT_VERSIONS;
    fb::Timeline up to VT_BEGAN_AT;
    fb::PendingIngest up to VT_TIMELINE;
    fb::RememberedIngest up to VT_REASON;
    fb::IngestApp up to VT_SEQ;
    fb::Hold up to VT_UNRETAINED_SEQ;
    fb::SinceLease up to VT_EXPIRES_AT;
    fb::Manifest up to VT_SINCE_LEASES;
}

/// The name of the first table among `items` with an unknown field.
pub(crate) fn any<'a, T: Follow<'a> + 'a>(
    items: Option<Vector<'a, ForwardsUOffset<T>>>,
    one: impl Fn(T::Inner) -> Option<&'static str>,
) -> Option<&'static str> {
    items.iter().flatten().find_map(one)
}

/// The name of a schema table with a field that this version does not know.
pub(super) fn unknown_field(root: &fb::Manifest<'_>) -> Option<&'static str> {
    let tables = |tables| any(tables, |one: fb::SstDescriptor<'_>| one.unknown());
    None.or_else(|| root.unknown())
        .or_else(|| root.settings().unknown())
        .or_else(|| root.wal_store().and_then(|one| one.unknown()))
        .or_else(|| any(root.features(), |one| one.unknown()))
        .or_else(|| any(root.extensions(), |one| one.unknown()))
        .or_else(|| any(root.ancestors(), |one| one.unknown()))
        .or_else(|| any(root.writers(), |one| one.unknown()))
        .or_else(|| any(root.kept_fences(), |one| one.unknown()))
        .or_else(|| any(root.l0(), |one| one.unknown().or_else(|| tables(Some(one.tables())))))
        .or_else(|| any(root.runs(), |one| one.unknown().or_else(|| tables(Some(one.tables())))))
        .or_else(|| any(root.finished_jobs(), |one| one.unknown()))
        .or_else(|| {
            any(root.checkpoints(), |one| {
                one.unknown().or_else(|| any(one.metadata(), |fact| fact.unknown()))
            })
        })
        .or_else(|| {
            any(root.leases(), |one| {
                one.unknown().or_else(|| any(Some(one.versions()), |version| version.unknown()))
            })
        })
        .or_else(|| any(root.since_leases(), |one| one.unknown()))
        .or_else(|| any(root.timelines(), |one| one.unknown()))
        .or_else(|| any(root.pending_ingests(), |one| one.unknown()))
        .or_else(|| any(root.remembered_ingests(), |one| one.unknown()))
        .or_else(|| any(root.ingest_apps(), |one| one.unknown()))
        .or_else(|| any(root.holds(), |one| one.unknown()))
}
