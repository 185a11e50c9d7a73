//! Floors: inside the engine an import points down only, and no cycle joins modules of a crate
//! below it. The order of the engine's folders is that of their table in ARCHITECTURE.md, the upper
//! first.

use crate::house::{Broken, Source, line_of};
use std::collections::{BTreeMap, BTreeSet};

/// The file with the table, and the beginning of its first line.
const MAP: &str = "ARCHITECTURE.md";
const TABLE: &str = "| floor |";
/// The folder of the engine.
const ENGINE: &str = "crates/engine/src/";
/// Folders of the crates below the engine: their modules must have no cycle.
const ACYCLIC: [&str; 8] =
    ["base", "bloom", "manifest", "memtable", "merge", "schema", "sst", "store"];

pub(crate) fn downwards(sources: &[Source]) -> Vec<Broken> {
    let Some(map) = sources.iter().find(|source| source.path == MAP) else {
        return vec![Broken { path: MAP.to_owned(), line: 1, text: "is missing".to_owned() }];
    };
    let floors = floors(&map.text);
    let height = |name: &str| floors.iter().position(|floor| floor == name);
    let mut broken = Vec::new();
    for source in sources.iter().filter(|source| source.library() == Some("engine")) {
        let path = source.path.strip_prefix(ENGINE).unwrap_or_default();
        let Some((own, _)) = path.split_once('/') else {
            if path != "lib.rs" {
                let text = "stands on no floor; move it into a folder of the engine";
                broken.push(Broken::new(source, 1, text));
            }
            continue;
        };
        let Some(at) = height(own) else {
            broken.push(Broken::new(
                source,
                1,
                format!("`{own}` is not among the floors of {MAP}"),
            ));
            continue;
        };
        for (line, used) in named(source) {
            let text = match height(&used) {
                _ if used == own => continue,
                Some(below) if below > at => continue,
                Some(_) => format!("`{own}` may not use `{used}`, which is no floor below it"),
                None => format!("`crate::{used}` is on no floor; name it where it stands"),
            };
            broken.push(Broken::new(source, line, text));
        }
    }
    broken
}

/// The folders of the table, the uppermost first; several in one row are on one floor, and those in
/// later rows are lower.
fn floors(map: &str) -> Vec<String> {
    let rows = map.lines().skip_while(|line| !line.starts_with(TABLE)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let names = rows.flat_map(|row| {
        let cell = row.trim_matches('|').split('|').next().unwrap_or_default();
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    });
    names.map(|name| name.trim_end_matches('/').to_owned()).collect()
}

pub(crate) fn circles(sources: &[Source]) -> Vec<Broken> {
    ACYCLIC.iter().flat_map(|folder| circles_of(sources, folder)).collect()
}

/// The imports that are part of a cycle between the modules of one crate.
fn circles_of(sources: &[Source], folder: &str) -> Vec<Broken> {
    let root = format!("crates/{folder}/src/");
    let ours = || sources.iter().filter(|source| source.library() == Some(folder));
    let module = |source: &Source| {
        let path = source.path.strip_prefix(&root).unwrap_or_default();
        path.split(['/', '.']).next().unwrap_or_default().to_owned()
    };
    let modules: BTreeSet<String> = ours().map(module).filter(|name| name != "lib").collect();
    let lib = ours().find(|source| module(source) == "lib");
    let exported = lib.map(|lib| exports(&lib.code)).unwrap_or_default();
    let mut edges = Vec::new();
    for source in ours().filter(|source| module(source) != "lib") {
        let own = module(source);
        for (line, used) in named(source) {
            let used = exported.get(&used).filter(|_| !modules.contains(&used)).unwrap_or(&used);
            if *used != own && modules.contains(used) {
                edges.push((own.clone(), used.clone(), source, line));
            }
        }
    }
    // A module that uses no remaining module, or is used by none, is in no cycle.
    let mut left = modules;
    loop {
        let before = left.len();
        let among = |from: &str, to: &str, left: &BTreeSet<String>| {
            left.contains(from) && left.contains(to)
        };
        let ends = left.iter().filter(|name| {
            let uses = edges.iter().any(|(from, to, ..)| from == *name && among(from, to, &left));
            let used = edges.iter().any(|(from, to, ..)| to == *name && among(from, to, &left));
            !(uses && used)
        });
        let ends: Vec<String> = ends.cloned().collect();
        left.retain(|name| !ends.contains(name));
        if left.len() == before {
            break;
        }
    }
    let of_circles = edges.iter().filter(|(from, to, ..)| left.contains(from) && left.contains(to));
    let broken = of_circles.map(|(from, to, source, line)| {
        let text =
            format!("`{from}` uses `{to}`, and stands in a circle with it; part what both need");
        Broken::new(source, *line, text)
    });
    broken.collect()
}

/// The names that a crate's root takes from its modules, public or not, with these modules.
fn exports(lib: &str) -> BTreeMap<String, String> {
    let mut exported = BTreeMap::new();
    for (start, _) in lib.match_indices("use ") {
        let rest = lib.get(start + "use ".len()..).unwrap_or_default();
        let statement = rest.split(';').next().unwrap_or_default();
        let mut words =
            statement.split(|each: char| !is_word(each)).filter(|word| !word.is_empty());
        let Some(module) = words.next() else { continue };
        exported.extend(words.map(|word| (word.to_owned(), module.to_owned())));
    }
    exported
}

/// The first part of every path from the root of the crate that product code uses, with its line.
fn named(source: &Source) -> Vec<(usize, String)> {
    let code = &source.code;
    let mut found = Vec::new();
    for (start, _) in code.match_indices("crate::") {
        let before = code.get(..start).unwrap_or_default().chars().next_back();
        let line = line_of(code, start);
        let tests = source.test_lines.get(line - 1).copied().unwrap_or_default();
        if tests || before.is_some_and(|each| is_word(each) || each == '$') {
            continue;
        }
        let rest = code.get(start + "crate::".len()..).unwrap_or_default();
        found.extend(heads(rest).into_iter().map(|head| (line, head)));
    }
    found
}

/// The names at the start of a path, several if it begins with braces.
fn heads(path: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|each| is_word(*each)).collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![word(path)] };
    let mut heads = vec![word(group.trim_start())];
    let mut depth = 0usize;
    for (at, each) in group.char_indices() {
        match each {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                heads.push(word(group.get(at + 1..).unwrap_or_default().trim_start()));
            }
            _ => {}
        }
    }
    heads.retain(|head| !head.is_empty());
    heads
}

