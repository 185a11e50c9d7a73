//! Unreadable tables, and the state after they were given up (rule Y4).

use crate::{DEADLINE, World, is_conflict, killed, open, options, put};
use bytes::Bytes;
use siltstone::repair::{GiveUpReport, RepairOptions, give_up_table};
use siltstone::{CheckpointName, CheckpointOptions, Env, Error, ErrorKind, Options, Result, admin};
use siltstone_base::envelope::ENVELOPE_BYTES;
use siltstone_base::{ObjectName, SstDescriptor, SstId};
use siltstone_manifest::Manifest;
use siltstone_tests::faults::CrashPoint;
use siltstone_tests::gc;
use siltstone_tests::scans::keys;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The damaged part of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The envelope at the front, which no reader reads.
    Header,
    Block,
    /// Filter, index, properties or footer.
    Tail,
    CutShort,
    Emptied,
    Missing,
}

impl Place {
    const EVERY: [Place; 6] =
        [Place::Header, Place::Block, Place::Tail, Place::CutShort, Place::Emptied, Place::Missing];
}

fn small_blocks() -> Options {
    Options { block_bytes: 256, embedded_compactor: false, ..options() }
}

async fn give_up(env: &Env, table: SstId, dry_run: bool) -> Result<GiveUpReport> {
    let how = RepairOptions { dry_run, take_over: false };
    give_up_table(env, table, how, &small_blocks()).await
}

/// The value of a key: the number of the write, in a text; all of them fill more than a block.
fn text(key: &str, turn: u32) -> Vec<u8> {
    format!("{key} of turn {turn} {}", "x".repeat(60)).into_bytes()
}

/// Three layers and a log: sixteen rows, of which the second layer deletes and overwrites some, and
/// the third one more; and a row only in the log.
fn lived(world: &World) {
    world.run("first", |env| async move {
        let how = siltstone::OpenOptions { options: small_blocks(), ..Default::default() };
        let db = siltstone::Database::open(env, how).await?;
        let write = |row: u32, turn: u32| {
            let key = format!("row{row:03}");
            db.put(key.as_bytes(), &text(&key, turn), None).map(drop)
        };
        (0..16).try_for_each(|row| write(row, 0))?;
        db.compact().await?;
        drop(db.delete(b"row002")?);
        drop(db.delete(b"row009")?);
        (4..8).try_for_each(|row| write(row, 1))?;
        db.flush_memtable().await?;
        drop(db.delete(b"row005")?);
        write(12, 2)?;
        db.flush_memtable().await?;
        put(&db, "ylog").await?;
        std::mem::forget(db);
        Ok(())
    });
}

fn before() -> Vec<String> {
    let gone = [2, 5, 9];
    let rows = (0..16).filter(|row| !gone.contains(row)).map(|row| format!("row{row:03}"));
    rows.chain(["ylog".to_owned()]).collect()
}

impl World {
    fn state(&self) -> Arc<Manifest> {
        self.run("looker", |env| async move { Ok(gc::newest(&env).await?.expect("a database")) })
    }

    fn harm_table(&self, table: &SstDescriptor, place: Place) {
        let (name, objects) = (table.name(), self.objects());
        let whole = objects.get(&name).expect("it is there");
        let flipped = |at: u64| {
            let mut bytes = whole.to_vec();
            bytes[at as usize] ^= 4;
            Bytes::from(bytes)
        };
        let harmed = match place {
            Place::Header => flipped(20),
            Place::Block => flipped((ENVELOPE_BYTES as u64 + table.tail_offset) / 2),
            Place::Tail => flipped((table.tail_offset + table.object_bytes) / 2),
            Place::CutShort => whole.slice(..whole.len() * 2 / 3),
            Place::Emptied => Bytes::new(),
            Place::Missing => {
                self.bucket.remove(name);
                return;
            }
        };
        self.bucket.insert(name, harmed);
    }

    fn tells(&self, table: SstId) -> GiveUpReport {
        self.run("teller", |env| async move { give_up(&env, table, true).await })
    }

    fn gives_up(&self, table: SstId) -> GiveUpReport {
        self.run("mender", |env| async move { give_up(&env, table, false).await })
    }

