//! Runs the scripts of `testdata`, with input and expected output in one file: the runs of RFC 0005
//! that break a store without the rules. `REWRITE=1` replaces the expected output with the actual
//! one.
//!
//! A case is a command with its arguments, entries, `----`, and the output. An entry is written
//! `key number kind value until time`, with the fields of its kind; for kind `delete-range` the
//! value is the end of the range. An empty line begins an older source.
//!
//! | command | prints |
//! | --- | --- |
//! | `retain` | the entries that a flush or compaction of the sources keeps |
//! | `scan` | the result of a reader, the same in both directions |
//! | `get key=k` | the value of the key |
//! | `merge` | the entries in order; with `backward` in the reverse |
//!
//! Commands that use cursors are repeated with cursors that need blocks at random.

use super::deleting::Source;
use crate::testing::{Row, Rows, collect, concatenate, driven, sorted};
use crate::{
    Covered, Direction, LookupStep, Merge, ReadView, Resolve, Retain, Retention, Visible,
    VisibleDeleteSet, VisibleDeletes,
};
use datadriven::{DataDrivenError, TestCase, walk};
use siltstone_base::{
    Cover, Cursor, Kind, MergeOperator, RangeDelete, Result, Seq, Step, UnixMillis,
};
use std::fmt::Write;
use std::sync::Arc;

/// Number of moves of 8 that need a block.
const LACKS: [u64; 3] = [0, 2, 6];

#[test]
fn retention() {
    run("retention");
}

#[test]
fn reads() {
    run("reads");
}

#[test]
fn range_deletes() {
    run("range_deletes");
}

#[test]
fn merges() {
    run("merges");
}

fn run(script: &str) {
    let mut cases = 0;
    walk(&format!("testdata/{script}.txt"), |file| {
        file.run(|case| {
            cases += 1;
            carried_out(case)
        });
    });
    assert!(cases > 0, "testdata/{script}.txt is not there, or holds no case");
}

fn carried_out(case: &mut TestCase) -> Result<String, DataDrivenError> {
    let sources = sources(&case.input)?;
    let printed = match case.directive.as_str() {
        "retain" => {
            let retention = retention_of(case, &sources)?;
            same(|lacks| retained(&sources, &retention, lacks))
        }
        "scan" => {
            let (view, start, end) =
                (view_of(case)?, case.try_take_arg("from")?, case.try_take_arg("to")?);
            same(|lacks| scanned(&sources, &view, &bounds(&start, &end), lacks))
        }
        "get" => {
            let (view, key) = (view_of(case)?, case.take_arg::<String>("key")?);
            got(&sources, key.as_bytes(), &view)
        }
        "merge" => {
            let direction = match case.take_flag("backward")? {
                true => Direction::Backward,
                false => Direction::Forward,
            };
            same(|lacks| merged(&sources, direction, lacks))
        }
        other => return Err(DataDrivenError::Parse(format!("no command is called {other}"))),
    };
    case.expect_empty()?;
    Ok(if printed.is_empty() { "nothing\n".to_owned() } else { printed })
}

/// The output, which must be the same for every set of missing blocks.
fn same(print: impl Fn(u64) -> String) -> String {
    let [first, others @ ..] = LACKS.map(print);
    assert!(
        others.iter().all(|other| *other == first),
        "{first}or, with blocks lacking: {others:?}"
    );
    first
}

// --- The text of a script ------------------------------------------------------------------------

fn sources(text: &str) -> Result<Vec<Source>, DataDrivenError> {
    let parts = text.trim_end().split("\n\n");
    parts
        .map(|part| Ok(Source::of(&part.lines().map(row).collect::<Result<Vec<Row>, _>>()?)))
        .collect()
}

fn row(line: &str) -> Result<Row, DataDrivenError> {
    let wrong = || DataDrivenError::Parse(format!("not an entry: {line}"));
    let (line, until) = match line.split_once(" until ") {
        Some((line, until)) => (line, Some(UnixMillis(until.parse().map_err(|_| wrong())?))),
        None => (line, None),
    };
    let mut words = line.split(' ');
    let mut word = || words.next().map(str::to_owned);
    let (key, seq, kind) = (word().ok_or_else(wrong)?, word(), word());
    let kind = match kind.as_deref() {
        Some("put") => Kind::Put,
        Some("delete") => Kind::Delete,
        Some("merge") => Kind::Merge,
        Some("delete-range") => Kind::RangeDelete,
        _ => return Err(wrong()),
    };
    let seq = seq.and_then(|seq| seq.parse().ok()).ok_or_else(wrong)?;
    let value = word().unwrap_or_default().into_bytes();
    Ok(Row { key: key.into_bytes(), seq: Seq(seq), kind, expires_at: until, value })
}

fn operator_of(case: &mut TestCase) -> Result<Option<Arc<dyn MergeOperator>>, DataDrivenError> {
    match case.try_take_arg::<String>("operator")?.as_deref() {
        None => Ok(concatenate(true)),
        Some("none") => Ok(None),
        Some("needs-a-base") => Ok(concatenate(false)),
        Some(other) => Err(DataDrivenError::Argument(format!("no operator is called {other}"))),
    }
}

fn retention_of(case: &mut TestCase, sources: &[Source]) -> Result<Retention, DataDrivenError> {
    let snapshots: Vec<u64> = case.try_take_args("snapshots")?.unwrap_or_default();
    Ok(Retention {
        snapshot_bounds: snapshots.into_iter().map(Seq).collect(),
        floor: case.try_take_arg("floor")?.map(Seq),
        bottom: case.take_flag("bottom")?,
        now: UnixMillis(case.try_take_arg("now")?.unwrap_or(0)),
        operator: operator_of(case)?,
        range_deletes: sources.iter().flat_map(|source| source.ranges.clone()).collect(),
        zero_seqs: case.take_flag("zero_seqs")?,
    })
}

