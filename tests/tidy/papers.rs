//! The written decisions: every RFC has its place in the index and a status, links lead to files,
//! and the table of object names matches the parser.

use crate::house::{Broken, Source};
use siltstone_base::{AttemptId, JobId, ManifestId, ObjectName, SstId, WalId};
use std::path::Path;

const INDEX: &str = "rfcs/README.md";
const STATUSES: [&str; 5] = ["draft", "accepted", "implemented", "rejected", "superseded by"];

pub(crate) fn rfcs(sources: &[Source]) -> Vec<Broken> {
    let mut broken = Vec::new();
    let index = sources.iter().find(|source| source.path == INDEX);
    for rfc in sources.iter().filter(|source| is_rfc(source)) {
        let file = rfc.path.trim_start_matches("rfcs/");
        let number = file.get(..4).unwrap_or_default();
        if !rfc.text.starts_with(&format!("# RFC {number}: ")) {
            let text = format!("begins otherwise than `# RFC {number}: <title>`");
            broken.push(Broken::new(rfc, 1, text));
        }
        let status = rfc.text.lines().find_map(|line| line.strip_prefix("Status: "));
        let status = status.unwrap_or_default().trim();
        if !STATUSES.iter().any(|known| status.starts_with(known)) {
            let text = format!("has no line `Status: …` with one of {STATUSES:?}");
            broken.push(Broken::new(rfc, 1, text));
        }
        let row = index.and_then(|index| index.text.lines().find(|line| line.contains(file)));
        if !row.is_some_and(|row| row.contains(status)) {
            let text = format!("is not in {INDEX} with its status, `{status}`");
            broken.push(Broken::new(rfc, 1, text));
        }
    }
    broken
}

/// Excludes the template.
fn is_rfc(source: &Source) -> bool {
    let number = source.path.strip_prefix("rfcs/").and_then(|file| file.get(..4));
    source.path.ends_with(".md")
        && number.is_some_and(|number| {
            number != "0000" && number.bytes().all(|each| each.is_ascii_digit())
        })
}

/// The file with the table of object names.
const FORMATS: &str = "rfcs/0002";
/// The values for the placeholders.
const DIGITS: &str = "00000000000000000007";
const ULID: &str = "00000000000000000000000007";

/// Checked in both directions. In a row of a table, every quoted word that has the form of an
/// object name must be one: the placeholders `<20 digits>` and `<ULID>` are filled in, then it is
/// parsed. Reserved names are in rows that say so, and must not parse yet. And every name that the
/// parser knows is in the table.
pub(crate) fn object_names(sources: &[Source]) -> Vec<Broken> {
    let mut broken = Vec::new();
    let Some(formats) = sources.iter().find(|source| source.path.starts_with(FORMATS)) else {
        let text = "is missing; it holds the table of object names".to_owned();
        return vec![Broken { path: FORMATS.to_owned(), line: 1, text }];
    };
    let rows = || formats.text.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
    for (at, line) in rows() {
        for name in line.split('`').skip(1).step_by(2).filter(|name| is_shape(name)) {
            let filled = name.replace("<20 digits>", DIGITS).replace("<ULID>", ULID);
            let filled = filled.replace("<32 hex digits>", HEX).replace("<8 hex digits>", CRC);
            let parsed = ObjectName::parse(&filled).is_some();
            let reserved = line.contains("reserved");
            if parsed == reserved {
                let text = if reserved {
                    format!("`{name}` is called reserved, but the parser knows it already")
                } else {
                    format!("`{name}` is not an object name; see crates/base/src/name.rs")
                };
                broken.push(Broken::new(formats, at + 1, text));
            }
        }
    }
    for name in every_name() {
        let shape = shape(&name.to_string());
        if !rows().any(|(_, line)| line.contains(&format!("`{shape}`"))) {
            broken.push(Broken::new(formats, 1, format!("`{shape}` is not in the table")));
        }
    }
    broken
}

/// One of each kind.
fn every_name() -> [ObjectName; 19] {
    [
        ObjectName::Manifest(ManifestId(7)),
        ObjectName::ManifestBoundary(ManifestId(7)),
        ObjectName::Wal(WalId(7)),
        ObjectName::WalBoundary(WalId(7)),
        ObjectName::Compacted(SstId(7)),
        ObjectName::Compactions(7),
        ObjectName::CompactionsBoundary(7),
        ObjectName::IngestManifest(JobId(7)),
        ObjectName::IngestSst(JobId(7), SstId(7)),
        ObjectName::ProbeRecord,
        ObjectName::ProbeScratch(JobId(7)),
        ObjectName::DamagedManifest(JobId(7), ManifestId(7)),
        ObjectName::DamagedWal(JobId(7), WalId(7)),
        ObjectName::DamagedTable(JobId(7), SstId(7)),
        ObjectName::DamagedCompactions(JobId(7), 7),
        ObjectName::EncryptionKey(7),
        ObjectName::LogIdentity,
        ObjectName::TwoPhaseNamespace,
        ObjectName::TwoPhaseSource(AttemptId(7), 7),
    ]
}

