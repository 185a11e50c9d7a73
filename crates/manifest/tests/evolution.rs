//! Schema evolution: compares `fbs/*.fbs` with the frozen copies, by the rules in `fbs/README.md`,
//! and reads a manifest of a later version with fields unknown to this one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

mod support;

use flatbuffers::{FlatBufferBuilder, WIPOffset};
use siltstone_base::{
    AttemptId, CheckpointId, Envelope, Epoch, ErrorKind, ManifestId, ObjectKind, WalId,
};
use siltstone_manifest::features::Audience;
use siltstone_manifest::{Edit, Manifest, NewCheckpoint};
use std::collections::BTreeMap;
use std::path::Path;

/// The parts of a definition line besides its name: type, default, attributes.
type Members = Vec<(String, String)>;

/// Every `table`, `struct` and `enum`: its kind, and its members in order.
fn definitions(schema: &str) -> BTreeMap<String, (String, Members)> {
    let mut found = BTreeMap::new();
    let mut open: Option<(String, String, Members)> = None;
    for line in schema.lines().map(|line| line.split("//").next().unwrap_or("").trim()) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some(kind @ ("table" | "struct" | "enum")), Some(name)) => {
                open = Some((name.to_owned(), kind.to_owned(), Vec::new()));
            }
            (Some("}"), None) => {
                let (name, kind, members) = open.take().expect("a brace closes a definition");
                found.insert(name, (kind, members));
            }
            (Some(_), _) => {
                let Some((_, _, members)) = &mut open else { continue };
                let at = line.find([':', '=']).expect("a member has a type or a number");
                let (name, rest) = line.split_at(at);
                members.push((name.trim().to_owned(), rest.to_owned()));
            }
            (None, _) => {}
        }
    }
    found
}

