//! The initial state of a clone, and its independence from the parent.

use super::*;
use siltstone::store::counting::count;
use siltstone::verify::verify;
use siltstone::{CheckpointName, CheckpointOptions, CheckpointOwner, Progress};
use siltstone_base::name::prefix;
use siltstone_base::sst::SstLocation;
use siltstone_base::{ErrorKind, ObjectName, SstDescriptor, SstId};
use std::time::Instant;

async fn tables_in(env: &Env) -> usize {
    env.store.list(prefix::COMPACTED, None).await.unwrap().len()
}

#[test]
fn a_clone_has_what_is_durable_and_copies_no_table() {
    run("whole", async |places| {
        let (parent, env) = (places.parent("parent").await, places.env("clone"));
        clone(&env, &parent).await.unwrap();
        assert_eq!(read(&env).await.unwrap(), parents_rows());
        let (made, from) = (manifest(&env).await, manifest(&parent).await);
        assert!(made.initialized && made.writer_epoch.is_none());
        assert!(made.database != from.database && made.flushed_seq > from.flushed_seq);
        let log = made.tables().filter(|table| table.location == SstLocation::Own).count();
        assert_eq!(tables_in(&env).await, log, "rows of the log alone were written");
        assert_eq!(made.tables().count(), from.tables().count() + log);
        let pin = from.checkpoint(made.ancestors[0].checkpoint).unwrap();
        assert_eq!(pin.owner, CheckpointOwner::Clone(made.database));
        assert!(pin.expires_at.is_none() && !pin.pins_any_wal());

        // Each is changed independently.
        let (ours, theirs) = (open(&env).await.unwrap(), open(&parent).await.unwrap());
        assert_eq!(all(&ours).await.unwrap(), parents_rows());
        fill(&ours, 0..5, 8).await;
        fill(&theirs, 5..10, 9).await;
        ours.flush_memtable().await.unwrap();
        let changed = |rows: std::ops::Range<usize>, round| {
            let mut all = parents_rows();
            all[rows].iter_mut().for_each(|row| row.1 = value(round));
            all
        };
        assert_eq!(all(&ours).await.unwrap(), changed(0..5, 8));
        assert_eq!(all(&theirs).await.unwrap(), changed(5..10, 9));
        ours.close().await.unwrap();
        theirs.close().await.unwrap();
        for env in [&env, &parent] {
            let report = verify(env, Duration::from_secs(9), &Progress::default()).await.unwrap();
            assert_eq!(report.problems, []);
            assert!(report.tables >= 3);
        }
    });
}

#[test]
fn a_checkpoint_of_the_parent_is_where_it_begins() {
    run("checkpoint", async |places| {
        let parent = places.parent("parent").await;
        let how = CheckpointOptions { name: Some("then".to_owned()), ..Default::default() };
        let made = admin::create_checkpoint(&parent, &how, Duration::from_secs(9)).await.unwrap();
        let db = open(&parent).await.unwrap();
        fill(&db, 0..ROWS, 7).await;
        db.close().await.unwrap();
        rewrite(&parent).await;
        for (name, checkpoint) in [
            ("by name", CheckpointName::Name("then".to_owned())),
            ("by id", CheckpointName::Id(made.id)),
        ] {
            let env = places.env(name);
            let asked = CloneParent { checkpoint: Some(checkpoint), ..of(&parent) };
            admin::clone(&env, &[asked], &options()).await.unwrap();
            assert_eq!(read(&env).await.unwrap(), parents_rows(), "{name}");
        }
    });
}

/// Resolution is flat: each clone has an entry, and a pin, for every database that contains one of
/// its tables.
#[test]
fn a_clone_of_a_clone_of_a_clone() {
    run("generations", async |places| {
        let mut parent = places.parent("0").await;
        let mut expected = parents_rows();
        for generation in 1..4u8 {
            let env = places.env(&generation.to_string());
            clone(&env, &parent).await.unwrap();
            let db = open(&env).await.unwrap();
            let row = usize::from(generation);
            fill(&db, row as u32..row as u32 + 1, 10 + generation).await;
            expected[row].1 = value(10 + generation);
            db.flush_memtable().await.unwrap();
            assert_eq!(all(&db).await.unwrap(), expected);
            db.close().await.unwrap();
            assert_eq!(manifest(&env).await.ancestors.len(), usize::from(generation));
            parent = env;
        }
        // The last clone has its tables, independent of changes to those in between.
        for name in ["0", "1", "2"] {
            let env = places.env(name);
            let db = open(&env).await.unwrap();
            forget(&db, 0..ROWS);
            db.close().await.unwrap();
            rewrite(&env).await;
        }
        assert_eq!(read(&parent).await.unwrap(), expected);
        rewrite(&parent).await;
        assert_eq!(read(&parent).await.unwrap(), expected);
        assert_eq!(manifest(&parent).await.ancestors, []);
    });
}

