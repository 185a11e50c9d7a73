use super::*;
use bytes::Bytes;

fn evolve(from: &'static str, to: &'static str) -> Edit {
    Edit::Evolve(Evolve {
        from: Bytes::from_static(from.as_bytes()),
        to: Bytes::from_static(to.as_bytes()),
    })
}

/// A table database whose keys are `k`.
fn table_of(schema: &'static str) -> Manifest {
    let mut state = manifest();
    state.settings.key_schema = Some("k".to_owned());
    Manifest { schema: Some(Bytes::from_static(schema.as_bytes())), ..state }
}

#[test]
fn columns_evolve_by_one_commit_of_no_epoch() {
    let (base, edit) = (table_of("k\n1"), evolve("k\n1", "k\n2"));
    assert!(!edit.in_effect(&base));
    let next = edit.apply(&base).unwrap();
    assert!(edit.in_effect(&next));
    assert_eq!(next.settings, base.settings);
    // The tables and the writer are unchanged.
    let schema = base.schema.clone();
    assert_eq!(Manifest { id: base.id, attempt: base.attempt, schema, ..next }, base);
}

/// Two processes add the same column: the texts are equal, and both find it. Two add different
/// ones: the second reads the schema again.
#[test]
fn a_second_schema_does_not_overwrite_the_first() {
    let next = evolve("k\n1", "k\n2").apply(&table_of("k\n1")).unwrap();
    assert!(evolve("k\n1", "k\n2").in_effect(&next));
    let other = evolve("k\n1", "k\n2 other");
    assert!(!other.in_effect(&next));
    assert_eq!(other.apply(&next), Err(Refusal::Conflict(Conflict::SchemaMoved)));
}

#[test]
fn keys_are_for_good_and_bytes_stay_bytes() {
    let refused =
        |edit: &Edit, base: &Manifest| matches!(edit.apply(base), Err(Refusal::Invalid(_)));
    assert!(refused(&evolve("k\n1", "kk\n2"), &table_of("k\n1")));
    assert!(refused(&evolve("k\n1", ""), &table_of("k\n1")));
    assert!(refused(&evolve("", "k\n1"), &manifest()));
}

#[test]
fn a_destroyed_and_a_half_made_table_keep_theirs() {
    let edit = evolve("k\n1", "k\n2");
    let destroyed = Manifest { destroyed_at: Some(UnixMillis(1)), ..table_of("k\n1") };
    assert_eq!(edit.apply(&destroyed), Err(Refusal::Conflict(Conflict::Destroyed)));
    let unmade = Manifest { initialized: false, ..table_of("k\n1") };
    assert_eq!(edit.apply(&unmade), Err(Refusal::Conflict(Conflict::NotInitialized)));
}
