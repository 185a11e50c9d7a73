use super::*;
use siltstone_base::{Batch, Epoch, Kind, UnixMillis, WalId};
use siltstone_sst::Table;
use siltstone_sst::wal::{self, CutInfo, WalBuilder};
use siltstone_store::memory::MemoryStore;
use siltstone_store::task::tokio_env;

const DATABASE: DatabaseId = DatabaseId(7);

/// The object `id`: a batch with one put for each pair, with sequence numbers from `first` on.
fn object(id: u64, first: u64, rows: &[(&str, &str)]) -> WalObject {
    let mut builder = WalBuilder::new();
    for (place, (key, value)) in rows.iter().enumerate() {
        let mut batch = Batch::new();
        batch.put(key.as_bytes(), value.as_bytes(), None).unwrap();
        builder.push_batch(Seq(first + place as u64), 1, batch.as_bytes());
    }
    let envelope = Envelope::new(ObjectKind::Wal, DatabaseId(1), ObjectId(1), AttemptId(1));
    let sent = CutInfo { durable: WalId(id - 1), at: UnixMillis(1_000 + id) };
    wal::decode(builder.finish(envelope, Epoch(1), WalId(id), sent), WalId(id)).unwrap()
}

fn names(from: u128) -> impl Iterator<Item = SstId> {
    (from..).map(SstId)
}

/// Keys, sequence numbers and values of a table, in its order.
fn rows(env: &Env, table: &SstDescriptor) -> Vec<(String, u64, String)> {
    let name = ObjectName::Compacted(table.id);
    let bytes = env.store.reads().get_now(name, None).unwrap().unwrap().unwrap();
    let tail = Table::tail_range(table);
    let opened = Table::open(table.clone(), bytes.slice(tail.start as usize..)).unwrap();
    assert_eq!(opened.envelope().database, DATABASE);
    let mut rows = Vec::new();
    for number in 0..opened.block_count() {
        let range = opened.block_range(number).unwrap();
        let stored = bytes.slice(range.start as usize..range.end as usize);
        let block = opened.decode_block(number, stored).unwrap();
        let mut position = 0;
        while let Some(entry) = block.entry(position) {
            assert_eq!(entry.kind, Kind::Put);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            rows.push((text(entry.key), entry.seq.get(), text(entry.value)));
            position += 1;
        }
    }
    rows
}

fn run(objects: &[WalObject], flushed: u64, most_bytes: usize) -> Result<(Env, TablesOfLog)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let env = tokio_env(runtime.handle().clone(), MemoryStore::unnamed());
    let options = Options { l0_sst_size_bytes: most_bytes, ..Options::default() };
    let target = TableTarget { env: &env, database: DATABASE, job: None, options: &options };
    let mut names = names(40);
    let log = TakenLog { objects: objects.to_vec(), ..TakenLog::default() };
    let work = tables_of_log(&log, Seq(flushed), &target, &mut names);
    let done = runtime.block_on(work)?;
    Ok((env, done))
}

fn row(key: &str, seq: u64, value: &str) -> (String, u64, String) {
    (key.to_owned(), seq, value.to_owned())
}

#[test]
fn rows_above_the_tables_become_a_table_with_their_numbers() {
    let objects = [
        object(3, 9, &[("a", "old"), ("b", "flushed")]),
        object(5, 11, &[("c", "1"), ("a", "2"), ("a", "3")]),
    ];
    let (env, done) = run(&objects, 10, 1 << 20).unwrap();
    assert_eq!((done.last_seq, done.commit_time), (Seq(13), UnixMillis(1_005)));
    let [LogPart::Rows(table)] = done.parts.as_slice() else { panic!("{done:?}") };
    assert_eq!((table.id, table.min_seq, table.max_seq), (SstId(40), Seq(11), Seq(13)));
    assert_eq!(rows(&env, table), vec![row("a", 13, "3"), row("c", 11, "1")]);
}

#[test]
fn a_full_table_is_written_before_more_is_read() {
    let objects: Vec<_> = (0..3).map(|n| object(n + 1, n + 1, &[("k", "v")])).collect();
    let (env, done) = run(&objects, 0, 1).unwrap();
    let found: Vec<_> = done.written().map(|table| rows(&env, table)).collect();
    let each: Vec<_> = (1..4).map(|seq| vec![row("k", seq, "v")]).collect();
    assert_eq!(found, each);
    assert_eq!(done.written().map(|table| table.id.get()).collect::<Vec<_>>(), [40, 41, 42]);
}

/// Objects whose rows are all in tables do not end a part, and later objects are not skipped.
#[test]
fn spans_are_told_before_there_are_tables() {
    let mut objects: Vec<_> =
        (1..4).map(|n| object(n, n, &[(["x", "d", "b"][n as usize - 1], "v")])).collect();
    objects.push(object(4, 4, &[("c", "1"), ("f", "2"), ("e", "3")]));
    for most_bytes in [1, 1 << 20] {
        let options = Options { l0_sst_size_bytes: most_bytes, ..Options::default() };
        let log = TakenLog { objects: objects.clone(), ..TakenLog::default() };
        let spans = spans_of_log(&log, Seq(1), &options).unwrap();
        let (_, done) = run(&objects, 1, most_bytes).unwrap();
        assert_eq!(spans, done.written().map(Span::of).collect::<Vec<_>>());
        assert_eq!(spans.len(), if most_bytes == 1 { 3 } else { 1 });
    }
}

#[test]
fn no_row_no_table() {
    let (_, done) = run(&[], 10, 1).unwrap();
    assert_eq!(done, TablesOfLog { last_seq: Seq(10), ..TablesOfLog::default() });
    let (_, done) = run(&[object(1, 5, &[("a", "1")])], 10, 1).unwrap();
    assert_eq!((done.parts.len(), done.last_seq), (0, Seq(10)));
}

#[test]
fn a_gap_in_the_numbers_is_corruption() {
    let refused = run(&[object(1, 12, &[("a", "1")])], 10, 1).map(|(_, done)| done).unwrap_err();
    assert_eq!(refused.kind(), siltstone_base::ErrorKind::Corruption);
}
