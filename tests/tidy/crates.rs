//! Dependencies between crates. The manifests must match the table in ARCHITECTURE.md, and the
//! table must match its own shelves.

use crate::house::{Broken, Source};

/// The file with the table.
const MAP: &str = "ARCHITECTURE.md";

/// Names that no manifest on shelves 0 and 1 may contain, including tests: each brings a runtime, a
/// clock, randomness or I/O.
const IMPURE: [&str; 9] = [
    "tokio",
    "futures",
    "async-trait",
    "object_store",
    "reqwest",
    "rand",
    "getrandom",
    "rustix",
    "tracing",
];

/// The only crate below the bindings that may depend on Arrow.
const COLUMNS: &str = "siltstone-schema";

/// The only crate that may talk to object stores.
const STORE: &str = "siltstone-store";

/// One row of the table.
#[derive(Debug)]
struct Room {
    line: usize,
    shelf: u8,
    name: String,
    folder: String,
    uses: Vec<String>,
}

pub(crate) fn directions(sources: &[Source]) -> Vec<Broken> {
    let Some(map) = sources.iter().find(|source| source.path == MAP) else {
        return vec![Broken { path: MAP.to_owned(), line: 1, text: "is missing".to_owned() }];
    };
    let rooms = rooms(&map.text);
    let mut broken = shelves(map, &rooms);
    for manifest in sources.iter().filter(|source| source.path.ends_with("/Cargo.toml")) {
        let Some(folder) = manifest.path.strip_prefix("crates/") else { continue };
        let folder = folder.trim_end_matches("/Cargo.toml");
        match rooms.iter().find(|room| room.folder == format!("crates/{folder}")) {
            Some(room) => broken.extend(dependencies(manifest, room)),
            None => {
                let text = format!("is not in the table of {MAP}; a new crate needs an RFC");
                broken.push(Broken::new(manifest, 1, text));
            }
        }
    }
    broken
}

/// The rows `| shelf | crate | folder | uses | one line |` whose crate belongs to this project.
fn rooms(map: &str) -> Vec<Room> {
    let mut rooms = Vec::new();
    for (at, line) in map.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [shelf, name, folder, uses, _] = cells.as_slice() else { continue };
        let Some(shelf) = shelf.chars().next().and_then(|each| each.to_digit(10)) else { continue };
        let words = |cell: &str| -> Vec<String> {
            let quoted = cell.split('`').skip(1).step_by(2);
            quoted.map(str::to_owned).collect()
        };
        rooms.push(Room {
            line: at + 1,
            shelf: u8::try_from(shelf).unwrap_or(u8::MAX),
            name: words(name).concat(),
            folder: words(folder).concat(),
            uses: words(uses),
        });
    }
    rooms
}

/// A dependency points down only. A crate uses lower shelves; shelf 1 has one
/// exception, which the table shows: tables contain filters.
fn shelves(map: &Source, rooms: &[Room]) -> Vec<Broken> {
    let mut broken = Vec::new();
    for room in rooms {
        for used in &room.uses {
            let below = rooms.iter().find(|each| each.name == *used);
            let filters = room.name == "siltstone-sst" && used == "siltstone-bloom";
            if !filters && below.is_none_or(|below| below.shelf >= room.shelf) {
                let text = format!("`{}` uses `{used}`, which is on no lower shelf", room.name);
                broken.push(Broken::new(map, room.line, text));
            }
        }
    }
    broken
}

fn dependencies(manifest: &Source, room: &Room) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut inside = false;
    for (at, line) in manifest.text.lines().enumerate() {
        if let Some(section) = line.trim().strip_prefix('[') {
            inside = section.trim_end_matches(']').ends_with("dependencies");
            continue;
        }
        let name: String = line
            .chars()
            .take_while(|each| each.is_alphanumeric() || matches!(each, '-' | '_'))
            .collect();
        if !inside || name.is_empty() {
            continue;
        }
        let ours = name == "siltstone" || name.starts_with("siltstone-");
        let text = if ours && !room.uses.contains(&name) {
            format!("{} may not use {name}; {MAP} has who may use whom", room.name)
        } else if room.shelf < 2 && IMPURE.contains(&name.as_str()) {
            format!("{} is pure and may not use {name}; {STORE} has the effects", room.name)
        } else if name.starts_with("arrow") && room.shelf < 4 && room.name != COLUMNS {
            format!(
                "below the binding only {COLUMNS} knows Arrow, not {}: use {name} there",
                room.name
            )
        } else if name == "object_store" && room.name != STORE {
            format!("only {STORE} may use {name}")
        } else {
            continue;
        };
        broken.push(Broken::new(manifest, at + 1, text));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
| shelf | crate | folder | uses | one line |
| --- | --- | --- | --- | --- |
| 2 engine | `siltstone` | `crates/engine` | `siltstone-base`, `siltstone-sst` | x |
| 1 pure | `siltstone-sst` | `crates/sst` | `siltstone-base` | x |
| 0 words | `siltstone-base` | `crates/base` | | x |
";

    fn found(table: &str, path: &str, manifest: &str) -> Vec<String> {
        let sources = [Source::new(MAP, table), Source::new(path, manifest)];
        directions(&sources).into_iter().map(|broken| broken.text).collect()
    }

    #[test]
    fn an_arrow_down_is_fine_and_one_up_is_found() {
        let down = "[dependencies]\nsiltstone-base.workspace = true\nbytes.workspace = true\n";
        assert_eq!(found(TABLE, "crates/sst/Cargo.toml", down), [""; 0]);
        let up = "[dependencies]\nsiltstone-sst.workspace = true\n";
        assert_eq!(found(TABLE, "crates/base/Cargo.toml", up).len(), 1);
        let up = "[target.'cfg(unix)'.dev-dependencies]\nsiltstone = { path = \"../engine\" }\n";
        assert_eq!(found(TABLE, "crates/sst/Cargo.toml", up).len(), 1);
    }

    #[test]
    fn effects_on_a_pure_shelf_and_strange_crates_are_found() {
        let tokio = "[dependencies]\ntokio = { workspace = true, features = [\"rt\"] }\n";
        assert_eq!(found(TABLE, "crates/sst/Cargo.toml", tokio).len(), 1);
        assert_eq!(found(TABLE, "crates/engine/Cargo.toml", tokio), [""; 0]);
        let arrow = "[dependencies]\narrow-array.workspace = true\n";
        assert_eq!(found(TABLE, "crates/engine/Cargo.toml", arrow).len(), 1);
        let columns = TABLE.replace("siltstone-sst", "siltstone-schema");
        assert_eq!(found(&columns, "crates/sst/Cargo.toml", arrow), [""; 0]);
        assert_eq!(found(TABLE, "crates/new/Cargo.toml", "[package]\n").len(), 1);
    }

    #[test]
    fn a_table_that_points_up_is_found() {
        let table = TABLE.replace("`crates/base` | |", "`crates/base` | `siltstone-sst` |");
        assert_eq!(found(&table, "crates/base/Cargo.toml", "[package]\n").len(), 1);
    }
}
