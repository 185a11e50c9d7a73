//! The end of handles: by a close, abandoned, failed, or repeated; by the death of one of their
//! tasks; with the runtime on which they were opened. No caller waits for an event that never
//! happens.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at what it did not expect"
)]

mod bomb;
mod closing;
mod compaction;
mod lives;
mod refused;
mod runtime;
mod tasks;
mod threads;

use bomb::{Bomb, as_tokio};
use siltstone::store::memory::MemoryStore;
use siltstone::{
    Accept, Commit, Database, Env, Error, ErrorKind, OpenOptions, Options, Reader, ReaderOptions,
};
use siltstone_tests::sim::{Limits, Sim};
use std::sync::Arc;
use std::time::Duration;

/// The deadline of every call: far longer than anything here takes that does not hang.
const DEADLINE: Duration = Duration::from_secs(60);

/// One process with a store that can be made to panic, in virtual time.
#[derive(Clone)]
struct World {
    env: Env,
    bomb: Arc<Bomb>,
}

/// Runs `test` to its end.
fn tell<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(World) -> F) {
    let sim = Sim::new(14);
    sim.expect_panics();
    // A flush by age takes an hour; a test waits for some of them.
    sim.set_limits(Limits { time: Duration::from_secs(6 * 3600), ..Limits::default() });
    let process = sim.process("process", 0);
    let bomb = Bomb::over(MemoryStore::unnamed());
    let store: Arc<Bomb> = Arc::clone(&bomb);
    let env = as_tokio(sim.env(process, store));
    sim.block_on(process, test(World { env, bomb })).expect("nothing hangs");
}

/// Options without automatic work.
fn quiet() -> Options {
    Options {
        deadline: DEADLINE,
        embedded_compactor: false,
        embedded_gc: false,
        ..Options::default()
    }
}

impl World {
    async fn open(&self, options: Options) -> Database {
        let how = OpenOptions { options, ..OpenOptions::default() };
        Database::open(self.env.clone(), how).await.expect("a healthy store")
    }

    async fn open_reader(&self, options: Options) -> Reader {
        let how = ReaderOptions { options, ..ReaderOptions::default() };
        Reader::open(self.env.clone(), how).await.expect("a healthy store")
    }

    async fn pause(&self, pause: Duration) {
        self.env.clock.sleep(pause).await;
    }

    /// Checks that the handle has ended because of a panic in a task of this `name`, for every
    /// call, and that the next handle finds the acknowledged rows.
    async fn check_dead(&self, db: &Database, name: &str, acknowledged: &[&str]) {
        let ended = [
            db.put(b"late", b"late", None).expect_err("a write"),
            db.get(b"a").expect_err("a read"),
            db.flush().await.expect_err("a flush"),
            db.flush_memtable().await.expect_err("a flush of the memtable"),
            db.compact().await.expect_err("a compaction"),
            db.close().await.expect_err("a close"),
            db.close().await.expect_err("a second close"),
        ];
        for error in ended {
            check_told(&error, name);
        }
        self.bomb.disarm();
        let next = self.open(quiet()).await;
        for key in acknowledged {
            assert!(get(&next, key).await.is_some(), "{key} was acknowledged");
        }
        assert_eq!(get(&next, "late").await, None);
        next.close().await.expect("a healthy store");
    }
}

/// Checks that the error names the dead task, the cause, and the remedy.
fn check_told(error: &Error, name: &str) {
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Internal, "{text}");
    let task = format!("task: {name}");
    for said in ["planted", &task, "acknowledged writes are durable", "open it again"] {
        assert!(text.contains(said), "{said:?} is not in: {text}");
    }
}

fn put(db: &Database, key: &str) -> Commit {
    match db.put(key.as_bytes(), &[7; 100], None).expect("an open handle") {
        Accept::Accepted(commit) => commit,
        Accept::Pressure(_) => panic!("pressure in a small test"),
    }
}

async fn get(db: &Database, key: &str) -> Option<Vec<u8>> {
    let answer = db.get(key.as_bytes()).expect("an open handle").wait().await;
    answer.expect("a healthy store").map(|value| value.to_vec())
}
