//! Rules about words: the required text at the head of a file, and forbidden words.

use crate::house::{Broken, Source};

/// The files that may contain `unsafe`, each with its reason. This list may only shrink.
const UNSAFE_HOMES: [(&str, &str); 2] = [
    ("crates/fbs/src/", "generated code, apart from all other so that lints can be strict"),
    ("crates/store/src/local/map.rs", "one call: whether a file changes, no compiler knows"),
];

/// The crates that contain one of those files: they deny what others forbid, so that the file
/// itself can allow it.
const DENYING_ROOTS: [&str; 1] = ["crates/store/src/lib.rs"];

/// Marks of unfinished work. Assembled, so that this file does not violate its own rule.
const UNDONE: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];

/// Starts of paths that exist on one machine only.
const MACHINE_PATHS: [&str; 5] = [
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("C:", "\\"),
];

/// Every library file states its purpose at its head.
pub(crate) fn heads(sources: &[Source]) -> Vec<Broken> {
    let mut broken = Vec::new();
    for source in sources.iter().filter(|source| !source.is_generated()) {
        let wants = source.library().is_some() && source.product_lines().next().is_some();
        let rust =
            source.text.starts_with("//!") || source.text.starts_with("#![doc = include_str!");
        if wants && !rust {
            let text = "begins without a head comment; say in `//!` what it holds and why";
            broken.push(Broken::new(source, 1, text));
        }
        let module = source.is_python() && !source.text.trim().is_empty();
        let python =
            source.text.trim_start_matches("#!/usr/bin/env python3\n").starts_with("\"\"\"");
        if module && !python {
            let text = "begins without a docstring; say what it holds and why";
            broken.push(Broken::new(source, 1, text));
        }
    }
    broken
}

/// No marks of unfinished work, and no path of one machine.
pub(crate) fn words(sources: &[Source]) -> Vec<Broken> {
    let mut broken = Vec::new();
    for source in sources.iter().filter(|source| !source.is_generated()) {
        for (at, line) in source.text.lines().enumerate() {
            let mut whole = line.split(|each: char| !each.is_alphanumeric() && each != '_');
            if let Some(mark) = whole.find(|word| UNDONE.contains(word)) {
                let text = format!("`{mark}`: finish it, or open an issue and leave no mark");
                broken.push(Broken::new(source, at + 1, text));
            }
            if let Some(path) = MACHINE_PATHS.iter().find(|path| line.contains(**path)) {
                let text = format!("`{path}` is a place on one machine; use a relative path");
                broken.push(Broken::new(source, at + 1, text));
            }
        }
    }
    broken
}

/// `unsafe` only in the files of the list above; every other crate forbids it.
pub(crate) fn unsafe_code(sources: &[Source]) -> Vec<Broken> {
    let mut broken = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        if UNSAFE_HOMES.iter().any(|(home, _)| source.path.starts_with(home)) {
            continue;
        }
        for (at, line) in source.code.lines().enumerate() {
            let mut words = line.split(|each: char| !each.is_alphanumeric() && each != '_');
            if words.any(|word| word == "unsafe") {
                let text = "`unsafe` is kept to the places that tests/tidy/text.rs lists";
                broken.push(Broken::new(source, at + 1, text));
            }
        }
        let root = source.library().is_some() && source.path.ends_with("/src/lib.rs");
        let denying = DENYING_ROOTS.contains(&source.path.as_str());
        let wanted = if denying { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
        if root && !source.code.contains(wanted) {
            broken.push(Broken::new(source, 1, format!("add `{wanted}`")));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(law: fn(&[Source]) -> Vec<Broken>, path: &str, text: &str) -> usize {
        law(&[Source::new(path, text)]).len()
    }

    #[test]
    fn a_missing_head_is_found() {
        assert_eq!(count(heads, "crates/x/src/lib.rs", "//! Head.\nfn a() {}"), 0);
        assert_eq!(count(heads, "crates/x/src/lib.rs", "// Head.\nfn a() {}"), 1);
        assert_eq!(count(heads, "crates/x/src/lib.rs", "#![doc = include_str!(\"A.md\")]\n"), 0);
        assert_eq!(count(heads, "crates/x/src/tests.rs", "fn a() {}"), 0);
        assert_eq!(count(heads, "python/a.py", "#!/usr/bin/env python3\n\"\"\"Head.\"\"\"\n"), 0);
        assert_eq!(count(heads, "python/a.py", "import os\n"), 1);
    }

    #[test]
    fn a_mark_of_unfinished_work_is_found_and_a_longer_word_is_not() {
        let text = format!("// {}: later\n", UNDONE[0]);
        assert_eq!(count(words, "crates/x/src/a.rs", &text), 1);
        assert_eq!(count(words, "python/a.py", &format!("# {}\n", UNDONE[1])), 1);
        assert_eq!(count(words, "docs/a.md", "mastodon, METHODOLOGY\n"), 0);
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        assert_eq!(count(words, "docs/a.md", &format!("see {}me/x\n", MACHINE_PATHS[0])), 1);
        assert_eq!(count(words, "docs/a.md", "see target/release\n"), 0);
    }

    #[test]
    fn unsafe_is_found_in_code_and_not_in_comments() {
        let head = "#![forbid(unsafe_code)]\n";
        let path = "crates/x/src/lib.rs";
        assert_eq!(count(unsafe_code, path, &format!("{head}// unsafe\n")), 0);
        assert_eq!(count(unsafe_code, path, &format!("{head}fn a() {{ unsafe {{}} }}\n")), 1);
        assert_eq!(count(unsafe_code, path, "fn a() {}\n"), 1);
        assert_eq!(count(unsafe_code, "crates/fbs/src/a.rs", "unsafe fn a() {}\n"), 0);
        let store = "crates/store/src/lib.rs";
        assert_eq!(count(unsafe_code, store, "#![deny(unsafe_code)]\nunsafe fn a() {}\n"), 1);
        assert_eq!(count(unsafe_code, store, "fn a() {}\n"), 1);
    }
}
