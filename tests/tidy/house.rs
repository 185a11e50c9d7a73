//! The files of the repository, read once, and what a broken law looks like.

use crate::mask::mask;
use std::fmt;
use std::path::Path;
use std::{fs, io};

/// Folders that hold nothing written by hand.
const SKIPPED: [&str; 10] = [
    ".git",
    ".venv",
    "target",
    "dist",
    "golden",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
];

/// Ends of the names of the files that laws speak of.
const READ: [&str; 8] = ["rs", "py", "pyi", "toml", "md", "fbs", "sh", "Makefile"];

/// One file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Relative to the root of the repository, `/` between parts.
    pub(crate) path: String,
    pub(crate) text: String,
    /// For Rust: the text without comments and literals. For others: the text.
    pub(crate) code: String,
    /// The lines (from 0) of `code` that only a test build compiles.
    pub(crate) test_lines: Vec<bool>,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { mask(text) } else { text.to_owned() };
        let test_lines = test_lines(path, &code);
        Source { path: path.to_owned(), text: text.to_owned(), code, test_lines }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub(crate) fn is_python(&self) -> bool {
        self.path.ends_with(".py")
    }

    /// Written by a compiler of schemas, not by hand.
    pub(crate) fn is_generated(&self) -> bool {
        self.path.ends_with("_generated.rs")
    }

    /// The crate (folder under `crates/`) whose library this file is part of, tests left out.
    pub(crate) fn library(&self) -> Option<&str> {
        let (folder, rest) = self.path.strip_prefix("crates/")?.split_once('/')?;
        (self.is_rust() && rest.starts_with("src/")).then_some(folder)
    }

    /// The lines of code that a user's build compiles, with their numbers from 1.
    pub(crate) fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let tests = self.test_lines.iter().copied().chain(std::iter::repeat(false));
        let lines = self.code.lines().enumerate().zip(tests);
        lines.filter(|(_, test)| !test).map(|((at, line), _)| (at + 1, line))
    }
}

/// Marks what stands under `#[cfg(test)]`: to the `;` of a module elsewhere, or to the brace that
/// closes the item. All of a file that is a test is marked.
fn test_lines(path: &str, code: &str) -> Vec<bool> {
    let all = path.starts_with("tests/")
        || path.starts_with("benches/")
        || path.contains("/tests/")
        || path.ends_with("/tests.rs");
    let mut marks = vec![all; code.lines().count()];
    for (start, _) in code.match_indices("#[cfg(test)]") {
        let end = item_end(code, start + "#[cfg(test)]".len());
        let (first, last) = (line_of(code, start), line_of(code, end));
        marks.iter_mut().take(last).skip(first - 1).for_each(|mark| *mark = true);
    }
    marks
}

/// The offset of the `;` or of the closing brace that ends the item which starts at `from`.
pub(crate) fn item_end(code: &str, from: usize) -> usize {
    let mut braces = 0usize;
    // The `;` of `[u8; 4]` in a signature ends nothing.
    let mut brackets = 0usize;
    for (at, each) in code.bytes().enumerate().skip(from) {
        match each {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets = brackets.saturating_sub(1),
            b'{' => braces += 1,
            b'}' if braces <= 1 => return at,
            b'}' => braces -= 1,
            b';' if braces == 0 && brackets == 0 => return at,
            _ => {}
        }
    }
    code.len()
}

/// The number, from 1, of the line that holds the byte at `offset`.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|each| *each == b'\n').count()
}

/// A broken law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) path: String,
    /// From 1.
    pub(crate) line: usize,
    /// What is wrong, and what to do about it.
    pub(crate) text: String,
}

impl Broken {
    pub(crate) fn new(source: &Source, line: usize, text: impl Into<String>) -> Self {
        Broken { path: source.path.clone(), line, text: text.into() }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.text)
    }
}

/// Every file that laws speak of, sorted by path.
pub(crate) fn read_house(root: &Path) -> io::Result<Vec<Source>> {
    let mut found = Vec::new();
    walk(root, "", &mut found)?;
    found.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(found)
}

fn walk(root: &Path, folder: &str, found: &mut Vec<Source>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if entry.file_type()?.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                walk(root, &path, found)?;
            }
        } else if READ.contains(&name.rsplit('.').next().unwrap_or_default()) {
            found.push(Source::new(&path, &fs::read_to_string(entry.path())?));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Source;

    #[test]
    fn what_only_tests_compile_is_set_apart() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { x() }\n}\nfn c() {}\n";
        let lines = |path| {
            Source::new(path, text).product_lines().map(|(line, _)| line).collect::<Vec<_>>()
        };
        assert_eq!(lines("crates/base/src/lib.rs"), [1, 6]);
        assert_eq!(lines("crates/base/tests/x.rs"), []);
        let elsewhere = Source::new("crates/base/src/x.rs", "#[cfg(test)]\nmod tests;\nfn a() {}");
        assert_eq!(elsewhere.product_lines().map(|(line, _)| line).collect::<Vec<_>>(), [3]);
    }
}
