//! The rules of the repository. Each test reports the file, the line and the remedy.
//! CONTRIBUTING.md gives the reason for each rule; every check is itself tested on small bad
//! inputs.

mod crates;
mod effects;
mod events;
mod floors;
mod house;
mod mask;
mod mutations;
mod names;
mod papers;
mod rules;
mod size;
mod text;
mod unbuilt;
mod words;

use house::{Broken, Source, read_house};
use std::path::PathBuf;

/// Known violations, each with the reason. The list may only shrink: an unused entry fails, and so
/// does a list of another length than [`MOST_EXCEPTIONS`].
const EXCEPTIONS: [Exception; 0] = [];
const MOST_EXCEPTIONS: usize = 0;

/// One file that may violate one rule.
struct Exception {
    law: &'static str,
    path: &'static str,
    reason: &'static str,
}

/// The folder that holds the workspace.
fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Findings of a rule without an exception; unused exceptions are findings too.
fn left_over(law: &str, found: Vec<Broken>, exceptions: &[Exception]) -> Vec<String> {
    let ours: Vec<&Exception> = exceptions.iter().filter(|each| each.law == law).collect();
    let idle = ours.iter().filter(|each| !found.iter().any(|broken| broken.path == each.path));
    let mut texts: Vec<String> = idle
        .map(|each| {
            format!("{}: {} is not broken any more ({}); strike it", each.path, law, each.reason)
        })
        .collect();
    let rest = found.iter().filter(|broken| !ours.iter().any(|each| each.path == broken.path));
    texts.extend(rest.map(ToString::to_string));
    texts
}

fn hold(law: &str, check: impl Fn(&[Source]) -> Vec<Broken>) -> Result<(), String> {
    let sources = read_house(&root()).map_err(|error| error.to_string())?;
    if sources.len() < 50 {
        return Err(format!("only {} files were found; is the root wrong?", sources.len()));
    }
    let texts = left_over(law, check(&sources), &EXCEPTIONS);
    if texts.is_empty() { Ok(()) } else { Err(format!("\n{}\n", texts.join("\n"))) }
}

/// `assert!` with the findings, one per line.
macro_rules! laws {
    ($($(#[$doc:meta])* $law:ident: $check:expr;)+) => {
        $(
            $(#[$doc])*
            #[test]
            fn $law() {
                if let Err(texts) = hold(stringify!($law), $check) {
                    panic!("{texts}");
                }
            }
        )+
    };
}

laws! {
    /// Dependencies between crates point down.
    crates_depend_downwards: crates::directions;
    /// Inside the engine an import points down only.
    floors_import_downwards: floors::downwards;
    /// No cycle joins modules of a pure crate.
    pure_modules_have_no_circle: floors::circles;
    /// No two types of a crate's production code have one name.
    types_have_names_of_their_own: names::types;
    /// Clock, randomness, tasks, environment and store stay in their homes.
    effects_stay_in_their_homes: effects::effects;
    /// At most 600 lines a file, tests not counted.
    files_are_short: size::files;
    /// At most 70 lines a function.
    functions_are_short: size::functions;
    /// At most 100 characters a line.
    lines_are_short: size::lines;
    /// At most 120 characters a line of Markdown, tables, fences and links apart.
    lines_of_prose_are_short: size::prose;
    /// Every file states its purpose.
    files_begin_with_their_purpose: text::heads;
    /// No marks of unfinished work, no paths of one machine.
    words_are_clean: text::words;
    /// `unsafe` is only in the permitted files.
    unsafe_stays_in_its_home: text::unsafe_code;
    /// Every RFC has a title, a status and its place in the index.
    rfcs_are_in_the_index: papers::rfcs;
    /// RFC 0002 and the parser agree on object names.
    object_names_parse: papers::object_names;
    /// README's list of missing features matches the refusals in the code.
    readme_names_what_is_not_built: unbuilt::unbuilt;
    /// The documentation lists exactly the events that are logged.
    log_events_are_documented: events::events;
    /// Every cited rule code is in rfcs/RULES.md, and every code there is cited.
    rule_codes_are_listed: |sources: &[Source]| rules::codes(&root(), sources);
    /// Sentences name their actor.
    prose_names_the_actor: words::plain;
    /// Every planted mistake can be planted, and names the tests that find it.
    patches_apply: |sources: &[Source]| mutations::patches(&root(), sources);
    /// Links lead to files.
    links_lead_somewhere: |sources: &[Source]| papers::links(&root(), sources);
}

#[test]
fn the_list_of_exceptions_only_shrinks() {
    let listed = EXCEPTIONS.len();
    assert_eq!(listed, MOST_EXCEPTIONS, "MOST_EXCEPTIONS follows the list down, and never up");
    let exceptions = [Exception { law: "a", path: "x.rs", reason: "old" }];
    let broken = |path: &str| Broken { path: path.to_owned(), line: 3, text: "long".to_owned() };
    assert_eq!(left_over("a", vec![broken("x.rs")], &exceptions), [""; 0]);
    assert_eq!(left_over("a", vec![broken("x.rs"), broken("y.rs")], &exceptions).len(), 1);
    assert_eq!(left_over("a", vec![], &exceptions).len(), 1, "an idle exception must be struck");
    assert_eq!(left_over("b", vec![broken("y.rs")], &exceptions), ["y.rs:3: long"]);
}