    /// The keys, each with the newest value that it ever had, or none.
    fn reads(&self) -> Vec<String> {
        self.run("reader", |env| async move {
            let db = open(&env, false).await?;
            let found = keys(&db).await?;
            for key in found.iter().filter(|key| key.starts_with("row")) {
                let turn = match key.as_str() {
                    "row012" => 2,
                    "row004" | "row005" | "row006" | "row007" => 1,
                    _ => 0,
                };
                let value = db.get(key.as_bytes())?.wait().await?;
                assert_eq!(value.as_deref(), Some(text(key, turn).as_slice()), "{key}");
            }
            db.close().await?;
            Ok(found)
        })
    }
}

/// Rows that a table may have contained are gone, nothing returns that it had deleted or
/// overwritten, and rows of newer layers and the log stay.
#[test]
fn every_table_harmed_at_every_place() {
    let (mut given_up, mut kept) = (0, 0);
    for at in 0.. {
        let world = World::new(1);
        lived(&world);
        let state = world.state();
        let Some((layer, table)) =
            state.layers().flat_map(|(layer, all)| all.iter().map(move |one| (layer, one))).nth(at)
        else {
            break;
        };
        let newer: BTreeSet<String> = match at {
            0 => BTreeSet::new(),
            1 => BTreeSet::from(["row012".to_owned()]),
            _ => [4, 6, 7, 12].map(|row| format!("row{row:03}")).into(),
        };
        for place in Place::EVERY {
            let world = World::new(1);
            lived(&world);
            assert_eq!(world.reads(), before());
            let table = table.clone();
            // Opening has moved the log into tables: older tables are unchanged.
            assert!(world.state().tables().any(|one| one.id == table.id));
            world.harm_table(&table, place);
            if place == Place::Header {
                kept += 1;
                mended_by_compaction(&world, table.id);
                continue;
            }
            given_up += 1;
            let told = world.tells(table.id);
            assert!(!told.done && !told.damage.is_empty(), "{told:?}");
            assert_eq!(told.layers, [layer.to_string()]);
            assert_eq!((&told.first_key, &told.last_key), (&table.first_key, &table.last_key));
            assert_eq!(told.rows_lost, table.entries - table.tombstones);
            assert_eq!(told.rows_hidden > 0, at < 2, "{told:?}");
            let done = world.gives_up(table.id);
            assert!(done.done && done.manifest_id > told.manifest_id, "{done:?}");
            let copy = |name: &ObjectName| matches!(name, ObjectName::DamagedTable(..));
            let copies = world.objects().keys().filter(|name| copy(name)).count();
            assert_eq!(copies, usize::from(place != Place::Missing));
            assert_eq!(done.aside.is_some(), place != Place::Missing);
            let (first, last) = (&*table.first_key, &*table.last_key);
            let lost = |key: &String| {
                (first..=last).contains(&key.as_bytes()) && !newer.contains(key.as_str())
            };
            let expected: Vec<String> = before().into_iter().filter(|key| !lost(key)).collect();
            assert_eq!(world.reads(), expected, "{layer} {place:?}");
            world.is_sound();
            world.goes_on_with(&expected);
        }
    }
    assert_eq!((given_up, kept), (15, 3));
}

/// All of it can be read: compaction writes it again, and nothing is lost.
fn mended_by_compaction(world: &World, table: SstId) {
    let refused = world.try_run("mender", |env| async move { give_up(&env, table, false).await });
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("compact"), "{error}");
    world.goes_on_with(&before());
}