/// A database with one run of this many tables, none of which is read.
async fn wide(places: &Places, name: &str, tables: u32) -> Env {
    let env = places.env(name);
    let db = open(&env).await.unwrap();
    fill(&db, 0..ROWS, 1).await;
    db.flush_memtable().await.unwrap();
    db.close().await.unwrap();
    compact(&env).await.unwrap();
    let newest = manifest(&env).await;
    let mut next = Manifest::clone(&newest);
    (next.id, next.l0) = (newest.next_id(), Vec::new());
    let some = next.runs[0].tables[0].clone();
    let many = (0..tables).map(|n| SstDescriptor {
        id: SstId(u128::from(n) + 1),
        first_key: key(10_000 + n).into(),
        last_key: key(10_000 + n).into(),
        ..some.clone()
    });
    next.runs[0].tables = many.collect();
    next.runs[0].tables.sort_by(|left, right| left.first_key.cmp(&right.first_key));
    let (object, attempt) = (siltstone_base::ObjectId(1), siltstone_base::AttemptId(1));
    let bytes = next.encode(object, attempt).unwrap();
    let name = ObjectName::Manifest(next.id);
    assert!(matches!(
        env.store.put_if_absent(name, bytes).await,
        siltstone::store::PutAnswer::Created
    ));
    env
}

#[test]
fn requests_do_not_grow_with_the_tables() {
    run("wide", async |places| {
        let mut found = Vec::new();
        for tables in [10, 10_000] {
            let (parent, parents) = count(wide(&places, &format!("parent {tables}"), tables).await);
            let (env, clones) = count(places.env(&format!("clone {tables}")));
            let began = Instant::now();
            clone(&env, &parent).await.unwrap();
            let took = began.elapsed();
            assert!(took < Duration::from_secs(10), "{tables} tables took {took:?}");
            assert_eq!(manifest(&env).await.runs[0].tables.len(), tables as usize);
            found.push(total(parents.totals()) + total(clones.totals()));
            println!("{tables} tables: {} requests, {took:?}", found[found.len() - 1]);
        }
        assert_eq!(found[0], found[1]);
        assert!(found[0] < 200, "{found:?}");
    });
}

/// Nor does a restore depend on them, because it reads no table either: a listing shows them.
#[test]
fn requests_of_a_restore_do_not_grow_either() {
    run("wide restore", async |places| {
        let mut found = Vec::new();
        for tables in [10, 10_000] {
            let env = wide(&places, &format!("restored {tables}"), tables).await;
            for table in manifest(&env).await.tables() {
                let bytes = vec![0; table.object_bytes as usize];
                env.store.put_if_absent(table.name(), bytes.into()).await;
            }
            let (how, limit) = (CheckpointOptions::default(), Duration::from_secs(10));
            let made = admin::create_checkpoint(&env, &how, limit).await.unwrap();
            let (env, requests) = count(env);
            admin::restore(&env, &made.id.into(), &options()).await.unwrap();
            let restored = manifest(&env).await;
            assert_eq!(restored.timelines.last().unwrap().manifest_id, restored.id);
            assert_eq!(restored.runs[0].tables.len(), tables as usize);
            found.push(total(requests.totals()));
        }
        println!("{found:?} requests of a restore");
        assert_eq!(found[0], found[1]);
        assert!(found[0] < 100, "{found:?}");
    });
}

/// K7: two halves of one parent, compacted separately, combine to its rows.
#[test]
fn a_clone_of_a_range_has_what_lies_in_it() {
    run("ranges", async |places| {
        let parent = places.parent("parent").await;
        let rows = parents_rows();
        let cut = rows[rows.len() / 2].0.clone();
        let mut seen = Vec::new();
        for (name, start, end) in [("left", None, Some(&cut)), ("right", Some(&cut), None)] {
            let env = places.env(name);
            let part = CloneParent { start: start.cloned(), end: end.cloned(), ..of(&parent) };
            admin::clone(&env, std::slice::from_ref(&part), &options()).await.unwrap();
            let other = CloneParent { start: None, end: None, ..part };
            let refused = admin::clone(&env, &[other], &options()).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Conflict);
            let before = read(&env).await.unwrap();
            compact(&env).await.unwrap();
            assert_eq!(read(&env).await.unwrap(), before);
            assert!(manifest(&env).await.tables().all(|table| !table.is_cut()));
            seen.extend(before);
        }
        assert_eq!(seen, rows);
    });
}
