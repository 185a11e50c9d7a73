//! Words of prose. The style guide (`docs/contributing/style.md`) asks for sentences with an actor;
//! this check finds pronouns and constructions that hide it, in comments, docstrings, texts and
//! Markdown. It must never accept one in any file.

use crate::house::{Broken, Source};
use crate::rules::prose;

/// Pronouns that are no subject of a technical sentence.
const PRONOUNS: [&str; 6] = ["whoever", "whomever", "whatever", "nobody", "somebody", "someone"];
/// Phrases that a stranger cannot read.
const PHRASES: [&str; 4] =
    ["as their texts say", "as its text says", "nothing names it", "needs no leave"];
/// Words that begin a sentence without its actor; a question may begin so.
const BEGINNINGS: [&str; 4] = [". What ", ". Who ", ". Whose ", ". Of "];
/// Words that begin a heading for which no reader searches.
const HEADINGS: [&str; 5] = ["What ", "Who ", "Whose ", "Of ", "Going "];

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
    for (at, line) in prose(source).lines().enumerate() {
        let lower = line.to_lowercase();
        let words = lower.split(|each: char| !each.is_alphanumeric() && each != '_');
        let pronouns = words.filter(|word| PRONOUNS.contains(word)).map(str::to_owned);
        let phrases = PHRASES.iter().filter(|phrase| lower.contains(*phrase));
        let begins = BEGINNINGS.iter().filter(|begin| line.contains(*begin) && !line.contains('?'));
        let title = line.trim_start_matches('#').trim_start();
        let is_heading = source.path.ends_with(".md") && line.starts_with('#');
        let heads = HEADINGS.iter().filter(|word| is_heading && title.starts_with(*word));
        let others = phrases.chain(begins).chain(heads).map(|text| text.trim().to_owned());
        for text in pronouns.chain(others) {
            let text = format!("`{text}`: name the actor (docs/contributing/style.md)");
            found.push(Broken::new(source, at + 1, text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        findings(&Source::new(path, text)).len()
    }

    #[test]
    fn hidden_actors_are_found() {
        assert_eq!(found("crates/x/src/a.rs", "/// Whoever reads it waits.\nfn nobody() {}\n"), 1);
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
    fn a_finding_in_any_file_is_broken() {
        for path in ["rfcs/1.md", "crates/engine/src/wal/a.rs", "tests/python/a.py"] {
            assert_eq!(plain(&[Source::new(path, "// nobody\n")]).len(), 1, "{path}");
            assert_eq!(plain(&[Source::new(path, "// the writer\n")]), [], "{path}");
        }
        assert_eq!(plain(&[Source::new(EXAMPLES[0], "// nobody\n")]), []);
    }
}
