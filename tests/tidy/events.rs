//! The table of log events in `docs/operations.md` has exactly the events that the sources log, so
//! that an operator can look each of them up. It never compares texts, only names.

use crate::house::{Broken, Source};
use std::collections::BTreeMap;

const PAGE: &str = "docs/operations.md";
const HEADING: &str = "## Log events\n";
/// A log line begins with the name of its event.
const BEGIN: &str = "\"event=";

pub(crate) fn events(sources: &[Source]) -> Vec<Broken> {
    let Some(page) = sources.iter().find(|source| source.path == PAGE) else {
        let text = "does not exist".to_owned();
        return vec![Broken { path: PAGE.to_owned(), line: 1, text }];
    };
    let listed = listed_in(page);
    let mut logged = BTreeMap::new();
    for source in sources.iter().filter(|source| is_product(source)) {
        for (at, line) in source.text.lines().enumerate() {
            for name in line.split(BEGIN).skip(1).map(name_of) {
                logged.entry(name).or_insert((source, at + 1));
            }
        }
    }
    let mut broken = Vec::new();
    for (name, (source, line)) in &logged {
        if !listed.contains_key(name) {
            let text = format!("event `{name}` is not in the table \"Log events\" of {PAGE}");
            broken.push(Broken::new(source, *line, text));
        }
    }
    for (name, line) in &listed {
        if !logged.contains_key(name) {
            let text = format!("event `{name}` is logged nowhere; remove the row");
            broken.push(Broken::new(page, *line, text));
        }
    }
    broken
}

fn is_product(source: &Source) -> bool {
    source.library().is_some()
        || (source.is_python() && source.path.starts_with("python/siltstone/"))
}

fn name_of(text: &str) -> &str {
    text.split(|each: char| !each.is_alphanumeric() && each != '_').next().unwrap_or_default()
}

/// The names in the second column of the table, with their lines.
fn listed_in(page: &Source) -> BTreeMap<&str, usize> {
    let Some((before, after)) = page.text.split_once(HEADING) else { return BTreeMap::new() };
    let section = after.split("\n## ").next().unwrap_or_default();
    let first = before.lines().count() + 2;
    let rows = section.lines().enumerate().filter_map(|(at, line)| {
        let name = line.strip_prefix("| `")?.split('`').nth(2)?;
        Some((name, first + at))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rows: &str, code: &str) -> Vec<String> {
        let head = "| Logger | Event |\n|---|---|\n";
        let page = format!("# O\n\n{HEADING}Lines.\n\n{head}{rows}\n## More\n| `a` | `other` |\n");
        let sources = [Source::new(PAGE, &page), Source::new("crates/x/src/a.rs", code)];
        events(&sources).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_are_compared_in_both_directions() {
        let row = "| `siltstone.gc` | `round_fails` | warning |\n";
        let code = "fn a() {\n    log::warn!(\"event=round_fails kind={kind}\");\n}\n";
        assert_eq!(found(row, code), [""; 0]);
        assert_eq!(
            found("", code),
            ["crates/x/src/a.rs:2: event `round_fails` is not in the table \"Log events\" of \
              docs/operations.md"]
        );
        assert_eq!(
            found(row, ""),
            ["docs/operations.md:8: event `round_fails` is logged nowhere; remove the row"]
        );
        assert_eq!(events(&[]).len(), 1, "without the page nothing can be looked up");
    }
}