const HEX: &str = "00000000000000000000000000000007";
const CRC: &str = "00000007";
/// The name with its variable parts as the table writes them, the longest first.
fn shape(name: &str) -> String {
    let shape = name.replace(HEX, "<32 hex digits>").replace(ULID, "<ULID>");
    shape.replace(DIGITS, "<20 digits>").replace(CRC, "<8 hex digits>")
}

/// Names without a variable part.
const FIXED: [&str; 3] = ["log/identity", "probe/record", "two-phase/namespace"];

fn is_shape(name: &str) -> bool {
    name.contains('/') && !name.ends_with('/') && (name.contains('<') || FIXED.contains(&name))
}

/// Pages that docs/reference.py makes. tests/python/test_docs.py checks the links to them.
const REFERENCE: &str = "docs/reference/";

/// A relative link leads to a file, or to a page of the API reference.
pub(crate) fn links(root: &Path, sources: &[Source]) -> Vec<Broken> {
    let mut broken = Vec::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".md")) {
        for (at, line) in source.text.lines().enumerate() {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let file = target.split('#').next().unwrap_or_default();
                let folder = root.join(&source.path);
                let elsewhere = file.is_empty() || file.contains("://") || file.contains(' ');
                let found = folder.parent().is_some_and(|folder| {
                    folder.join(file).exists() || is_reference(&folder.join(file), root)
                });
                if !elsewhere && !found {
                    let text = format!("the link to {target} leads nowhere");
                    broken.push(Broken::new(source, at + 1, text));
                }
            }
        }
    }
    broken
}

fn is_reference(path: &Path, root: &Path) -> bool {
    let page = path.strip_prefix(root).ok().and_then(Path::to_str).unwrap_or_default();
    page.strip_prefix(REFERENCE).is_some_and(|name| name.ends_with(".md") && !name.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(rfc: &str, index: &str) -> usize {
        rfcs(&[Source::new("rfcs/0007-x.md", rfc), Source::new(INDEX, index)]).len()
    }

    #[test]
    fn an_rfc_needs_title_status_and_a_row_that_agrees() {
        let row = "| [0007](0007-x.md) | X | accepted |\n";
        assert_eq!(count("# RFC 0007: X\n\nStatus: accepted\n", row), 0);
        assert_eq!(count("# RFC 0008: X\n\nStatus: accepted\n", row), 1);
        assert_eq!(count("# RFC 0007: X\n\nStatus: draft\n", row), 1);
        assert_eq!(count("# RFC 0007: X\n\nStatus: accepted\n", ""), 1);
        assert_eq!(count("# RFC 0007: X\n\nStatus: perhaps\n", row), 2);
    }

    #[test]
    fn a_name_in_the_table_must_parse_and_a_reserved_one_must_not() {
        let table: String = every_name().iter().map(|name| format!("| `{name}` | x |\n")).collect();
        let table = shape(&table);
        let found = |line: &str| {
            object_names(&[Source::new("rfcs/0002-x.md", &format!("{table}{line}"))]).len()
        };
        assert_eq!(found(""), 0);
        assert_eq!(found("| `manifest/<20 digits>.sst` | state |"), 1);
        assert_eq!(found("| `blobs/<ULID>.blob` | reserved |"), 0);
        assert_eq!(found("| `compacted/<ULID>.sst` | reserved |"), 1);
        let short = table.replacen("| `wal/<20 digits>.sst` | x |\n", "", 1);
        assert_eq!(object_names(&[Source::new("rfcs/0002-x.md", &short)]).len(), 1);
        assert_eq!(object_names(&[]).len(), 1, "the table itself is missing");
    }

    #[test]
    fn a_link_must_lead_somewhere() {
        let found = |text: &str| {
            let root = Path::new(env!("CARGO_MANIFEST_DIR"));
            links(root, &[Source::new("a.md", text)]).len()
        };
        assert_eq!(found("[a](Cargo.toml) [b](https://example.org/x) [c](#d)"), 0);
        assert_eq!(found("[a](Cargo.toml#x) [b](nowhere.md)"), 1);
        assert_eq!(found("[a](docs/reference/keys.md#x) [b](docs/reference/keys.txt)"), 1);
    }
}
