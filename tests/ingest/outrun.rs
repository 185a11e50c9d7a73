//! Readers that are outrun: between their look and their read, an ingest of the log is installed
//! and its tables are collected. A reader without a lease begins again, as for other missing
//! tables.

use super::*;
use parking_lot::Mutex;
use siltstone::{Reader, ReaderOptions};
use siltstone_tests::gc;

/// A reader that is paused after this many milliseconds of opening, or of a refresh, while a writer
/// without automatic flushes has a job in its log. Returns whether it was paused within that, and
/// the rows that it read after all was installed, merged and collected.
fn outrun(millis: u64, leases: bool, refreshes: bool) -> (bool, Result<Pairs>) {
    let place = Place::of(millis);
    let (writer, env) = place.process("writer");
    let (process, reader_env) = place.process("reader");
    let options = Options { reader_lease: leases, ..slow() };
    let how = ReaderOptions { options, ..ReaderOptions::default() };
    let opening = || Reader::open(reader_env.clone(), how.clone());
    let held = env.clone();
    let db = place.sim.block_on(writer, async move { open(&held, slow()).await });
    let db = db.unwrap().unwrap();
    let follows = refreshes.then(|| place.sim.block_on(process, opening()).unwrap().unwrap());
    let held = db.clone();
    let asked = place.sim.block_on(writer, async move {
        put(&held, 1, b"own").await?;
        let request = job_of(&env, rows(2..6, b"bulk")).await?;
        held.ingest(&request).await?.wait(None).await
    });
    asked.unwrap().unwrap();
    let read: Arc<Mutex<Option<Result<Pairs>>>> = Arc::default();
    let (slot, opens) = (Arc::clone(&read), opening());
    place.sim.spawn(process, "reader", async move {
        let work = async {
            let reader = match follows {
                Some(reader) => reader,
                None => opens.await?,
            };
            reader.refresh().await?;
            all_of(reader.scan(everything())?).await
        };
        *slot.lock() = Some(work.await);
    });
    place.sim.run_for(Duration::from_millis(millis)).expect("time goes on");
    let slept = read.lock().is_none();
    place.sim.pause(process);
    let installed = place.sim.block_on(writer, async move {
        db.flush_memtable().await?;
        db.compact().await?;
        db.close().await
    });
    installed.unwrap().unwrap();
    place.run("collector", |env| async move { gc::round(&env).await });
    place.sim.resume(process);
    place.sim.run_for(Duration::from_secs(60)).expect("time goes on");
    let read = read.lock().take().expect("it ends");
    (slept, read)
}

#[test]
fn a_reader_that_is_outrun_finds_no_damage() {
    let expected: Pairs = [(1, "own"), (2, "bulk"), (3, "bulk"), (4, "bulk"), (5, "bulk")]
        .map(|(n, value)| (key(n), value.as_bytes().to_vec()))
        .to_vec();
    for (leases, refreshes) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut slept = 0;
        for millis in 0..250 {
            let (amid, read) = outrun(millis, leases, refreshes);
            slept += u32::from(amid);
            let case = format!("leases {leases}, refreshes {refreshes}, {millis} ms");
            match read {
                Ok(rows) => assert_eq!(rows, expected, "{case}"),
                Err(error) => panic!("{case}: {error}"),
            }
        }
        assert!(slept > 20, "leases {leases}, refreshes {refreshes}: {slept} slept");
    }
}