fn is_word(each: char) -> bool {
    each.is_alphanumeric() || each == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str =
        "\n| floor | holds |\n| --- | --- |\n| `api/` | a |\n| `wal/` | b |\n\n| `no/` |\n";

    fn of(files: &[(&str, &str)]) -> Vec<Source> {
        let map = Source::new(MAP, TWO);
        files.iter().map(|(path, text)| Source::new(path, text)).chain([map]).collect()
    }

    #[test]
    fn an_import_goes_down_only() {
        let broken = |path: &str, text: &str| downwards(&of(&[(path, text)])).len();
        assert_eq!(broken("crates/engine/src/api/db.rs", "use crate::wal::log::Log;\n"), 0);
        assert_eq!(broken("crates/engine/src/wal/log.rs", "use crate::wal::task;\n"), 0);
        assert_eq!(broken("crates/engine/src/wal/log.rs", "use crate::api::db;\n"), 1);
        assert_eq!(broken("crates/engine/src/wal/log.rs", "fn a() { crate::api::db::b() }\n"), 1);
        assert_eq!(
            broken("crates/engine/src/wal/log.rs", "use crate::{wal::a, api::{b, c}};\n"),
            1
        );
        assert_eq!(broken("crates/engine/src/wal/log.rs", "// crate::api\n"), 0);
        assert_eq!(broken("crates/engine/src/wal/log.rs", "use crate::Env;\n"), 1);
        assert_eq!(broken("crates/engine/src/attic/log.rs", "use crate::wal::a;\n"), 1);
        assert_eq!(broken("crates/engine/src/log.rs", ""), 1);
        assert_eq!(broken("crates/engine/src/lib.rs", "use crate::api::b;\n"), 0);
        let test = "#[cfg(test)]\nmod tests {\n    use crate::api::b;\n}\n";
        assert_eq!(broken("crates/engine/src/wal/log.rs", test), 0);
    }

    #[test]
    fn modules_are_in_no_circle() {
        let lib = ("crates/sst/src/lib.rs", "mod a;\nmod b;\nmod c;\npub use c::{Last, Least};\n");
        let broken = |a: &str, b: &str, c: &str| {
            let files = [
                lib,
                ("crates/sst/src/a.rs", a),
                ("crates/sst/src/b/mod.rs", b),
                ("crates/sst/src/c.rs", c),
            ];
            circles(&of(&files)).len()
        };
        assert_eq!(broken("use crate::b::B;\n", "use crate::c::C;\n", ""), 0);
        assert_eq!(broken("use crate::b::B;\n", "use crate::c::C;\n", "use crate::a;\n"), 3);
        assert_eq!(broken("use crate::b::B;\n", "use crate::Last;\n", "use crate::a;\n"), 3);
        assert_eq!(broken("use crate::b::B;\n", "", "use crate::a;\n"), 0);
    }
}
