//! The features that a manifest requires, and the unknown data that every commit preserves (RFC
//! 0024).
//!
//! A program may meet manifests of a newer version. It must detect data that it cannot read before
//! it does anything, and must not write if unknown data would be lost. So a state keeps the data
//! that it was decoded with, edits preserve it, decoding calls [`Features::check_readable`], and
//! encoding calls [`Features::check_committable`]: no other code decodes or encodes a manifest.

use bytes::Bytes;
use siltstone_base::{Envelope, Error, Result, Seq};

/// Ingest jobs: requests, their tables and their records in the log (RFC 0035).
pub const INGEST: &str = "ingest";
/// Holds of change feed consumers, and the data that they retain (RFC 0041): required of
/// committers, because the collector must honour them.
pub const FEED: &str = "feed";
/// Units of compaction jobs (RFC 0046): required of committers, because the collector must keep the
/// tables that they upload.
pub const UNITS: &str = "compaction-units";
/// Ingest jobs may be installed behind all other data (RFC 0043): required of committers, which
/// must not treat any run as the bottom.
pub const INGEST_BEHIND: &str = "ingest-behind";
/// Batches whose tables are listed in a log record (RFC 0044).
pub const LARGE_BATCHES: &str = "large-batches";
/// Closing objects of jobs contain their application, and forgotten applications are recorded (rule
/// N11): required of committers, which must refuse earlier jobs.
pub const INGEST_APPS: &str = "ingest-apps";
/// Leases on every version from one on (RFC 0048): required of committers, because the collector
/// must honour them.
pub const SINCE_LEASES: &str = "since-leases";
/// Creates are committed by records in a transactional store (RFC 0052): required of readers,
/// because the newest objects may be nowhere else.
pub const TWO_PHASE: &str = "two-phase";
/// Named features that this version knows and that a state keeps unchanged. The feature of mirrors
/// is also known, and is decoded into [`Manifest::mirror`](crate::Manifest::mirror) instead.
const KNOWN: [&str; 8] =
    [INGEST, FEED, UNITS, INGEST_BEHIND, LARGE_BATCHES, INGEST_APPS, SINCE_LEASES, TWO_PHASE];

/// Data of an object beside the meaning of its body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Carried {
    /// Feature bits that a program need not know.
    pub compatible: u32,
    /// Feature bits that every reader must know; those of a decoded object are known.
    pub incompatible: u32,
    /// A schema table with a field that this version does not know.
    pub unknown_field: Option<&'static str>,
}

/// The features that a manifest requires, and the data that is preserved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    /// The feature bits, as in every object.
    pub carried: Carried,
    /// Features by name.
    pub named: Vec<Feature>,
    /// Unknown extensions, preserved unchanged.
    pub extensions: Vec<Extension>,
}

/// A feature that the database uses and that not every program knows. A commit adds it before the
/// first object that needs it is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// The programs that must know it.
    pub audience: Audience,
    /// The version of Siltstone that introduced it; empty if unknown.
    pub since: String,
}

/// The programs that must know a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Audience {
    /// Every program that opens the database.
    Readers,
    /// Every program that commits; other programs may read.
    Committers,
    /// A value that this version does not know: treated as `Readers`.
    Other(u8),
}

/// A hint written by a newer version or by another program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extension {
    /// Its name.
    pub name: String,
    /// Its bytes; `None` where there are none at all.
    pub value: Option<Bytes>,
}

impl Carried {
    /// The data in the head of an object; its body is not checked yet.
    pub(crate) fn of(envelope: &Envelope, unknown_field: Option<&'static str>) -> Carried {
        let (compatible, incompatible) = (envelope.compatible, envelope.incompatible);
        Carried { compatible, incompatible, unknown_field }
    }

    /// The same head with these bits.
    pub(crate) fn onto(&self, envelope: Envelope) -> Envelope {
        Envelope { compatible: self.compatible, incompatible: self.incompatible, ..envelope }
    }

    /// Checks that the object can be written again without loss.
    ///
    /// # Errors
    /// Unsupported if a field would be lost.
    pub(crate) fn check_committable(&self) -> Result<()> {
        let Some(table) = self.unknown_field else { return Ok(()) };
        Err(Error::unsupported(
            "a newer version of Siltstone has written fields that this one would lose, so it \
             changes nothing; upgrade this program (reading without a checkpoint still works)",
        )
        .with("table of the schema", table))
    }
}

impl Feature {
    fn is_known(&self) -> bool {
        KNOWN.contains(&self.name.as_str())
    }

