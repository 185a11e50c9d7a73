//! Effects stay in their permitted places: the simulation is possible only because logic touches no
//! clock, no randomness, no store and no task of its own.

use crate::house::{Broken, Source};

/// Words that are permitted in some places only.
struct Kept {
    /// Words that are searched in code, not in comments or literals.
    words: &'static [&'static str],
    /// Paths to which the rule applies, by their start.
    within: &'static [&'static str],
    /// Paths, by their start, where the words are permitted nevertheless.
    home: &'static [&'static str],
    /// The remedy.
    remedy: &'static str,
}

/// Shelves 0 and 1.
const PURE: [&str; 8] = [
    "crates/base/src/",
    "crates/fbs/src/",
    "crates/bloom/src/",
    "crates/memtable/src/",
    "crates/sst/src/",
    "crates/merge/src/",
    "crates/manifest/src/",
    "crates/schema/src/",
];

const LAWS: [Kept; 5] = [
    Kept {
        words: &["object_store"],
        within: &["crates/", "tests/", "benches/"],
        home: &[
            "crates/store/src/remote.rs",
            "crates/store/src/remote/",
            "crates/store/src/options.rs",
        ],
        remedy: "only crates/store/src/remote/ names that crate; talk to the `Store` trait",
    },
    Kept {
        words: &[
            "tokio::spawn",
            "tokio::task",
            "tokio::time",
            "tokio::runtime",
            "thread::spawn",
            "thread::Builder",
            "thread::sleep",
            "Handle::current",
        ],
        within: &["crates/"],
        home: &["crates/store/src/task.rs", "crates/python/src/process.rs"],
        remedy: "only task.rs spawns and sleeps (the binding's process.rs holds the runtime); \
                 use Env's Spawn and Clock",
    },
    Kept {
        words: &["Instant::now", "SystemTime::now"],
        within: &["crates/"],
        // The binding waits on real threads, and its batches have no database whose clock they
        // could use.
        home: &[
            "crates/store/src/task.rs",
            "crates/python/src/wait.rs",
            "crates/python/src/batch.rs",
        ],
        remedy: "time comes in through Env's Clock",
    },
    Kept {
        words: &["env::var", "env::vars", "env::var_os", "env::vars_os", "env::args"],
        within: &["crates/"],
        home: &["crates/python/src/open.rs", "crates/engine/src/writer/open.rs"],
        remedy: "only `open` reads the environment; take the value as an argument",
    },
    Kept {
        words: &[
            "async",
            "await",
            "tokio",
            "futures",
            "std::fs",
            "std::net",
            "std::env",
            "std::thread",
            "std::process",
            "std::io",
            "Instant",
            "SystemTime",
            "rand",
            "getrandom",
            "RandomState",
            "println",
            "eprintln",
        ],
        within: &PURE,
        home: &[],
        remedy: "a pure crate has no async, clock, randomness or I/O; bytes in, bytes out",
    },
];

pub(crate) fn effects(sources: &[Source]) -> Vec<Broken> {
    let mut broken = Vec::new();
    for law in &LAWS {
        let starts = |paths: &[&str], path: &str| paths.iter().any(|each| path.starts_with(each));
        let subject = sources.iter().filter(|source| {
            source.is_rust()
                && starts(law.within, &source.path)
                && !starts(law.home, &source.path)
                && !source.is_generated()
        });
        for source in subject {
            for (line, code) in lines_of(source, law) {
                if let Some(word) = law.words.iter().find(|word| has_word(code, word)) {
                    let text = format!("`{word}`: {}", law.remedy);
                    broken.push(Broken::new(source, line, text));
                }
            }
        }
    }
    broken
}

/// The first rule applies to tests too, because tests/ and benches/ are within it; in files under
/// `crates/` code that only tests compile is excluded.
fn lines_of<'a>(source: &'a Source, law: &Kept) -> Box<dyn Iterator<Item = (usize, &'a str)> + 'a> {
    if law.within.contains(&"tests/") {
        Box::new(source.code.lines().enumerate().map(|(at, line)| (at + 1, line)))
    } else {
        Box::new(source.product_lines())
    }
}

/// Whether `word` is in `code` by itself, not as a part of a longer name.
fn has_word(code: &str, word: &str) -> bool {
    let part = |each: char| each.is_alphanumeric() || each == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code.get(..at).and_then(|text| text.chars().next_back());
        let after = code.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        effects(&[Source::new(path, text)]).len()
    }

    #[test]
    fn the_object_store_crate_has_one_home() {
        let text = "use object_store::path::Path;\n";
        assert_eq!(count("crates/store/src/remote.rs", text), 0);
        assert_eq!(count("crates/engine/src/api/db.rs", text), 1);
        assert_eq!(count("tests/model.rs", text), 1);
        assert_eq!(count("crates/engine/src/api/db.rs", "// object_store\n"), 0);
    }

    #[test]
    fn spawning_time_and_environment_have_one_home() {
        for (text, home) in [
            ("fn a() { tokio::spawn(b()); }", "crates/store/src/task.rs"),
            ("fn a() { std::thread::sleep(b); }", "crates/store/src/task.rs"),
            ("fn a() { SystemTime::now(); }", "crates/store/src/task.rs"),
            ("fn a() { std::env::vars(); }", "crates/python/src/open.rs"),
        ] {
            assert_eq!(count(home, text), 0, "{text}");
            assert_eq!(count("crates/engine/src/writer/wal_task.rs", text), 1, "{text}");
            let test = format!("#[cfg(test)]\nmod tests {{ {text} }}\n");
            assert_eq!(count("crates/engine/src/writer/wal_task.rs", &test), 0, "{text}");
        }
    }

    #[test]
    fn pure_crates_stay_pure() {
        assert_eq!(count("crates/sst/src/table.rs", "async fn open() {}\n"), 1);
        assert_eq!(count("crates/merge/src/a.rs", "use std::time::Instant;\n"), 1);
        assert_eq!(count("crates/merge/src/a.rs", "fn asynchronous() { strand() }\n"), 0);
        assert_eq!(count("crates/engine/src/api/db.rs", "async fn open() {}\n"), 0);
    }
}