fn view_of(case: &mut TestCase) -> Result<ReadView, DataDrivenError> {
    let seq = case.try_take_arg("at")?.map_or(Seq::MAX, Seq);
    let now = UnixMillis(case.try_take_arg("now")?.unwrap_or(0));
    Ok(ReadView { seq, now, operator: operator_of(case)?, recorded_operator: None })
}

type Bounds = (Option<Vec<u8>>, Option<Vec<u8>>);

fn bounds(start: &Option<String>, end: &Option<String>) -> Bounds {
    let bound = |bound: &Option<String>| bound.clone().map(String::into_bytes);
    (bound(start), bound(end))
}

// --- Output --------------------------------------------------------------------------------------

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shown(row: &Row) -> String {
    let kind = match row.kind {
        Kind::Put => "put",
        Kind::Delete => "delete",
        Kind::Merge => "merge",
        Kind::RangeDelete => "delete-range",
    };
    let mut line = format!("{} {} {kind} {}", text(&row.key), row.seq.0, text(&row.value));
    if let Some(UnixMillis(at)) = row.expires_at {
        let _ = write!(line, " until {at}");
    }
    line.trim_end().to_owned() + "\n"
}

fn shown_range(range: &RangeDelete) -> String {
    format!("{} {} delete-range {}\n", text(&range.start), range.seq.0, text(&range.end))
}

fn retained(sources: &[Source], retention: &Retention, lacks: u64) -> String {
    let cursors = sources.iter().map(|source| Rows::lacking(source.rows.clone(), lacks, lacks));
    let merge = Merge::new(cursors.collect(), Direction::Forward);
    let mut retain = Retain::new(merge, retention.clone());
    let mut out: String = retain.range_deletes().iter().map(shown_range).collect();
    loop {
        match driven(|| retain.advance()) {
            Ok(Step::Ready) => out += &shown(&Row::of(retain.entry().expect("ready has an entry"))),
            Ok(_) => return out,
            Err(error) => return out + &format!("{:?}: {error}\n", error.kind()),
        }
    }
}

/// The result of a reader in forward direction; backward it is the same.
fn scanned(sources: &[Source], view: &ReadView, bounds: &Bounds, lacks: u64) -> String {
    let seen = sources.iter().map(|source| VisibleDeletes {
        cover: Arc::new(Cover::of(source.ranges.clone())),
        above: Seq::NONE,
        until: view.seq,
    });
    let cover = Arc::new(VisibleDeleteSet::new(seen.collect(), None, None));
    let pairs = |direction| {
        let covered = |source: &Source| {
            let rows = Rows::lacking(source.rows.clone(), lacks, lacks);
            Covered::new(rows, Arc::clone(&cover), source.newest().min(view.seq))
        };
        let merge = Merge::new(sources.iter().map(covered).collect(), direction);
        let (start, end) = bounds.clone();
        collect(Visible::new(merge, view.clone(), direction, start, end))
    };
    let mut backward = pairs(Direction::Backward);
    if let Ok(pairs) = &mut backward {
        pairs.reverse();
    }
    let print = |pairs: Result<Vec<(Vec<u8>, Vec<u8>)>>| match pairs {
        Ok(pairs) => pairs.iter().map(|(k, v)| format!("{} = {}\n", text(k), text(v))).collect(),
        Err(error) => format!("{:?}: {error}\n", error.kind()),
    };
    let forward: String = print(pairs(Direction::Forward));
    assert_eq!(forward, print(backward), "the result backward differs");
    forward
}

/// The sources from the newest on, until one determines the value of the key.
fn got(sources: &[Source], key: &[u8], view: &ReadView) -> String {
    let mut resolve = Resolve::new(key, view);
    let answer = (|| {
        for source in sources {
            resolve.delete_older_than(Cover::of(source.ranges.clone()).at(key, view.seq));
            for row in sorted(source.rows.clone()).iter().filter(|row| row.key == key) {
                match resolve.push(row.entry())? {
                    LookupStep::Value => return Ok(Some(row.value.clone())),
                    LookupStep::Absent => return Ok(None),
                    LookupStep::Folded => return resolve.finish(),
                    LookupStep::NeedOlder => {}
                }
            }
            if resolve.is_deleted_below() {
                break;
            }
        }
        resolve.finish()
    })();
    match answer {
        Ok(Some(value)) => format!("{}\n", text(&value)),
        Ok(None) => "absent\n".to_owned(),
        Err(error) => format!("{:?}: {error}\n", error.kind()),
    }
}

/// Each entry in order; its value in the script names its source.
fn merged(sources: &[Source], direction: Direction, lacks: u64) -> String {
    let cursors = sources.iter().map(|source| Rows::lacking(source.rows.clone(), lacks, lacks));
    let mut merge = Merge::new(cursors.collect(), direction);
    let mut out = String::new();
    let mut step = driven(|| match direction {
        Direction::Forward => merge.seek_first(),
        Direction::Backward => merge.seek_last(),
    });
    while matches!(step, Ok(Step::Ready)) {
        out += &shown(&Row::of(merge.entry().expect("ready has an entry")));
        step = driven(|| match direction {
            Direction::Forward => merge.next(),
            Direction::Backward => merge.prev(),
        });
    }
    out
}
