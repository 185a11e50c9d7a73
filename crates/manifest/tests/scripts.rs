//! Runs the scripts of `testdata`: a tree of tables, which plans are valid in it, which plans the
//! schedulers make, and the work of a plan. `REWRITE=1` replaces the expected output with the
//! actual one.
//!
//! | command | reads | prints |
//! | --- | --- | --- |
//! | `tree` | layers, newest first | their number |
//! | `valid` | plans, one per line | whether each may run, or the reason why not |
//! | `running` | plans, one per line | the jobs that run from now on |
//! | `plans` | options of compaction, as arguments | the scheduler's plans |
//! | `work` | a plan | dropped, moved and merged tables |
//! | `major`, `range` | | the plan for a manual compaction |
//!
//! A layer is written `L0:2 a-f bytes=100`, or `7 a-c #71` for one table of a run, or, for several
//! layers, `L0:9..1 a-z`. Table `#n` is the one with that id; without an id, the table of L0 layer
//! n is `#n`, and that of run n `#1000 + n`. A table has 100 bytes and 10 rows unless the line says
//! otherwise.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

mod support;

use bytes::Bytes;
use datadriven::{DataDrivenError, TestCase, walk};
use siltstone_base::{Cover, JobId, RangeDelete, Seq, SstDescriptor, SstId, UnixMillis};
use siltstone_manifest::compaction::options::OptionValue;
use siltstone_manifest::compaction::{
    CompactionOptions, Facts, Group, Layer, Plan, Running, TableSizing, View, Work, manual,
    validate,
};
use siltstone_manifest::{L0Entry, Manifest, SortedRun};
use std::fmt::Write;

#[test]
fn valid() {
    run("valid");
}

#[test]
fn tiered() {
    run("tiered");
}

#[test]
fn lazy_leveled() {
    run("lazy_leveled");
}

#[test]
fn time_window() {
    run("time_window");
}

#[test]
fn work() {
    run("work");
}

#[test]
fn by_hand() {
    run("by_hand");
}

fn run(script: &str) {
    let mut cases = 0;
    walk(&format!("testdata/{script}.txt"), |file| {
        let mut world = World { state: support::empty(), running: Vec::new() };
        file.run(|case| {
            cases += 1;
            let printed = world.carry_out(case)?;
            case.expect_empty()?;
            Ok::<_, DataDrivenError>(match printed.is_empty() {
                true => "nothing\n".to_owned(),
                false => world.with_short_names(&printed),
            })
        });
    });
    assert!(cases > 0, "testdata/{script}.txt is not there, or holds no case");
}

/// The input of a script's commands.
struct World {
    state: Manifest,
    running: Vec<Running>,
}

impl World {
    fn carry_out(&mut self, case: &mut TestCase) -> Result<String, DataDrivenError> {
        let lines = case.input.clone();
        let plans = || lines.lines().map(plan);
        match case.directive.as_str() {
            "tree" => self.plant(case),
            "valid" => plans().map(|plan| Ok(self.valid(&plan?))).collect(),
            "running" => plans().map(|plan| Ok(self.start(&plan?))).collect(),
            "plans" => self.wanted(case),
            "work" => {
                let mut plan = plan(lines.trim_end())?;
                plan.thorough = case.take_flag("thorough")?;
                plan.cut_prefix_bytes = case.try_take_arg("cut")?.unwrap_or(0);
                self.work(&plan, &facts(case)?)
            }
            "major" => Ok(printed(manual::major(&self.state, now(case)?))),
            "range" => {
                let (from, to) = (case.try_take_arg("from")?, case.try_take_arg("to")?);
                let bound = |key: Option<String>| key.map(String::into_bytes);
                let (from, to, now) = (bound(from), bound(to), now(case)?);
                Ok(printed(manual::range(&self.state, from.as_deref(), to.as_deref(), now)))
            }
            other => Err(DataDrivenError::Parse(format!("no command is called {other}"))),
        }
    }

    fn plant(&mut self, case: &mut TestCase) -> Result<String, DataDrivenError> {
        self.state = support::empty();
        self.running.clear();
        for line in case.input.lines() {
            for (layer, table) in tables(line)? {
                self.add(layer, table);
            }
        }
        self.state.flushed_seq = Seq(case.try_take_arg("flushed")?.unwrap_or(0));
        self.state.floor = Seq(case.try_take_arg("floor")?.unwrap_or(0));
        let (l0, runs) = (self.state.l0.len(), self.state.runs.len());
        Ok(format!("layers of L0: {l0}, runs: {runs}, tables: {}\n", self.state.tables().count()))
    }

