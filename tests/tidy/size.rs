//! Limits of size: the length of a file, a function and a line.

use crate::house::{Broken, Source, item_end, line_of};

/// Lines of a file, tests not counted.
const FILE_LINES: usize = 600;
/// Lines of a function, from its signature to its end.
const FUNCTION_LINES: usize = 70;
/// Characters of a line.
const LINE_CHARACTERS: usize = 100;
/// Characters of a line of Markdown: two of them fit side by side where changes are read.
const PROSE_CHARACTERS: usize = 120;

pub(crate) fn files(sources: &[Source]) -> Vec<Broken> {
    let mut broken = Vec::new();
    for source in sources.iter().filter(|source| is_code(source)) {
        let lines = source.product_lines().count();
        if lines > FILE_LINES {
            let text = format!("{lines} lines without tests; split it, {FILE_LINES} is the most");
            broken.push(Broken::new(source, 1, text));
        }
    }
    broken
}

pub(crate) fn functions(sources: &[Source]) -> Vec<Broken> {
    let mut broken = Vec::new();
    for source in sources.iter().filter(|source| is_code(source)) {
        let found =
            if source.is_rust() { rust_functions(source) } else { python_functions(source) };
        for (name, first, last) in found {
            let lines = last + 1 - first;
            if lines > FUNCTION_LINES {
                let text = format!(
                    "`{name}` has {lines} lines; give its parts names, {FUNCTION_LINES} is the most"
                );
                broken.push(Broken::new(source, first, text));
            }
        }
    }
    broken
}

pub(crate) fn lines(sources: &[Source]) -> Vec<Broken> {
    let mut broken = Vec::new();
    let wrapped = sources.iter().filter(|source| {
        !source.is_generated()
            && ![".md", ".toml", "Makefile"].iter().any(|end| source.path.ends_with(end))
    });
    for source in wrapped {
        for (at, line) in source.text.lines().enumerate() {
            let characters = line.chars().count();
            if characters > LINE_CHARACTERS {
                let text = format!("{characters} characters; {LINE_CHARACTERS} is the most");
                broken.push(Broken::new(source, at + 1, text));
            }
        }
    }
    broken
}

/// Lines of Markdown. The limit excludes parts that cannot be broken: rows of tables, fenced text
/// (diagrams, output), and the targets of links.
pub(crate) fn prose(sources: &[Source]) -> Vec<Broken> {
    let mut broken = Vec::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".md")) {
        let mut is_fenced = false;
        for (at, line) in source.text.lines().enumerate() {
            let start = line.trim_start();
            if start.starts_with("```") {
                is_fenced = !is_fenced;
            }
            let characters = without_targets(line);
            if !is_fenced && !start.starts_with('|') && characters > PROSE_CHARACTERS {
                let text = format!(
                    "{characters} characters of prose; break it, {PROSE_CHARACTERS} is the most"
                );
                broken.push(Broken::new(source, at + 1, text));
            }
        }
    }
    broken
}

/// The characters of a line of Markdown without the targets of its links.
fn without_targets(line: &str) -> usize {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    line.chars().count() - targets.map(|target| target.chars().count()).sum::<usize>()
}

fn is_code(source: &Source) -> bool {
    !source.is_generated() && (source.is_rust() || source.is_python())
}

/// Name, first and last line of every function with a body.
fn rust_functions(source: &Source) -> Vec<(String, usize, usize)> {
    let code = source.code.as_str();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let starts_word = code.get(..at).and_then(|before| before.chars().next_back());
        if starts_word.is_some_and(|each| each.is_alphanumeric() || each == '_') {
            continue;
        }
        let after = code.get(at + 3..).unwrap_or_default();
        let name: String =
            after.chars().take_while(|each| each.is_alphanumeric() || *each == '_').collect();
        let end = item_end(code, at);
        if !name.is_empty() && code.get(end..).is_some_and(|rest| rest.starts_with('}')) {
            found.push((name, line_of(code, at), line_of(code, end)));
        }
    }
    found
}

/// The same for Python, by indentation. Blank lines after a body do not count, and neither do the
/// lines of the docstring, because documentation of a Rust function is outside of it, too.
fn python_functions(source: &Source) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let depth = indent(line);
        let words = line.trim_start();
        let words = words.strip_prefix("async ").unwrap_or(words);
        let Some(name) = words.strip_prefix("def ") else { continue };
        let name = name.split('(').next().unwrap_or_default().to_owned();
        let inside = lines.iter().enumerate().skip(at + 1).take_while(|(_, line)| {
            // The closing parenthesis of a signature has the indentation of its `def`.
            line.trim().is_empty() || indent(line) > depth || line.trim_start().starts_with(')')
        });
        let last =
            inside.filter(|(_, line)| !line.trim().is_empty()).last().map_or(at, |(at, _)| at);
        found.push((
            name,
            at + 1,
            last + 1 - docstring_lines(lines.get(at..=last).unwrap_or_default(), depth),
        ));
    }
    found
}

