//! Names: within a crate no two types of production code have the same name, so that a name is
//! unambiguous for a reader and for a search.

use crate::house::{Broken, Source};
use std::collections::{BTreeMap, BTreeSet};

/// Names that more than one type of a crate may have, each with the reason. No more than eight.
const SHARED: [(&str, &str); 0] = [];
/// The words that begin a type.
const KINDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

pub(crate) fn types(sources: &[Source]) -> Vec<Broken> {
    let tests = test_modules(sources);
    let mut first: BTreeMap<(&str, String), (&Source, usize)> = BTreeMap::new();
    let mut broken = Vec::new();
    for source in sources {
        let Some(folder) = source.library() else { continue };
        if source.is_generated() || tests.contains(&source.path) {
            continue;
        }
        for (line, name) in declared(source) {
            if SHARED.iter().any(|(shared, _)| *shared == name) {
                continue;
            }
            match first.get(&(folder, name.clone())) {
                None => {
                    first.insert((folder, name), (source, line));
                }
                Some((other, at)) => {
                    let text = format!(
                        "`{name}` is a type of {}:{at} too; give each a name that says what it is \
                         in its place",
                        other.path
                    );
                    broken.push(Broken::new(source, line, text));
                }
            }
        }
    }
    broken
}

/// The types that product code declares, with their lines; not those that belong to a trait.
fn declared(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in source.product_lines() {
        let mut words = text.split_whitespace().peekable();
        while words.peek().is_some_and(|word| is_modifier(word)) {
            words.next();
        }
        let Some(kind) = words.next().filter(|word| KINDS.contains(word)) else { continue };
        let name = words.next().unwrap_or_default();
        let name: String =
            name.chars().take_while(|each| each.is_alphanumeric() || *each == '_').collect();
        let belongs = kind == "type" && text.starts_with(char::is_whitespace);
        if !belongs && !name.is_empty() {
            found.push((line, name));
        }
    }
    found
}

/// Words that may precede the word that begins a type.
fn is_modifier(word: &str) -> bool {
    word == "unsafe" || word == "pub" || word.starts_with("pub(") || word.ends_with(')')
}

/// The files of modules that only a test build compiles.
fn test_modules(sources: &[Source]) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for source in sources.iter().filter(|source| source.library().is_some()) {
        let Some((folder, file)) = source.path.rsplit_once('/') else { continue };
        let folder = match file {
            "lib.rs" | "mod.rs" => folder,
            _ => source.path.trim_end_matches(".rs"),
        };
        let lines = source.code.lines().zip(&source.test_lines).filter(|(_, test)| **test);
        for (line, _) in lines {
            let module = line.trim().strip_suffix(';').and_then(|line| line.rsplit_once("mod "));
            if let Some((_, name)) = module {
                files.insert(format!("{folder}/{name}.rs"));
                files.insert(format!("{folder}/{name}/mod.rs"));
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<_> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        types(&sources).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn two_types_of_one_name_are_both_named() {
        let files = |second| {
            broken(&[
                ("crates/sst/src/a.rs", "//! A.\n\npub(crate) struct Place {\n    at: u64,\n}\n"),
                ("crates/sst/src/b.rs", second),
            ])
        };
        let both = "crates/sst/src/b.rs:1: `Place` is a type of crates/sst/src/a.rs:3 too; give \
                    each a name that says what it is in its place";
        for second in [
            "struct Place;\n",
            "enum Place<'a> {\n}\n",
            "pub(in crate::a) enum Place {\n}\n",
            "type Place = u64;\n",
            "pub trait Place: Send {\n}\n",
            "pub unsafe trait Place {\n}\n",
        ] {
            assert_eq!(files(second), [both], "{second}");
        }
        assert_eq!(files("fn a() {\n    struct Place(u8);\n}\n").len(), 1);
        assert_eq!(
            broken(&[("crates/sst/src/a.rs", "struct A;\nmod b {\n    enum A {}\n}\n")]).len(),
            1
        );
    }

    #[test]
    fn only_types_of_production_code_count() {
        let beside = |path, text| {
            broken(&[
                ("crates/sst/src/a.rs", "struct Place;\n"),
                ("crates/sst/src/lib.rs", "mod a;\n#[cfg(test)]\nmod trial;\n"),
                (path, text),
            ])
            .len()
        };
        assert_eq!(beside("crates/sst/src/b.rs", "struct Place;\n"), 1);
        assert_eq!(beside("crates/merge/src/b.rs", "struct Place;\n"), 0);
        assert_eq!(beside("crates/sst/src/b.rs", "// struct Place;\n"), 0);
        assert_eq!(beside("crates/sst/src/b.rs", "enum Way {\n    Place,\n}\n"), 0);
        assert_eq!(beside("crates/sst/src/b.rs", "impl A for B {\n    type Place = u8;\n}\n"), 0);
        assert_eq!(beside("crates/sst/src/b_generated.rs", "struct Place;\n"), 0);
        assert_eq!(beside("crates/sst/tests/b.rs", "struct Place;\n"), 0);
        assert_eq!(beside("crates/sst/src/tests/b.rs", "struct Place;\n"), 0);
        assert_eq!(beside("crates/sst/src/trial.rs", "struct Place;\n"), 0);
        let test = "#[cfg(test)]\nmod tests {\n    struct Place;\n}\n";
        assert_eq!(beside("crates/sst/src/b.rs", test), 0);
    }

    #[test]
    fn the_list_of_shared_names_is_short() {
        let listed = SHARED.len();
        assert!(listed <= 8, "{listed} names are shared");
        assert!(SHARED.iter().all(|(_, reason)| !reason.is_empty()));
    }
}