#[test]
fn readable_and_absent_tables_are_refused() {
    let world = World::new(2);
    lived(&world);
    for table in world.state().tables() {
        let id = table.id;
        is_conflict(world.try_run("mender", |env| async move { give_up(&env, id, false).await }));
        is_conflict(world.try_run("teller", |env| async move { give_up(&env, id, true).await }));
    }
    let never = world.try_run("m", |env| async move { give_up(&env, SstId(7), false).await });
    assert_eq!(never.unwrap_err().kind(), ErrorKind::NotFound);
    let nowhere = World::new(3);
    let nothing = nowhere.try_run("m", |env| async move { give_up(&env, SstId(7), false).await });
    assert_eq!(nothing.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(world.reads(), before());
}

/// Checkpoints that contain it are removed with it; others stay, and can be read. A clone's pin
/// stays.
#[test]
fn checkpoints_that_hold_it_go() {
    let world = World::new(4);
    lived(&world);
    let (first, last) = world.run("keeper", |env| async move {
        let named = |name: &str| CheckpointOptions {
            name: Some(name.to_owned()),
            ..CheckpointOptions::default()
        };
        let first = admin::create_checkpoint(&env, &named("holds it"), DEADLINE).await?;
        let db = open(&env, false).await?;
        db.compact().await?;
        put(&db, "zz").await?;
        db.flush_memtable().await?;
        db.close().await?;
        let last = admin::create_checkpoint(&env, &named("too"), DEADLINE).await?;
        Ok((first, last))
    });
    let state = world.state();
    let lost = state.tables().find(|one| one.covers(b"zz")).expect("its own table").clone();
    world.harm_table(&lost, Place::Block);
    let told = world.tells(lost.id);
    assert_eq!(told.checkpoints_dropped, [last.id]);
    assert_eq!(told.clones, []);
    world.gives_up(lost.id);
    let left =
        world.run("lister", |env| async move { admin::list_checkpoints(&env, DEADLINE).await });
    assert_eq!(left.iter().map(|one| one.id).collect::<Vec<_>>(), [first.id]);
    let at = CheckpointName::Id(first.id);
    world.run("restorer", |env| async move { admin::restore(&env, &at, &options()).await });
    assert_eq!(world.reads(), before());
    world.is_sound();
}

/// The claim fences an open writer, which acknowledges nothing afterwards.
#[test]
fn a_live_writer_is_fenced() {
    let world = World::new(5);
    lived(&world);
    let (living, env) = world.process("living");
    let db = world.sim.block_on(living, async move {
        let db = open(&env, false).await?;
        put(&db, "ymine").await?;
        Ok::<_, Error>(db)
    });
    let db = db.expect("it ends").expect("a healthy store");
    let lost = world.state().runs.last().expect("a run").tables[0].clone();
    world.harm_table(&lost, Place::Tail);
    world.gives_up(lost.id);
    let late = world.sim.block_on(living, async move { put(&db, "ylate").await });
    assert_eq!(late.expect("it ends").unwrap_err().kind(), ErrorKind::Fenced);
    let expected = ["row004", "row006", "row007", "row012", "ylog", "ymine"];
    assert_eq!(world.reads(), expected);
    world.is_sound();
}

/// Killed before, after and during every request: it is unchanged, or done, and can be repeated.
#[test]
fn a_giving_up_that_dies_is_done_again() {
    let points = [CrashPoint::Before, CrashPoint::AnswerLost, CrashPoint::After];
    let (mut crashes, mut stood) = (0, [0, 0]);
    for operation in 1.. {
        for point in points {
            let world = World::new(operation);
            lived(&world);
            let state = world.state();
            let lost = state.l0[1].tables[0].clone();
            world.harm_table(&lost, Place::Tail);
            let (dying, env) = world.process("dying");
            world.bucket.crash_at(dying, operation, point);
            let id = lost.id;
            let ended = world.sim.block_on(dying, async move { give_up(&env, id, false).await });
            let whole = killed(ended);
            if whole.is_none() {
                crashes += 1;
                world.sim.kill(dying);
                let named = world.state().tables().any(|one| one.id == id);
                stood[usize::from(!named)] += 1;
                if named {
                    world.gives_up(id);
                }
            }
            // The second layer reaches from row002 to row009; row005 was deleted above it.
            let lost: Vec<String> = (2..10).map(|row| format!("row{row:03}")).collect();
            let expected: Vec<String> =
                before().into_iter().filter(|key| !lost.contains(key)).collect();
            assert_eq!(world.reads(), expected, "{operation} {point:?}");
            if operation % 4 == 0 || whole.is_some() {
                world.is_sound();
                world.goes_on_with(&expected);
            }
            // A request that was abandoned, as in a read-ahead, has no end at which to die.
            if whole.is_some() && point == CrashPoint::Before {
                println!("{crashes} crashes: {} before, {} after", stood[0], stood[1]);
                assert!(crashes > 30 && stood.iter().all(|count| *count > 0));
                return;
            }
        }
    }
}
