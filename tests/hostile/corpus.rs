//! The stored corpus of the fuzz targets: inputs that they found, and inputs that reach all code.
//! Every file is run through its target; a file named `regression-…` is a crash that was fixed.

use siltstone_fuzz::TARGETS;
use std::fs;
use std::path::{Path, PathBuf};

/// The corpus is small enough to be stored beside the code.
const MOST_BYTES: u64 = 300 << 10;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_file_passes_its_target() {
    let _turn = super::alone();
    let mut bytes = 0;
    for (name, target) in TARGETS {
        let folder = corpus().join(name);
        let files = files(&folder);
        assert!(files.len() >= 2, "{name} has no corpus");
        for file in files {
            let data = fs::read(&file).unwrap();
            bytes += data.len() as u64;
            println!("{}", file.display());
            target(&data);
        }
    }
    assert!(bytes <= MOST_BYTES, "the corpus has {bytes} bytes: minimise it");
}

#[test]
fn every_folder_is_a_targets() {
    for folder in files(&corpus()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        assert!(TARGETS.iter().any(|(target, _)| *target == name), "{name} is no target");
    }
}
