//! The bank in a folder: threads, and the machine's own time.

use crate::{Bank, Town, business, report, setting};
use siltstone::store::local::LocalStore;
use siltstone::{Env, task};
use siltstone_tests::sim::Rng;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};

struct Folder {
    path: PathBuf,
    runtime: Handle,
}

impl Town for Folder {
    fn process(&self, _role: &'static str, place: &str) -> (Env, u64) {
        let effects = task::tokio_effects(self.runtime.clone());
        let store = LocalStore::new(&self.path.join(place), effects.clone()).unwrap();
        (effects.with_store(store), 0)
    }
}

#[test]
fn so_it_is_in_a_local_folder() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for seed in 0..setting("BANKS", 8).div_ceil(8) {
        let folder = tempfile::tempdir().unwrap();
        let town = Folder { path: folder.path().to_owned(), runtime: runtime.handle().clone() };
        let bank = Bank::new(Box::new(town));
        let day = business(Arc::clone(&bank), 3, Duration::from_secs(1), Rng::new(seed));
        runtime.block_on(day);
        let troubles = report("folder", &bank);
        assert!(troubles.is_empty(), "{troubles:#?}");
    }
}
