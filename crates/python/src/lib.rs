//! `siltstone._native`: the Python binding (RFC 0009). It converts arguments, calls the engine and
//! converts results. It must not make decisions of its own. Each file holds one method or one type.
//!
//! | file | holds |
//! | --- | --- |
//! | `process` | the runtime of this process, forks, subinterpreters, open handles |
//! | `shared` | one engine handle shared by several openers |
//! | `held` | engine handles that a forked child leaks instead of touching |
//! | `wait` | waiting without the interpreter lock, with checks for signals |
//! | `exit` | the hook that runs before the interpreter exits |
//! | `memory` | the allocator, which requests huge pages |
//! | `lines` | log lines of the engine, forwarded to `logging` |
//! | `error` | conversion of engine errors to Python exceptions |
//! | `bytes`, `duration`, `expiry`, `column` | arguments: byte strings, times, Arrow columns |
//! | `deletion`, `range` | arguments: keys to delete, ranges to scan |
//! | `source` | the reads that Database, Reader, Snapshot and Transaction share |
//! | `database`, `reader`, `snapshot`, `scan`, `stream`, `commit`, `batch` | one type each |
//! | `operator` | merge operators written in Python |
//! | `reached` | the position of a scan |
//! | `parts` | a long scan read by several threads |
//! | `transaction` | transactions and their savepoints |
//! | `open`, `get`, `get_many`, `put`, `write`, `size`, `admin`, `checkpoint` | one method each |
//! | `conditional`, `entry` | conditional writes and `pop`; `get_entry` |
//! | `compactor` | a compactor in this process, without a writer |
//! | `units` | a compaction split into units for other processes |
//! | `feed` | the change feed: committed writes as Arrow data |
//! | `ingest` | ingest jobs: begin, stage, close, request, abort |
//! | `part_writer` | the writer of one part of an ingest job |
//! | `load` | bulk load of Arrow data on all cores |
//! | `aio` | the compiled part of `siltstone.aio` |
//! | `lsm` | the parts of the engine, usable alone: `siltstone.lsm` |
//! | `keys` | tuples encoded as keys: `siltstone.keys` |
//! | `table` | rows with typed columns: `siltstone.table` |
//! | `shown` | text representations of handles |

#![forbid(unsafe_code)]

mod admin;
mod aio;
mod argument;
mod array;
mod batch;
mod bytes;
mod checkpoint;
mod clone;
mod column;
mod commit;
mod compactor;
mod conditional;
mod database;
mod deletion;
mod destroy;
mod duration;
mod entry;
mod error;
mod exit;
mod expiry;
mod export;
mod feed;
mod frames;
mod gc;
mod get;
mod get_many;
mod held;
mod history;
mod ingest;
mod keys;
mod lines;
mod load;
mod lsm;
mod memory;
mod nesting;
mod open;
mod operator;
mod options;
mod part_writer;
mod parts;
mod probe;
mod process;
mod put;
mod range;
mod reached;
mod reader;
mod repair;
mod scan;
mod shared;
mod shown;
mod size;
mod sliced;
mod snapshot;
mod source;
mod stats;
mod stream;
mod table;
mod transaction;
mod units;
mod wait;
mod warm;
mod write;

use pyo3::prelude::*;

/// The content of the module. `gil_used = false` declares that the module does not rely on the
/// interpreter lock for its consistency: every class is frozen, and all mutable state has its own
/// lock.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    process::refuse_subinterpreters(module.py())?;
    error::import_classes(module.py())?;
    module.add_class::<array::ArrowArray>()?;
    module.add_class::<batch::WriteBatch>()?;
    module.add_class::<commit::Commit>()?;
    module.add_class::<database::Database>()?;
    module.add_class::<part_writer::JobPartWriter>()?;
    module.add_class::<lsm::bloom::BloomFilter>()?;
    module.add_class::<lsm::memtable::MemTable>()?;
    module.add_class::<lsm::memtable::MemTableSnapshot>()?;
    module.add_class::<lsm::reader::SstReader>()?;
    module.add_class::<lsm::writer::SstWriter>()?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<scan::Scan>()?;
    module.add_class::<snapshot::Snapshot>()?;
    module.add_class::<stream::ArrowStream>()?;
    module.add_class::<transaction::Savepoint>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<units::UnitPlan>()?;
    module.add_function(wrap_pyfunction!(open::open, module)?)?;
    module.add_function(wrap_pyfunction!(open::open_reader, module)?)?;
    table::register(module)?;
    module.add_function(wrap_pyfunction!(lsm::merge::merge_sorted, module)?)?;
    keys::register(module)?;
    module.add_function(wrap_pyfunction!(operator::operator_names, module)?)?;
    module.add_function(wrap_pyfunction!(admin::manifest, module)?)?;
    module.add_function(wrap_pyfunction!(admin::verify, module)?)?;
    module.add_function(wrap_pyfunction!(clone::clone, module)?)?;
    module.add_function(wrap_pyfunction!(clone::begin_clone, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::release_clone, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::create_checkpoint, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::pin_shared, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::refresh_checkpoint, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::delete_checkpoint, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::list_checkpoints, module)?)?;
    module.add_function(wrap_pyfunction!(destroy::destroy, module)?)?;
    history::register(module)?;
    module.add_function(wrap_pyfunction!(export::export, module)?)?;
    module.add_function(wrap_pyfunction!(export::begin_export, module)?)?;
    module.add_function(wrap_pyfunction!(export::promote, module)?)?;
    module.add_function(wrap_pyfunction!(repair::repair, module)?)?;
    module.add_function(wrap_pyfunction!(repair::give_up_table, module)?)?;
    module.add_function(wrap_pyfunction!(repair::collect_after_repair, module)?)?;
    module.add_function(wrap_pyfunction!(probe::probe, module)?)?;
    gc::register(module)?;
    module.add_function(wrap_pyfunction!(compactor::compact, module)?)?;
    module.add_function(wrap_pyfunction!(compactor::run_compactor, module)?)?;
    module.add_function(wrap_pyfunction!(units::plan_compaction, module)?)?;
    module.add_function(wrap_pyfunction!(units::run_unit, module)?)?;
    duration::register(module)?;
    module.add_function(wrap_pyfunction!(options::check_group, module)?)?;
    module.add_function(wrap_pyfunction!(options::check_options, module)?)?;
    module.add_function(wrap_pyfunction!(options::option_table, module)?)?;
    module.add_function(wrap_pyfunction!(stats::stat_table, module)?)?;
    module.add_function(wrap_pyfunction!(error::error_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(error::error_of_kind, module)?)?;
    module.add_function(wrap_pyfunction!(exit::at_exit, module)?)?;
    module.add_function(wrap_pyfunction!(lines::next_lines, module)?)?;
    module.add_function(wrap_pyfunction!(memory::memory_in_use, module)?)?;
    aio::register(module)?;
    feed::register(module)?;
    ingest::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    process::watch_forks(module)?;
    lines::register();
    exit::register(module)
}
