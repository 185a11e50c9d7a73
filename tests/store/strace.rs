//! The order of the system calls of a create in a local folder, as the kernel saw them.

use crate::conformance::runtime;
use siltstone::store::local::LocalStore;
use siltstone::store::{PutAnswer, Store};
use siltstone_base::{ObjectName, WalId};
use std::path::Path;
use std::process::Command;

/// The environment variable with the folder for [`child_creates_an_object`].
const FOLDER_VARIABLE: &str = "SILTSTONE_TEST_STRACE_FOLDER";

/// Not a separate test: the program that the test below runs under strace. Creating the folder
/// `answered` marks in the trace when the answer was returned.
#[test]
#[ignore = "run by creates_reach_the_disk_before_they_are_answered"]
#[allow(clippy::disallowed_methods, reason = "how a parent process talks to its child")]
fn child_creates_an_object() {
    let Ok(folder) = std::env::var(FOLDER_VARIABLE) else { return };
    let (runtime, effects) = runtime();
    let store = LocalStore::new(&Path::new(&folder).join("db"), effects).unwrap();
    let answer = runtime.block_on(store.put_if_absent(ObjectName::Wal(WalId(1)), "x".into()));
    assert!(matches!(answer, PutAnswer::Created), "{answer:?}");
    std::fs::create_dir(Path::new(&folder).join("answered")).unwrap();
}

/// Position of the first line after `from` that contains all `words`.
fn after(lines: &[&str], from: usize, words: &[&str]) -> usize {
    let found = lines
        .iter()
        .enumerate()
        .skip(from)
        .find(|(_, line)| words.iter().all(|word| line.contains(word)));
    found.map(|(at, _)| at).unwrap_or_else(|| panic!("{words:?} not after line {from}: {lines:#?}"))
}

#[test]
fn creates_reach_the_disk_before_they_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let calls = "trace=fsync,fdatasync,link,linkat,mkdir,mkdirat,unlink,unlinkat";
    let traced = Command::new("strace")
        .args(["-f", "-y", "-o"])
        .arg(&trace)
        .args(["-e", calls])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "strace::child_creates_an_object", "--ignored"])
        .env(FOLDER_VARIABLE, folder.path())
        .output();
    let output = match traced {
        Ok(output) => output,
        Err(error) => return eprintln!("skipped: no strace ({error})"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("ptrace") {
        return eprintln!("skipped: tracing is not permitted ({said})");
    }
    assert!(output.status.success(), "{output:?}");
    let trace = std::fs::read_to_string(trace).unwrap();
    let lines: Vec<&str> = trace.lines().filter(|line| line.contains("= 0")).collect();
    // The created folders, each synced in its parent.
    let root = after(&lines, 0, &["mkdir", "/db\""]);
    after(&lines, root, &["fsync", ">"]);
    let wal = after(&lines, root, &["mkdirat", "/db>, \"wal\""]);
    let wal_synced = after(&lines, wal, &["fsync", "/db>"]);
    let data_synced = after(&lines, wal_synced, &["fdatasync", "/db/.staging/"]);
    // Relative to open descriptors, at both ends: strace adds the paths.
    let linked = ["linkat", "/db/.staging>, ", "/db/wal>, \"00000000000000000001.sst\""];
    let linked = after(&lines, data_synced, &linked);
    let name_synced = after(&lines, linked, &["fsync", "/db/wal>"]);
    after(&lines, name_synced, &["mkdir", "/answered\""]);
}