    fn refused(&self, what: &'static str) -> Error {
        let error = Error::unsupported(what).with("feature", &self.name);
        if self.since.is_empty() { error } else { error.with("known since", &self.since) }
    }
}

impl Features {
    /// The features of both, for a database with tables of both. If both have an extension with the
    /// same name, the first one is kept.
    #[must_use]
    pub fn joined(mut self, other: &Features) -> Features {
        self.carried.compatible |= other.carried.compatible;
        self.carried.incompatible |= other.carried.incompatible;
        self.carried.unknown_field = self.carried.unknown_field.or(other.carried.unknown_field);
        for feature in &other.named {
            if !self.named.contains(feature) {
                self.named.push(feature.clone());
            }
        }
        for extension in &other.extensions {
            if self.extensions.iter().all(|one| one.name != extension.name) {
                self.extensions.push(extension.clone());
            }
        }
        self
    }

    /// The same without one feature that the resulting database does not need.
    #[must_use]
    pub(crate) fn unnamed(mut self, feature: &str) -> Features {
        self.named.retain(|one| one.name != feature);
        self
    }

    /// Whether the feature is present.
    #[must_use]
    pub fn names(&self, feature: &str) -> bool {
        self.named.iter().any(|one| one.name == feature)
    }

    /// Adds a feature that every reader must know, unless it is present.
    pub(crate) fn name(&mut self, feature: &str, since: &str) {
        self.name_for(Audience::Readers, feature, since);
    }

    /// Adds a feature that every committer must know, unless it is present.
    pub(crate) fn name_for_committers(&mut self, feature: &str, since: &str) {
        self.name_for(Audience::Committers, feature, since);
    }

    fn name_for(&mut self, audience: Audience, feature: &str, since: &str) {
        if !self.names(feature) {
            let (name, since) = (feature.to_owned(), since.to_owned());
            self.named.push(Feature { name, audience, since });
        }
    }

    /// Checks that this version may read the database.
    ///
    /// # Errors
    /// Unsupported, with the name of the feature and the version that introduced it.
    pub fn check_readable(&self) -> Result<()> {
        let unknown =
            self.named.iter().find(|one| one.audience != Audience::Committers && !one.is_known());
        unknown.map_or(Ok(()), |feature| {
            Err(feature.refused(
                "the database uses a feature that this version of Siltstone does not know; \
                 upgrade this program",
            ))
        })
    }

    /// Checks that this version may change the database.
    ///
    /// # Errors
    /// Unsupported, with the name of the feature, or the schema table with a field that would be
    /// lost.
    pub fn check_committable(&self) -> Result<()> {
        self.check_readable()?;
        if let Some(feature) = self.named.iter().find(|one| !one.is_known()) {
            return Err(feature.refused(
                "the database uses a feature that this version of Siltstone must know to change \
                 it; upgrade this program (reading without a checkpoint still works)",
            ));
        }
        self.carried.check_committable()
    }

    /// The stored form with an additional extension that this version knows.
    pub(crate) fn with_extension(&self, name: &str, value: Bytes) -> Features {
        let mut stored = self.clone();
        stored.extensions.push(Extension { name: name.to_owned(), value: Some(value) });
        stored
    }

    /// Removes the extension with this name from the stored form, if it exists.
    pub(crate) fn take_extension(&mut self, name: &str) -> Option<Bytes> {
        let place = self.extensions.iter().position(|one| one.name == name)?;
        Some(self.extensions.remove(place).value.unwrap_or_default())
    }
}

/// The URL of a clone, at which the owner of its pins looks for it (rule K8, RFC 0029).
const CLONE_PLACE: &str = "siltstone.clone-place";

impl Features {
    /// The URL of the clone; `None` if its store has no URL, and for a clone of version 0.1.
    #[must_use]
    pub fn clone_place(&self) -> Option<&str> {
        let place = self.extensions.iter().find(|one| one.name == CLONE_PLACE)?;
        std::str::from_utf8(place.value.as_deref()?).ok()
    }

    /// Records the URL of the clone, replacing the value taken over from its parents.
    pub(crate) fn place_clone(&mut self, place: Option<&str>) {
        drop(self.take_extension(CLONE_PLACE));
        if let Some(place) = place {
            let value = Some(Bytes::copy_from_slice(place.as_bytes()));
            self.extensions.push(Extension { name: CLONE_PLACE.to_owned(), value });
        }
    }
}

/// The kind of transactional store that commits creates, beside [`TWO_PHASE`].
const RECORDS: &str = "siltstone.records";

