//! Words of prose. The style guide (`docs/contributing/style.md`) asks for sentences with an actor;
//! this check finds pronouns and constructions that hide it, in comments, docstrings, texts,
//! Markdown and the names of functions. It must never accept one in any file.

use crate::house::{Broken, Source};
use crate::rules::prose;

/// Pronouns that are no subject of a technical sentence, and no part of a name.
const PRONOUNS: [&str; 7] =
    ["whoever", "whomever", "whatever", "nobody", "somebody", "someone", "anybody"];
/// Phrases that a stranger cannot read.
const PHRASES: [&str; 4] =
    ["as their texts say", "as its text says", "nothing names it", "needs no leave"];
/// Words that begin a sentence without its actor; a question may begin so.
const BEGINNINGS: [&str; 4] = ["What ", "Who ", "Whose ", "Of "];
/// Words that begin a heading for which no reader searches.
const HEADINGS: [&str; 5] = ["What ", "Who ", "Whose ", "Of ", "Going "];
/// Words that begin the name of a function without its subject. (`of_…` is a constructor.)
const NAMES: [&str; 3] = ["what", "who", "whose"];
/// Marks before the first sentence of a comment, a docstring, a paragraph or an item of a list.
const MARKS: [&str; 10] =
    ["/// ", "//! ", "// ", "r\"\"\"", "\"\"\"", "#: ", "# ", "- ", "* ", "**"];

/// These files show what not to write.
const EXAMPLES: [&str; 2] = ["tests/tidy/words.rs", "docs/contributing/style.md"];

pub(crate) fn plain(sources: &[Source]) -> Vec<Broken> {
    sources.iter().filter(|source| is_read(source)).flat_map(findings).collect()
}

fn is_read(source: &Source) -> bool {
    let ends = [".rs", ".md", ".py", ".pyi"];
    ends.iter().any(|end| source.path.ends_with(end))
        && !source.is_generated()
        && !EXAMPLES.contains(&source.path.as_str())
}

fn findings(source: &Source) -> Vec<Broken> {
    let mut found = Vec::new();
    let prose = prose(source);
    let mut before = "";
    for ((at, line), code) in prose.lines().enumerate().zip(source.text.lines()) {
        let is_markdown = source.path.ends_with(".md");
        // Names are compared too; fenced examples of Markdown are not.
        let read = if is_markdown { line } else { code }.to_lowercase();
        let words = read.split(|each: char| !each.is_alphanumeric());
        let pronouns = words.filter(|word| PRONOUNS.contains(word)).map(str::to_owned);
        let lower = line.to_lowercase();
        let phrases = PHRASES.iter().filter(|phrase| lower.contains(*phrase));
        let first = first_sentence(line, before, is_markdown);
        let begins = BEGINNINGS.iter().filter(|begin| {
            let later = line
                .match_indices(*begin)
                .any(|(at, _)| line.get(..at).is_some_and(|head| head.ends_with(". ")));
            (later || first.is_some_and(|text| text.starts_with(*begin))) && !line.contains('?')
        });
        let title = line.trim_start_matches('#').trim_start();
        let is_heading = is_markdown && line.starts_with('#');
        let heads = HEADINGS.iter().filter(|word| is_heading && title.starts_with(*word));
        let names = named(code).filter(|_| !is_markdown);
        let others = phrases.chain(begins).chain(heads).map(|text| text.trim().to_owned());
        for text in pronouns.chain(others).chain(names) {
            let text = format!("`{text}`: name the actor (docs/contributing/style.md)");
            found.push(Broken::new(source, at + 1, text));
        }
        before = line;
    }
    found
}

/// The text after the marks, if a comment, a docstring, a paragraph or an item begins in the line.
fn first_sentence<'l>(line: &'l str, before: &str, is_markdown: bool) -> Option<&'l str> {
    let (mut text, before) = (line.trim_start(), before.trim_start());
    if is_markdown && line.starts_with('#') {
        return None;
    }
    // A comment goes on if the line before has the same mark and a text behind it.
    let mark = MARKS.iter().find(|mark| text.starts_with(**mark));
    let is_item = mark.is_some_and(|mark| ["- ", "* "].contains(mark) || mark.contains('"'));
    let goes_on = match mark {
        _ if is_markdown => !before.is_empty(),
        Some(mark) => before.strip_prefix(mark).is_some_and(|rest| !rest.trim().is_empty()),
        None => true,
    };
    if goes_on && !is_item {
        return None;
    }
    while let Some(rest) = MARKS.iter().find_map(|mark| text.strip_prefix(*mark)) {
        text = rest;
    }
    Some(text)
}

