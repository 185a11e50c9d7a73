//! Planted mistakes: every patch in `tests/mutations` applies, and names tests that exist.

use crate::house::{Broken, Source};
use std::path::Path;
use std::process::Command;

const FOLDER: &str = "tests/mutations";
const FOUND_BY: &str = "Found by: cargo test ";

pub(crate) fn patches(root: &Path, sources: &[Source]) -> Vec<Broken> {
    let folder = std::fs::read_dir(root.join(FOLDER)).into_iter().flatten().flatten();
    let names = folder.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut patches: Vec<String> = names.filter(|name| name.ends_with(".patch")).collect();
    patches.sort();
    let mut broken = Vec::new();
    if patches.is_empty() {
        let text = "has no patch".to_owned();
        broken.push(Broken { path: FOLDER.to_owned(), line: 1, text });
    }
    for name in patches {
        let path = format!("{FOLDER}/{name}");
        let text = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        let texts = unfound(&text, sources).into_iter().chain(unapplied(root, &path));
        broken.extend(texts.map(|text| Broken { path: path.clone(), line: 1, text }));
    }
    broken
}

/// The defects of the commands at the head of a patch. The last word of each is a part of the name
/// of a test.
fn unfound(patch: &str, sources: &[Source]) -> Vec<String> {
    let commands: Vec<&str> = patch.lines().map_while(|line| line.strip_prefix(FOUND_BY)).collect();
    if commands.is_empty() {
        return vec![format!("does not begin with `{FOUND_BY}…`, the command that finds it")];
    }
    let names = commands.iter().filter_map(|command| command.split([' ', ':']).next_back());
    let unknown = names.filter(|name| {
        let is_named = |source: &Source| source.text.contains(name);
        !sources.iter().any(|source| source.path.ends_with(".rs") && is_named(source))
    });
    unknown.map(|name| format!("no test is called `{name}`")).collect()
}

/// Why the patch does not apply to the tree.
fn unapplied(root: &Path, patch: &str) -> Option<String> {
    let output = Command::new("git").args(["apply", "--check", patch]).current_dir(root).output();
    match output {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            let first = error.lines().next().unwrap_or_default().to_owned();
            Some(format!("does not apply: plant the mistake in the code of now ({first})"))
        }
        Err(error) => Some(format!("git did not run: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    #[test]
    fn a_patch_names_a_test_that_is_there() {
        let sources = [Source::new("tests/regress/rows.rs", "#[test]\nfn bug_01_rows_stay() {}\n")];
        let found = |patch: &str| unfound(patch, &sources).len();
        assert_eq!(found("Found by: cargo test -p p --test regress bug_01\n--- a/x\n"), 0);
        assert_eq!(found("Found by: cargo test -p p --lib rows::bug_01\n--- a/x\n"), 0);
        assert_eq!(found("Found by: cargo test -p p --test regress bug_77\n--- a/x\n"), 1);
        assert_eq!(found("--- a/x\n"), 1);
    }

    #[test]
    fn a_patch_of_other_code_does_not_apply() {
        let folder = std::env::temp_dir().join(format!("tidy-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let patch = folder.join("gone.patch");
        let head = "--- a/Cargo.toml\n+++ b/Cargo.toml\n@@ -1 +1 @@\n";
        std::fs::write(&patch, format!("{head}-no such line\n+another\n")).unwrap();
        let told = unapplied(&root(), &patch.display().to_string());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(told.unwrap().contains("does not apply"));
    }
}
