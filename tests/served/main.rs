//! The engine over the S3 server of the tests, under the whole fault plan, in real time.
//!
//! Writers come and go: some close, some die with all their tasks, some stay as zombies beside the
//! next one. Every acknowledged write must be there in the end, every read must be one that the
//! history allows, and every call must end by its deadline. `SERVED_SECONDS` is the length of the
//! run (default: 7), `SERVED_SEED` its seed.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that panics has failed, as it should; servers and clients run in real time"
)]

mod bench;
mod faults;
mod history;
mod process;

use faults::plan;
use history::History;
use process::Process;
use siltstone_test_server::{ServerConfig, TestServer};
use siltstone_tests::s3_server;
use siltstone_tests::sim::Rng;
use std::time::{Duration, Instant};

/// Writers of the shortest run.
const LEAST_LIVES: u32 = 6;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// One writer's life, and at its end perhaps a zombie.
fn live(
    server: &TestServer,
    history: &mut History,
    rng: &mut Rng,
    zombie: Option<Process>,
) -> Option<Process> {
    let Some(process) = Process::open(server) else { return zombie };
    // From here on the older writer must not acknowledge anything.
    if let Some(zombie) = zombie {
        zombie.must_be_fenced(history, rng);
        zombie.kill();
    }
    process.check(history);
    for _ in 0..2 + rng.below(5) {
        if !process.step(history, rng) {
            break;
        }
    }
    match rng.below(3) {
        0 => process.close(),
        1 => process.kill(),
        _ => return Some(process),
    }
    None
}

#[test]
fn no_acknowledged_write_is_lost_under_any_fault() {
    let seconds = setting("SERVED_SECONDS", 7);
    let seed = setting("SERVED_SEED", 32);
    let server = s3_server::start(ServerConfig { seed, ..ServerConfig::default() });
    let (mut history, mut rng) = (History::default(), Rng::new(seed));
    let mut zombie = None;
    let began = Instant::now();
    let mut lives = 0;
    while began.elapsed() < Duration::from_secs(seconds) || lives < LEAST_LIVES {
        // A first life without faults makes the database, and every third one reads in peace.
        server.heal();
        if lives % 3 != 0 {
            for rule in plan() {
                server.inject(rule);
            }
        }
        zombie = live(&server, &mut history, &mut rng, zombie);
        lives += 1;
    }
    server.heal();
    let last = Process::open(&server).expect("a healed server lets a writer in");
    if let Some(zombie) = zombie {
        zombie.must_be_fenced(&mut history, &mut rng);
        zombie.kill();
    }
    last.check(&mut history);
    last.write_in_peace(&mut history, &mut rng);
    last.close();
    process::verify(&server);
    let injected = server.injected();
    println!(
        "seed {seed}: {lives} lives, {} writes acknowledged, {} uncertain, faults {injected:?}",
        history.acknowledged(),
        history.uncertain()
    );
    // A slow machine gets less far.
    assert!(history.acknowledged() > 20, "{}", history.acknowledged());
    assert!(injected.len() >= 8, "too few kinds of faults happened: {injected:?}");
}