/// The number after `id:`.
fn id_of(member: &str) -> Option<usize> {
    let after = member.split("id:").nth(1)?;
    after.trim().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Every breach of the rules of evolution in `now` compared with `frozen`.
fn breaches(frozen: &str, now: &str) -> Vec<String> {
    let (frozen, now) = (definitions(frozen), definitions(now));
    let mut breaches = Vec::new();
    for (name, (kind, old)) in &frozen {
        let Some((kind_now, new)) = now.get(name) else {
            breaches.push(format!("{name} is gone"));
            continue;
        };
        if kind != kind_now {
            breaches.push(format!("{name} is no {kind} any more"));
        }
        if kind == "struct" && old != new {
            breaches.push(format!("the struct {name} has changed"));
        }
        for (position, member) in old.iter().enumerate() {
            if new.get(position) != Some(member) {
                breaches.push(format!("{name}.{} has changed or moved", member.0));
            }
        }
        for (field, rest) in new.iter().skip(old.len()) {
            if rest.contains("required") {
                breaches.push(format!("{name}.{field} is new and required"));
            }
        }
    }
    for (name, (_, members)) in now.iter().filter(|(_, (kind, _))| kind == "table") {
        for (position, (field, rest)) in members.iter().enumerate() {
            if id_of(rest) != Some(position) {
                breaches.push(format!("{name}.{field} does not carry the next id"));
            }
        }
    }
    breaches
}

/// Every schema, and its minimum number of definitions.
const SCHEMAS: [(&str, usize); 2] = [("manifest.fbs", 13), ("compactions.fbs", 6)];

fn schema(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fbs").join(name);
    std::fs::read_to_string(&path).expect("the schema is in the tree")
}

#[test]
fn the_schemas_only_append_to_the_frozen_ones() {
    for (name, least) in SCHEMAS {
        let frozen = schema(&format!("frozen/{name}"));
        assert!(definitions(&frozen).len() >= least, "the parser lost definitions");
        assert_eq!(breaches(&frozen, &schema(name)), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn every_field_has_a_sentence() {
    for (name, _) in SCHEMAS {
        let schema = schema(name);
        let mut before = "";
        for line in schema.lines() {
            let member = line.starts_with("  ") && line.ends_with([';', ',']);
            assert!(!member || before.trim().starts_with("/// "), "undocumented: {line}");
            before = line;
        }
    }
}

#[test]
fn each_breach_is_found() {
    let frozen = "table T {\n a: ulong (id: 0);\n b: string (id: 1, required);\n}\n\
                  struct S {\n x: ulong;\n}\nenum E : ubyte {\n A = 0,\n B = 1,\n}\n";
    let edits = [
        ("a: ulong", "a: uint", "T.a"),
        ("a: ulong (id: 0);\n", "", "T.a"),
        ("a: ulong", "c: ulong", "T.a"),
        ("a: ulong (id: 0)", "a: ulong = 5 (id: 0)", "T.a"),
        ("(id: 1, required)", "(id: 1)", "T.b"),
        ("x: ulong;", "x: ulong;\n y: ulong;", "struct S"),
        ("A = 0", "A = 2", "E.A"),
        ("table T", "struct T", "no table"),
        ("table T", "table U", "T is gone"),
        ("required);\n", "required);\n c: ulong (id: 2, required);\n", "new and required"),
        ("required);\n", "required);\n c: ulong (id: 3);\n", "next id"),
    ];
    for (from, to, said) in edits {
        let found = breaches(frozen, &frozen.replacen(from, to, 1));
        assert!(found.iter().any(|breach| breach.contains(said)), "{from} -> {to}: {found:?}");
    }
    let appended = frozen.replacen("required);\n", "required);\n c: ulong (id: 2);\n", 1);
    assert_eq!(breaches(frozen, &appended), Vec::<String>::new());
}

/// The slot of the field with `id` in a vtable: two bytes each, after the two lengths.
fn slot(id: u16) -> u16 {
    4 + 2 * id
}

/// The body of a manifest of a later version: id, settings and replay point as today, and behind
/// the last known field a number and a table.
fn body_with_unknown_fields() -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let settings = builder.start_table();
    let settings = builder.end_table(settings);
    let unknown = builder.start_table();
    builder.push_slot_always(slot(0), 77u64);
    let unknown = builder.end_table(unknown);
    let root = builder.start_table();
    builder.push_slot_always(slot(0), 9u64);
    builder.push_slot_always(slot(1), true);
    builder.push_slot_always(slot(3), settings);
    builder.push_slot_always(slot(11), 4u64);
    builder.push_slot_always(slot(40), 123u64);
    builder.push_slot_always(slot(41), unknown);
    let root = builder.end_table(root);
    builder.finish(WIPOffset::<()>::new(root.value()), None);
    builder.finished_data().to_vec()
}

#[test]
fn fields_of_a_later_version_are_left_alone() {
    let bytes = support::framed(&body_with_unknown_fields());
    let (_, manifest) = Manifest::decode(&bytes).expect("unknown fields are accepted");
    assert_eq!(manifest.id, ManifestId(9));
    assert_eq!(manifest.replay_from, WalId(4));
    assert!(manifest.initialized && manifest.l0.is_empty() && manifest.destroyed_at.is_none());
}

/// Unknown data would be lost: a commit on it is refused, and the error names the place.
#[test]
fn fields_of_a_later_version_are_not_lost() {
    let (_, read) = Manifest::decode(&support::framed(&body_with_unknown_fields())).unwrap();
    let claim = Edit::ClaimCompactor { writer: None, expected: Epoch::NONE, claim: AttemptId(3) };
    let next = claim.apply(&read).unwrap();
    let error = next.encode(support::OBJECT, support::ATTEMPT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("table of the schema: Manifest"), "{error}");
}

/// The same in a table of a layer, at any depth.
#[test]
fn an_unknown_field_of_a_table_is_found() {
    let whole = support::full().encode(support::OBJECT, support::ATTEMPT).unwrap();
    let known = Manifest::decode(&whole).unwrap().1;
    assert_eq!(known.features.carried.unknown_field, None);
    let mut builder = FlatBufferBuilder::new();
    let settings = builder.start_table();
    builder.push_slot_always(slot(4), 5u32);
    let settings = builder.end_table(settings);
    let root = builder.start_table();
    builder.push_slot_always(slot(0), 9u64);
    builder.push_slot_always(slot(1), true);
    builder.push_slot_always(slot(3), settings);
    builder.push_slot_always(slot(11), 4u64);
    let root = builder.end_table(root);
    builder.finish(WIPOffset::<()>::new(root.value()), None);
    let (_, read) = Manifest::decode(&support::framed(builder.finished_data())).unwrap();
    assert_eq!(read.features.carried.unknown_field, Some("Settings"));
}

/// Bits, extensions and kinds of checkpoints that no version has written so far survive a commit of
/// this version.
#[test]
fn unknown_optional_fields_survive_the_commit_of_an_older_program() {
    let before = Manifest { destroyed_at: None, ..support::full() };
    let bytes = before.encode(support::OBJECT, support::ATTEMPT).unwrap();
    let (envelope, read) = Manifest::decode(&bytes).unwrap();
    assert_eq!(envelope.compatible, 1 << 30);
    let new = NewCheckpoint { id: CheckpointId(7), ..NewCheckpoint::default() };
    let next = Edit::AddCheckpoint(new).apply(&read).unwrap();
    let bytes = next.encode(support::OBJECT, AttemptId(5)).unwrap();
    let (envelope, after) = Manifest::decode(&bytes).unwrap();
    assert_eq!(envelope.compatible, 1 << 30);
    assert_eq!(after.features, before.features);
    assert_eq!(after.remembered_ingests, before.remembered_ingests);
    let others = |state: &Manifest| {
        let all = state.checkpoints.iter().cloned();
        all.filter(|one| one.id != CheckpointId(7)).collect::<Vec<_>>()
    };
    assert_eq!(others(&after), others(&before));
    // The new checkpoint pins the manifest that added it, and names the attempt that wrote it.
    let own = after.checkpoint(CheckpointId(7)).unwrap();
    assert_eq!((own.manifest_id, own.manifest_attempt), (after.id, AttemptId(5)));
}

#[test]
fn features_are_refused_by_name_to_those_who_must_know_them() {
    let with = |audience| {
        let manifest = Manifest { features: support::features(audience), ..support::empty() };
        let envelope = Envelope::new(
            ObjectKind::Manifest,
            manifest.database,
            support::OBJECT,
            support::ATTEMPT,
        );
        manifest.encode_with(&envelope).unwrap()
    };
    for audience in [Audience::Readers, Audience::Other(9)] {
        let error = Manifest::decode(&with(audience)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("tides"), "{error}");
    }
    let (_, read) = Manifest::decode(&with(Audience::Committers)).unwrap();
    let error = read.encode(support::OBJECT, support::ATTEMPT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("tides"), "{error}");
}

#[test]
fn a_missing_required_field_is_corruption() {
    let mut builder = FlatBufferBuilder::new();
    let root = builder.start_table();
    builder.push_slot_always(slot(0), 9u64);
    let root = builder.end_table(root);
    builder.finish(WIPOffset::<()>::new(root.value()), None);
    let error = Manifest::decode(&support::framed(builder.finished_data())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("settings"), "{error}");
}
