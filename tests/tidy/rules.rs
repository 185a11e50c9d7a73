//! Rule codes. `rfcs/RULES.md` lists every code of a protocol rule that the project cites, exactly
//! once. The law works in both directions: a cited code is listed, and a listed code is cited
//! by code, tests or an RFC. It must never accept a code whose text cannot be found on that page.

use crate::house::{Broken, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const PAGE: &str = "rfcs/RULES.md";
/// The rules that tests can leave out one at a time.
const SWITCHES: &str = "crates/manifest/src/rules.rs";
/// This file cites codes that do not exist.
const SELF: &str = "tests/tidy/rules.rs";

/// The folders in which a code must be a listed one.
const CITING: [&str; 6] = ["crates/", "tests/", "fuzz/", "benches/", "python/", "rfcs/"];
const ENDS: [&str; 6] = [".rs", ".py", ".pyi", ".md", ".fbs", ".sh"];

/// Words that have the shape of a code and are none: points in time, drawn in one file.
const OTHER_WORDS: [(&str, &str); 3] = [
    ("crates/manifest/src/state/history.rs", "T1"),
    ("crates/manifest/src/state/history.rs", "T2"),
    ("crates/manifest/src/state/history.rs", "T3"),
];

pub(crate) fn codes(root: &Path, sources: &[Source]) -> Vec<Broken> {
    let Some(page) = sources.iter().find(|source| source.path == PAGE) else {
        let text = "is missing; it lists the codes of all rules".to_owned();
        return vec![Broken { path: PAGE.to_owned(), line: 1, text }];
    };
    let mut broken = Vec::new();
    let listed = listed(page, &mut broken);
    let mut held = BTreeSet::new();
    for source in sources.iter().filter(|source| cites(source)) {
        for (at, line) in prose(source).lines().enumerate() {
            for code in line.split(|each| !is_word(each)).filter(|word| is_code(word)) {
                if OTHER_WORDS.contains(&(source.path.as_str(), code)) {
                    continue;
                }
                if !listed.contains_key(code) {
                    let text = format!("`{code}` is not in {PAGE}; correct it, or add the rule");
                    broken.push(Broken::new(source, at + 1, text));
                }
                held.insert(code.to_owned());
            }
        }
    }
    for (code, line) in listed.iter().filter(|(code, _)| !held.contains(*code)) {
        let text = format!("no code, test or RFC cites `{code}`; remove it");
        broken.push(Broken::new(page, *line, text));
    }
    files(root, page, &mut broken);
    switches(sources, page, &mut broken);
    broken
}

fn cites(source: &Source) -> bool {
    CITING.iter().any(|folder| source.path.starts_with(folder))
        && ENDS.iter().any(|end| source.path.ends_with(end))
        && !source.is_generated()
        && source.path != PAGE
        && source.path != SELF
}

/// The codes that begin a paragraph (`**N12.** A writer adopts …`), with their lines.
fn listed(page: &Source, broken: &mut Vec<Broken>) -> BTreeMap<String, usize> {
    let mut listed = BTreeMap::new();
    for (at, line) in page.text.lines().enumerate() {
        let Some(code) = begun(line) else { continue };
        if listed.insert(code.to_owned(), at + 1).is_some() {
            let text = format!("`{code}` is listed already; keep one of the two");
            broken.push(Broken::new(page, at + 1, text));
        }
    }
    listed
}

/// The code of the rule that begins in this line.
fn begun(line: &str) -> Option<&str> {
    let (code, _) = line.strip_prefix("**")?.split_once(".** ")?;
    is_code(code).then_some(code)
}

/// Comments and literals of Rust, Markdown outside of fences, the whole text of other files.
/// Lines keep their numbers.
pub(crate) fn prose(source: &Source) -> String {
    if source.is_rust() {
        let pairs = source.text.chars().zip(source.code.chars());
        return pairs
            .map(|(said, code)| if code == ' ' || said == '\n' { said } else { ' ' })
            .collect();
    }
    let mut fenced = false;
    let mut prose = String::with_capacity(source.text.len());
    for line in source.text.lines() {
        let fence = source.path.ends_with(".md") && line.trim_start().starts_with("```");
        fenced ^= fence;
        prose.push_str(if fenced || fence { "" } else { line });
        prose.push('\n');
    }
    prose
}

/// `%C3` in a URL and `P8=` in an argument are not codes.
fn is_word(each: char) -> bool {
    each.is_alphanumeric() || matches!(each, '_' | '%' | '=')
}

/// A capital letter and a number from 1 to 99. `L0` is the first level of tables.
fn is_code(word: &str) -> bool {
    let mut bytes = word.bytes();
    bytes.next().is_some_and(|each| each.is_ascii_uppercase())
        && matches!(word.len(), 2 | 3)
        && bytes.all(|each| each.is_ascii_digit())
        && word.get(1..2) != Some("0")
}

/// A quoted path leads to a file or a folder, and a file that is quoted under a rule cites it.
fn files(root: &Path, page: &Source, broken: &mut Vec<Broken>) {
    let mut rule = None;
    for (at, line) in page.text.lines().enumerate() {
        // An empty line ends a rule.
        rule = begun(line).or(rule.filter(|_| !line.is_empty()));
        let ours = |path: &&str| CITING.iter().any(|folder| path.starts_with(folder));
        for path in line.split('`').skip(1).step_by(2).filter(ours) {
            let place = root.join(path);
            if !place.exists() {
                broken.push(Broken::new(page, at + 1, format!("`{path}` does not exist")));
            }
            let (Some(code), Ok(text)) = (rule, std::fs::read_to_string(&place)) else { continue };
            if !text.split(|each| !is_word(each)).any(|word| word == code) {
                let text =
                    format!("`{path}` does not cite `{code}`; name another file, or cite it");
                broken.push(Broken::new(page, at + 1, text));
            }
        }
    }
}

/// Every rule that tests can leave out stands on the page, under the rule that it is part of.
fn switches(sources: &[Source], page: &Source, broken: &mut Vec<Broken>) {
    let Some(switches) = sources.iter().find(|source| source.path == SWITCHES) else { return };
    for (at, line) in switches.code.lines().enumerate() {
        let name = line.strip_prefix("    ").and_then(|rest| rest.strip_suffix(','));
        let variant = |name: &str| {
            name.starts_with(|each: char| each.is_ascii_uppercase())
                && name.bytes().all(|each| each.is_ascii_alphabetic())
        };
        let Some(name) = name.filter(|name| variant(name)) else { continue };
        let times = page.text.matches(&format!("`{name}`")).count();
        if times == 0 {
            let text = format!("`{name}` is not in {PAGE}; name it under its rule");
            broken.push(Broken::new(switches, at + 1, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str, path: &str, text: &str) -> Vec<String> {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let sources = [Source::new(PAGE, page), Source::new(path, text)];
        codes(root, &sources).into_iter().map(|each| each.text).collect()
    }

    #[test]
    fn a_cited_code_is_listed_and_a_listed_one_is_cited() {
        let page = "**Q7.** Oldest first.\n";
        assert_eq!(found(page, "crates/x/src/a.rs", "//! Order (rule Q7).\n"), [""; 0]);
        assert_eq!(found(page, "crates/x/src/a.rs", "//! Order (rules Q7, Q8).\n").len(), 1);
        assert_eq!(found(page, "crates/x/src/a.rs", "//! Order.\n").len(), 1, "never cited");
        assert_eq!(found(page, "rfcs/0001-x.md", "Rule Q7.\n"), [""; 0]);
        assert_eq!(found(page, "docs/x.md", "Rule Q7.\n").len(), 1, "cited by a guide only");
        assert_eq!(found(page, "rfcs/0001-x.md", "Rule Q9.\n").len(), 2);
        let twice = format!("{page}**Q7.** Again\n");
        assert_eq!(found(&twice, "tests/a.rs", "// Q7\n").len(), 1);
        assert_eq!(codes(Path::new("."), &[]).len(), 1, "the page itself is missing");
    }

    #[test]
    fn a_word_like_a_code_is_none() {
        let page = "**Q7.** Order\n";
        for text in [
            "// Q7, L0, LZ4, INT32, %C3%A9, P8=1, Q100, q9\n",
            "// Q7\nfn a(x: I8) -> U16 { I8(x) }\n",
        ] {
            assert_eq!(found(page, "crates/x/src/a.rs", text), [""; 0], "{text}");
        }
        assert_eq!(found(page, "crates/x/src/a.rs", "// Q7\nf(\"Q8: x\");\n").len(), 1);
        assert_eq!(found(page, "tests/a.md", "Q7\n```\nQ8\n```\n"), [""; 0]);
        assert_eq!(found(page, "tests/a.md", "Q7\n```\nx\n```\nQ8\n").len(), 1);
    }

    #[test]
    fn a_file_on_the_page_exists() {
        let page = |path: &str| format!("**Q7.** Order\n\nEnforced: `{path}`.\n");
        assert_eq!(found(&page("tests/tidy/rules.rs"), "tests/a.rs", "// Q7\n"), [""; 0]);
        assert_eq!(found(&page("tests/tidy/nothing.rs"), "tests/a.rs", "// Q7\n").len(), 1);
        let under = "**Q7.** Order.  \n*Tests:* `tests/tidy/main.rs`.\n";
        assert_eq!(found(under, "tests/a.rs", "// Q7\n").len(), 1, "not cited");
        let below = "**Q7.** Order.\n\nSee `tests/tidy/main.rs`.\n";
        assert_eq!(found(below, "tests/a.rs", "// Q7\n"), [""; 0]);
    }

    #[test]
    fn a_rule_that_can_be_left_out_is_on_the_page() {
        let text = "rules! {\n    /// Q7: without it a row is lost.\n    KeepOrder,\n}\n";
        assert_eq!(found("**Q7.** Order\n\n`KeepOrder`\n", SWITCHES, text), [""; 0]);
        assert_eq!(found("**Q7.** Order\n", SWITCHES, text).len(), 1);
    }
}