/// The lines of the docstring of a function whose `def` is the first of `lines`, at this depth.
fn docstring_lines(lines: &[&str], depth: usize) -> usize {
    let quote = "\"\"\"";
    // The signature ends with a colon; the docstring is the first statement after it.
    let signature = lines.iter().position(|line| {
        let line = line.trim_end();
        line.ends_with(':') && (indent(line) == depth)
    });
    let body = lines.iter().skip(signature.unwrap_or(0) + 1);
    let doc: Vec<&str> = body.map(|line| line.trim()).collect();
    let Some(first) = doc.first().filter(|line| line.starts_with(quote)) else { return 0 };
    if first.len() >= 2 * quote.len() && first.ends_with(quote) {
        return 1;
    }
    doc.iter().skip(1).position(|line| line.ends_with(quote)).map_or(0, |end| end + 2)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Vec<Source> {
        vec![Source::new(path, text)]
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_are_not_counted() {
        let code = "const A: u8 = 1;\n".repeat(600);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "const B: u8 = 1;\n".repeat(99));
        assert_eq!(files(&source("crates/x/src/a.rs", &format!("{code}{tests}"))), []);
        let found = files(&source("crates/x/src/a.rs", &format!("{code}\n{tests}")));
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn a_long_function_is_found_despite_its_strings() {
        for (lines, count) in [(68, 0), (69, 1)] {
            let body = "    x(\"}\"); // }\n".repeat(lines);
            let rust = format!("trait T {{ fn a(&self) -> [u8; 4]; }}\nfn long() {{\n{body}}}\n");
            let found = functions(&source("crates/x/src/a.rs", &rust));
            assert_eq!(found.len(), count, "{found:?}");
            assert!(found.iter().all(|broken| broken.line == 2));
        }
    }

    #[test]
    fn the_docstring_of_a_python_function_is_not_counted() {
        let body = "    x()\n".repeat(69);
        let doc = format!("    \"\"\"Does x.\n{}    \"\"\"\n", "\n    More.\n".repeat(20));
        for (doc, signature) in
            [(doc.as_str(), "def a():"), ("    \"\"\"Does x.\"\"\"\n", "def a() -> None:")]
        {
            let fits = functions(&source("python/a.py", &format!("{signature}\n{doc}{body}")));
            assert_eq!(fits, []);
            let text = format!("{signature}\n{doc}{body}    x()\n");
            assert_eq!(functions(&source("python/a.py", &text)).len(), 1);
        }
    }

    #[test]
    fn a_long_python_function_is_found() {
        for (lines, count) in [(67, 0), (68, 1)] {
            let body = "        x()\n".repeat(lines);
            let text =
                format!("class A:\n    async def long(\n        self,\n    ):\n{body}\n\nx = 1\n");
            let found = functions(&source("python/a.py", &text));
            assert_eq!(found.len(), count, "{found:?}");
        }
    }

    #[test]
    fn a_long_line_is_found() {
        let found = lines(&source("crates/x/src/a.rs", &format!("ok\n// {}\n", "é".repeat(98))));
        assert_eq!(found.first().map(|broken| broken.line), Some(2));
        assert_eq!(lines(&source("crates/x/src/a.rs", &"é".repeat(100))), []);
    }

    #[test]
    fn a_long_line_of_prose_is_found_and_what_cannot_be_broken_is_not() {
        let found = |text: &str| {
            let found = prose(&source("docs/a.md", text));
            found.iter().map(|broken| broken.line).collect::<Vec<_>>()
        };
        let long = "é ".repeat(60) + "x";
        assert_eq!(found(&"é".repeat(120)), []);
        assert_eq!(found(&format!("a\n{long}\n- {long}\n")), [2, 3]);
        assert_eq!(found(&format!("| {long} |\n  | {long} |\n")), []);
        assert_eq!(found(&format!("```text\n{long}\n```\n{long}\n")), [4]);
        let link = format!("see [the notes]({}.md) {}", "n".repeat(200), "y".repeat(100));
        assert_eq!(found(&link), []);
        assert_eq!(found(&format!("{link} and so on")), [1]);
        assert_eq!(prose(&source("crates/x/src/a.rs", &long)), []);
    }
}
