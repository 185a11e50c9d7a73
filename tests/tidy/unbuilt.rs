//! README's list of missing features equals the features that are refused with Unsupported, by
//! name, in both directions: a feature that is built leaves the list, and one that is only refused
//! is on it. The section goes with its last item.

use crate::house::{Broken, Source};
use std::collections::BTreeSet;

const README: &str = "README.md";
const HEADING: &str = "## Not built yet\n";

/// Prefixes of the name in a refusal, which ends with the next quotation mark.
const NAMED: [&str; 2] = ["unsupported(py, \"", "_not_built(\""];
/// Methods of a class that refuse: `unbuilt!(Class: one, other);`.
const METHODS: &str = "unbuilt!(";
/// Options that are refused: quoted, up to the end of the list.
const OPTIONS: &str = "NOT_BUILT: &[&str] = &[";
/// A text that refuses by itself has the name in backticks.
const TEXT: &str = "not built yet";

pub(crate) fn unbuilt(sources: &[Source]) -> Vec<Broken> {
    let Some(readme) = sources.iter().find(|source| source.path == README) else {
        let text = "does not exist".to_owned();
        return vec![Broken { path: README.to_owned(), line: 1, text }];
    };
    // Without the section everything is built.
    let section = list_of(readme);
    let (line, list) = section.unwrap_or((1, ""));
    let refused: BTreeSet<String> = sources.iter().flat_map(refused_in).collect();
    let mut listed = BTreeSet::new();
    let mut broken = Vec::new();
    if section.is_some() && !list.contains("\n- ") {
        let text = format!("`{}` lists nothing: remove the section", HEADING.trim());
        broken.push(Broken::new(readme, line, text));
    }
    for item in list.split("\n- ").skip(1) {
        let names: Vec<String> = backticked(item).collect();
        if names.is_empty() {
            let text = format!("`{}` names nothing that refuses", item.trim());
            broken.push(Broken::new(readme, line, text));
        }
        listed.extend(names);
    }
    for name in listed.difference(&refused) {
        let text = format!("`{name}` is called not built, but nothing refuses by that name");
        broken.push(Broken::new(readme, line, text));
    }
    for name in refused.difference(&listed) {
        let text = format!("`{name}` refuses as not built, and is not on the list");
        broken.push(Broken::new(readme, line, text));
    }
    broken
}

/// The list under the heading, and the heading's line.
fn list_of(readme: &Source) -> Option<(usize, &str)> {
    let (before, after) = readme.text.split_once(HEADING)?;
    let list = after.split("\n## ").next().unwrap_or_default();
    Some((before.lines().count() + 1, list))
}

/// The features refused in a file of the library.
fn refused_in(source: &Source) -> Vec<String> {
    let rust = source.library().is_some();
    let python = source.is_python() && source.path.starts_with("python/siltstone/");
    if !(rust || python) {
        return Vec::new();
    }
    let behind = |start| source.text.split(start).skip(1);
    let up_to = |text: &str, end: char| text.split(end).next().unwrap_or_default().to_owned();
    let mut found: Vec<String> =
        NAMED.iter().flat_map(|start| behind(*start)).map(|text| up_to(text, '"')).collect();
    for methods in behind(METHODS).map(|text| up_to(text, ')')) {
        let Some((class, names)) = methods.split_once(':') else { continue };
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        found.extend(names.map(|name| format!("{}.{name}", class.trim())));
    }
    for options in behind(OPTIONS).map(|text| up_to(text, ']')) {
        found.extend(options.split('"').skip(1).step_by(2).map(str::to_owned));
    }
    if rust {
        let lines = source.text.lines().filter(|line| !line.trim_start().starts_with("//"));
        found.extend(lines.filter(|line| line.contains(TEXT)).flat_map(backticked));
    }
    found
}

/// The words between backticks.
fn backticked(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(list: &str, code: &[(&str, &str)]) -> Vec<String> {
        let readme = format!("# S\n\n{HEADING}\nRefuses.\n\n{list}\n## More\n\n- `other`\n");
        let mut sources = vec![Source::new(README, &readme)];
        sources.extend(code.iter().map(|(path, text)| Source::new(path, text)));
        unbuilt(&sources).into_iter().map(|broken| broken.text).collect()
    }

    #[test]
    fn the_list_holds_both_ways() {
        let code = [
            ("crates/python/src/a.rs", "unbuilt!(Db: one, two);\nErr(unsupported(py, \"put(x)\"))"),
            ("crates/engine/src/b.rs", "const NOT_BUILT: &[&str] = &[\"disk\"];\n"),
            ("crates/engine/src/c.rs", "/// `no` is not built yet\n\"`wal` is not built yet\"\n"),
            ("python/siltstone/d.py", "raise _not_built(\"clone\")\n"),
            ("tests/python/e.py", "_not_built(\"elsewhere\")\n"),
        ];
        let whole = "- methods: `Db.one`,\n  `Db.two`, `put(x)`\n- `disk`, `wal`, `clone`\n";
        assert_eq!(found(whole, &code), [""; 0]);
        let built = format!("{whole}- merges: `merge`\n");
        assert_eq!(found(&built, &code).len(), 1, "what is built is still listed");
        let short = whole.replace(", `clone`", "");
        assert_eq!(found(&short, &code).len(), 1, "what refuses is not listed");
        let vague = format!("{whole}- back-pressure\n");
        assert_eq!(found(&vague, &code).len(), 1, "an item that names nothing can not be held");
        assert_eq!(found("", &[]).len(), 1, "a section without items");
        let bare = Source::new(README, "# S\n");
        assert_eq!(unbuilt(std::slice::from_ref(&bare)).len(), 0, "nothing refuses");
        let refuses = Source::new("python/siltstone/d.py", code[3].1);
        assert_eq!(unbuilt(&[bare, refuses]).len(), 1, "the list itself is missing");
        assert_eq!(unbuilt(&[]).len(), 1, "there is no README");
    }
}