    fn add(&mut self, layer: Layer, table: SstDescriptor) {
        match layer {
            Layer::L0(order) => match self.state.l0.last_mut() {
                Some(entry) if entry.order == order => entry.tables.push(table),
                _ => self.state.l0.push(L0Entry { order, tables: vec![table] }),
            },
            Layer::Run(id) => match self.state.runs.last_mut() {
                Some(run) if run.id == id => run.tables.push(table),
                _ => self.state.runs.push(SortedRun { id, tables: vec![table] }),
            },
        }
    }

    fn valid(&self, plan: &Plan) -> String {
        match validate(&self.state, &self.running, plan) {
            Ok(_) => format!("{plan}: valid\n"),
            Err(refusal) => format!("{plan}: {refusal}\n"),
        }
    }

    fn start(&mut self, plan: &Plan) -> String {
        match validate(&self.state, &self.running, plan) {
            Ok(inputs) => {
                let job = JobId(1 + self.running.len() as u128);
                let ids = |tables: Vec<SstDescriptor>| tables.iter().map(|one| one.id).collect();
                let inputs = inputs.into_iter().map(|input| (input.layer, ids(input.tables)));
                let inputs = inputs.collect();
                self.running.push(Running { job, inputs, destination: plan.destination });
                format!("job {}: {plan}\n", job.0)
            }
            Err(refusal) => format!("{plan}: {refusal}\n"),
        }
    }

    fn wanted(&self, case: &mut TestCase) -> Result<String, DataDrivenError> {
        let mut options = CompactionOptions::default();
        let now = now(case)?;
        // A value that depends on the kind of store is not an option.
        options.own_space_amplification = case.try_take_arg("own_space_amplification")?;
        let l0_sst_size_bytes = case.try_take_arg("l0_sst_size_bytes")?.unwrap_or(64 << 20);
        for (name, values) in std::mem::take(&mut case.args) {
            let set = options.set(&name, &OptionValue::Text(values.join("")));
            set.map_err(|error| DataDrivenError::Argument(error.to_string()))?;
        }
        let scheduler = options.scheduler(l0_sst_size_bytes);
        let scheduler = scheduler.map_err(|error| DataDrivenError::Argument(error.to_string()))?;
        let max_compactions = options.max_compactions as usize;
        let view = View { state: &self.state, running: &self.running, now, max_compactions };
        Ok(scheduler.plans(&view).into_iter().map(|plan| printed(Some(plan))).collect())
    }

    /// Tables below 10 bytes are small, and 1,000 is the target size.
    fn work(&self, plan: &Plan, facts: &Facts) -> Result<String, DataDrivenError> {
        let shaping = TableSizing { target_sst_bytes: 1000, min_move_bytes: 10 };
        let work = match Work::of(&self.state, &self.running, plan, facts, shaping) {
            Ok(work) => work,
            Err(refusal) => return Ok(format!("{refusal}\n")),
        };
        let mut out = String::new();
        for (what, ids) in [
            ("drop", work.drops.clone()),
            ("move", work.moves.iter().map(|table| table.id).collect()),
        ] {
            if !ids.is_empty() {
                let ids: Vec<String> = ids.iter().map(SstId::to_string).collect();
                let _ = writeln!(out, "{what} {}", ids.join(" "));
            }
        }
        out.extend(work.groups.iter().map(group));
        Ok(out)
    }

    /// Replaces the 26 letters of a table's name by `#71`, and a job's id by a number.
    fn with_short_names(&self, printed: &str) -> String {
        let short = |text: String, table: &SstDescriptor| {
            text.replace(&table.id.to_string(), &format!("#{}", table.id.get()))
        };
        let numbered = |text: String, running: &Running| {
            text.replace(&format!("job {}", running.job), &format!("job {}", running.job.0))
        };
        let text = self.running.iter().fold(printed.to_owned(), numbered);
        self.state.tables().fold(text, short)
    }
}

// --- The text of a script ------------------------------------------------------------------------