/// The name of the function in this line, if it begins without a subject.
fn named(code: &str) -> Option<String> {
    let code = code.trim_start();
    let starts = ["fn ", "def "];
    let (_, rest) = starts.iter().find_map(|start| match code.strip_prefix(start) {
        Some(rest) => Some(("", rest)),
        None => code.split_once(&format!(" {start}")).filter(|(head, _)| is_qualified(head)),
    })?;
    let name = rest.split(|each: char| !each.is_alphanumeric() && each != '_').next()?;
    let number = |word: &&str| word.bytes().all(|each| each.is_ascii_digit());
    let mut words =
        name.split('_').skip_while(|word| ["test", "bug", "peer"].contains(word) || number(word));
    let first = words.next()?;
    (NAMES.contains(&first) && words.next().is_some()).then(|| name.to_owned())
}

/// `pub(crate) async` and the like.
fn is_qualified(head: &str) -> bool {
    let mut words = head.split(' ');
    words.all(|word| word.starts_with("pub") || ["async", "const", "unsafe"].contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        findings(&Source::new(path, text)).len()
    }

    #[test]
    fn hidden_actors_are_found() {
        assert_eq!(found("crates/x/src/a.rs", "/// Whoever reads it waits.\nfn a() {}\n"), 1);
        assert_eq!(
            found("crates/x/src/a.rs", "fn a() -> &'static str {\n\"somebody has it\"\n}\n"),
            1
        );
        assert_eq!(found("docs/a.md", "# What is kept\nText. Of these, two stay. What now?\n"), 1);
        assert_eq!(found("docs/a.md", "It is kept. Of these, two stay.\n"), 1);
        assert_eq!(found("docs/a.md", "```\nnobody\n```\n"), 0);
        assert_eq!(found("python/a.py", "\"\"\"Raises as their texts say.\"\"\"\n"), 1);
    }

    #[test]
    fn the_first_sentence_is_read_too() {
        for (path, text, count) in [
            ("a.rs", "    /// What it holds.\n", 1),
            ("a.rs", "/// It holds\n/// What it holds.\n", 0),
            ("a.rs", "/// It holds.\n///\n/// Of these.\n", 1),
            ("a.rs", "a(); // Who asks.\n", 1),
            ("a.rs", "/// Whatsoever.\n", 0),
            ("a.py", "    \"\"\"What it holds.\n", 1),
            ("a.py", "# One\n# Of two.\n", 0),
            ("a.py", "# Of two.\n", 1),
            ("a.md", "Text\n\nOf two, one.\n- Of two, one.\nOf two\n", 2),
            ("a.md", "What is it?\n", 0),
        ] {
            assert_eq!(found(path, text), count, "{text}");
        }
    }

    #[test]
    fn names_are_read_too() {
        for (path, text, count) in [
            ("a.rs", "fn what_stays() {}\n", 1),
            ("a.rs", "pub(crate) async fn who_stays() {}\n", 1),
            ("a.rs", "fn bug_07_what_stays() {}\n", 1),
            ("a.rs", "fn it_names_nobody() {}\n", 1),
            ("a.rs", "let nobody = 1;\n", 1),
            ("a.rs", "fn what() {}\nfn a_rest_of_what_stays() {}\n", 0),
            ("a.py", "def test_whose_it_is() -> None:\n", 1),
            ("a.py", "    async def test_it() -> None:\n", 0),
        ] {
            assert_eq!(found(path, text), count, "{text}");
        }
    }

    #[test]
    fn a_finding_in_any_file_is_broken() {
        for path in ["rfcs/1.md", "crates/engine/src/wal/a.rs", "tests/python/a.py"] {
            assert_eq!(plain(&[Source::new(path, "// nobody\n")]).len(), 1, "{path}");
            assert_eq!(plain(&[Source::new(path, "// the writer\n")]), [], "{path}");
        }
        assert_eq!(plain(&[Source::new(EXAMPLES[0], "// nobody\n")]), []);
    }
}