impl Features {
    /// The kind of transactional store that commits creates; `None` where creates are conditional.
    #[must_use]
    pub fn records(&self) -> Option<&str> {
        if !self.names(TWO_PHASE) {
            return None;
        }
        let kind = self.extensions.iter().find(|one| one.name == RECORDS);
        let kind = kind.and_then(|kind| std::str::from_utf8(kind.value.as_deref()?).ok());
        Some(kind.unwrap_or_default())
    }

    /// The same for a database whose creates are committed by `records`, or are conditional.
    #[must_use]
    pub fn committed_by(mut self, records: Option<&str>) -> Features {
        drop(self.take_extension(RECORDS));
        let mut features = self.unnamed(TWO_PHASE);
        if let Some(kind) = records {
            features.name(TWO_PHASE, "0.1.0");
            let value = Some(Bytes::copy_from_slice(kind.as_bytes()));
            features.extensions.push(Extension { name: RECORDS.to_owned(), value });
        }
        features
    }
}

/// The last sequence number of rows that were never in the log, as eight bytes, little-endian.
const UNLOGGED: &str = "siltstone.unlogged";

impl Features {
    /// The last sequence number of rows that were never in the log (RFC 0055); none without such
    /// rows. A feed before it lacks changes.
    #[must_use]
    pub fn unlogged(&self) -> Seq {
        let last = self.extensions.iter().find(|one| one.name == UNLOGGED);
        let last = last.and_then(|last| last.value.as_deref()?.try_into().ok());
        last.map_or(Seq::NONE, |last| Seq(u64::from_le_bytes(last)))
    }

    /// Records that rows up to `last` were never in the log.
    pub(crate) fn leave_unlogged(&mut self, last: Seq) {
        drop(self.take_extension(UNLOGGED));
        let value = Some(Bytes::copy_from_slice(&last.get().to_le_bytes()));
        self.extensions.push(Extension { name: UNLOGGED.to_owned(), value });
    }
}

/// Set by a repair that continued from an older manifest: unreferenced tables are kept until they
/// are released by a command (RFC 0034).
const TABLES_STAY: &str = "siltstone.tables-stay";

impl Features {
    /// Whether unreferenced tables are kept.
    #[must_use]
    pub fn keeps_tables(&self) -> bool {
        self.extensions.iter().any(|one| one.name == TABLES_STAY)
    }

    pub(crate) fn keep_tables(&mut self) {
        if !self.keeps_tables() {
            self.extensions.push(Extension { name: TABLES_STAY.to_owned(), value: None });
        }
    }

    pub(crate) fn collect_tables(&mut self) {
        self.extensions.retain(|one| one.name != TABLES_STAY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_base::ErrorKind;

    fn with(audience: Audience) -> Features {
        let feature = Feature { name: "tides".to_owned(), audience, since: "9.1".to_owned() };
        Features { named: vec![feature], ..Features::default() }
    }

    fn refused(checked: Result<()>) -> String {
        let error = checked.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        error.to_string()
    }

    #[test]
    fn a_feature_stops_those_who_must_know_it() {
        for audience in [Audience::Readers, Audience::Other(7)] {
            let told = refused(with(audience).check_readable());
            assert!(told.contains("tides") && told.contains("9.1"), "{told}");
            refused(with(audience).check_committable());
        }
        assert!(with(Audience::Committers).check_readable().is_ok());
        assert!(refused(with(Audience::Committers).check_committable()).contains("tides"));
    }

    #[test]
    fn tables_of_two_sources_ask_for_the_features_of_both() {
        let hint = |value: &'static [u8]| Extension {
            name: "a hint".to_owned(),
            value: Some(Bytes::from_static(value)),
        };
        let mut one = with(Audience::Readers);
        one.carried.compatible = 1;
        one.extensions = vec![hint(b"one")];
        let mut other = with(Audience::Committers);
        other.carried = Carried { compatible: 2, incompatible: 4, unknown_field: Some("Manifest") };
        other.extensions = vec![hint(b"other"), Extension { name: "b".to_owned(), value: None }];
        let both = Features::default().joined(&one).joined(&other).joined(&one);
        assert_eq!(both.carried, Carried { compatible: 3, ..other.carried });
        assert_eq!(both.named, [one.named, other.named].concat());
        assert_eq!(both.extensions, [one.extensions[0].clone(), other.extensions[1].clone()]);
    }

    #[test]
    fn a_field_that_would_be_lost_stops_commits_alone() {
        let carried = Carried { unknown_field: Some("Manifest"), ..Carried::default() };
        let features = Features { carried, ..Features::default() };
        assert!(features.check_readable().is_ok());
        assert!(refused(features.check_committable()).contains("Manifest"));
    }
}