/// The tables of one line: one table, or one per layer.
fn tables(line: &str) -> Result<Vec<(Layer, SstDescriptor)>, DataDrivenError> {
    let wrong = || DataDrivenError::Parse(format!("not a table: {line}"));
    let mut words = line.split_whitespace();
    let layers = words.next().ok_or_else(wrong)?;
    let (first, last) = words.next().and_then(|keys| keys.split_once('-')).ok_or_else(wrong)?;
    let (is_l0, layers) = match layers.strip_prefix("L0:") {
        Some(orders) => (true, orders),
        None => (false, layers),
    };
    let (newest, oldest) = layers.split_once("..").unwrap_or((layers, layers));
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    let fields: Vec<&str> = words.collect();
    let each = |layer: u32| {
        let (layer, id) = match is_l0 {
            true => (Layer::L0(layer.into()), u128::from(layer)),
            false => (Layer::Run(layer), 1000 + u128::from(layer)),
        };
        let mut table = SstDescriptor {
            object_bytes: 100,
            entries: 10,
            tombstones: 0,
            ..support::table(id, [first.as_bytes(), last.as_bytes()], [1, 1])
        };
        for field in &fields {
            set(&mut table, field).ok_or_else(wrong)?;
        }
        Ok((layer, table))
    };
    (number(oldest)?..=number(newest)?).rev().map(each).collect()
}

fn set(table: &mut SstDescriptor, field: &str) -> Option<()> {
    if let Some(id) = field.strip_prefix('#') {
        table.id = SstId(id.parse().ok()?);
        return Some(());
    }
    let (name, value) = field.split_once('=')?;
    let value: u64 = value.parse().ok()?;
    match name {
        "bytes" => table.object_bytes = value,
        "rows" => table.entries = value,
        "tombstones" => table.tombstones = value,
        "range_deletes" => table.range_deletes = Some((value, value)),
        "newest" => table.max_seq = Seq(value),
        "expires" => {
            (table.min_expiry, table.max_expiry) =
                (Some(UnixMillis(value)), Some(UnixMillis(value)));
        }
        "some_expire" => table.min_expiry = Some(UnixMillis(value)),
        _ => return None,
    }
    Some(())
}

/// A plan's text, with `#71` for a table's name.
fn plan(line: &str) -> Result<Plan, DataDrivenError> {
    let mut parts = line.split('#');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.find(|each: char| !each.is_ascii_digit()).unwrap_or(part.len());
        let (id, rest) = part.split_at(digits);
        let id = id.parse().map_err(|_| DataDrivenError::Parse(format!("not an id: {id}")))?;
        let _ = write!(text, "{}{rest}", SstId(id));
    }
    text.parse().map_err(|error| DataDrivenError::Parse(format!("{error}")))
}

fn now(case: &mut TestCase) -> Result<UnixMillis, DataDrivenError> {
    Ok(UnixMillis(case.try_take_arg("now")?.unwrap_or(0)))
}

/// `deletes=(a,h,9)`: range deletes that every reader sees, by start, end and number.
fn facts(case: &mut TestCase) -> Result<Facts, DataDrivenError> {
    let deletes: Vec<String> = case.try_take_args("deletes")?.unwrap_or_default();
    let range = |one: &[String]| {
        let seq = one[2].parse().map(Seq).unwrap();
        RangeDelete::new(one[0].as_bytes(), one[1].as_bytes(), seq)
    };
    Ok(Facts {
        now: now(case)?,
        keep_from: case.try_take_arg::<String>("keep_from")?.map(Bytes::from),
        deleted: Cover::of(deletes.chunks(3).map(range).collect()),
    })
}

// --- Output --------------------------------------------------------------------------------------

fn printed(plan: Option<Plan>) -> String {
    let Some(plan) = plan else { return String::new() };
    let mut line = format!("{plan} ({})", plan.reason.name());
    if plan.thorough {
        line += ", thorough";
    }
    if plan.cut_prefix_bytes > 0 {
        let _ = write!(line, ", cut by {} bytes", plan.cut_prefix_bytes);
    }
    line + "\n"
}

fn group(group: &Group) -> String {
    let key = |key: &Bytes| String::from_utf8_lossy(key).into_owned();
    let end = group.end.as_ref().map_or("the end".to_owned(), key);
    let ids: Vec<String> = group.tables.iter().map(|table| table.id.to_string()).collect();
    let bottom = if group.bottom { ", at the bottom" } else { "" };
    format!("merge {} to {end}: {}{bottom}\n", key(&group.start), ids.join(" "))
}
