//! The fault plan: which requests fail, and how. Each fault is one that real stores and the
//! networks before them show; a rule says for which requests, how often and how likely.

use crate::call::Kind;
use crate::random::Random;
use std::collections::BTreeMap;
use std::time::Duration;

/// How a request fails.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Nothing is done, and the answer has this status and code. With 503 or 429 and seconds, the
    /// answer has a `Retry-After`.
    Refuse {
        /// The status, such as 503.
        status: u16,
        /// The code of the error, such as `SlowDown`.
        code: String,
        /// The value of `Retry-After`.
        retry_after: Option<u32>,
    },
    /// The request is applied, and the answer has this status.
    ApplyThenRefuse {
        /// The status, such as 500.
        status: u16,
        /// The code of the error, such as `InternalError`.
        code: String,
    },
    /// The connection is reset before anything is done.
    ResetBefore,
    /// The request is applied, and the connection is reset instead of an answer.
    ResetAfter,
    /// Nothing is done, and no answer comes for this time; then the connection ends.
    HangBefore(Duration),
    /// The request is applied, and no answer comes for this time; then the connection ends.
    HangAfter(Duration),
    /// The connection is reset immediately, and the request is applied after this time.
    LandLate(Duration),
    /// The request arrives twice, and the second answer is sent.
    Twice,
    /// The connection is reset within the body of the answer.
    ResetInBody,
    /// The body of the answer stops for this time, and then the connection ends.
    StallInBody(Duration),
    /// The body of the answer comes at this many bytes per second.
    Trickle(u64),
    /// The body of the answer is shorter than the object, and its announced length is too.
    ShortBody,
    /// One bit of the body of the answer is wrong.
    WrongBytes,
    /// A GET with a range gets the whole object.
    WholeForRange,
    /// A GET with a range gets another range of the object.
    WrongRange,
    /// The ETag of the answer is another one at every request.
    WrongEtag,
    /// An object that exists is not found.
    Missing,
    /// The listing lacks this many of the newest objects.
    StaleList(usize),
    /// The listing has deleted names and duplicates, is out of order and ignores its start.
    MessyList,
    /// Every second key of a bulk delete fails, in an answer with status 200.
    PartlyFailedDelete,
    /// Nothing is done, and the answer has status 200 with the document of an error.
    ErrorInSuccess,
    /// Nothing is done, and the answer is a web page with status 200.
    WebPage,
    /// Conditions of a write are ignored.
    IgnoreConditions,
    /// Conditions of a write are checked this long before it happens.
    LateWrite(Duration),
}

/// The names of faults in a text, each with what its value is and an example of it.
pub const NAMES: [(&str, &str); 24] = [
    ("refuse", "STATUS:CODE[:SECONDS], such as 503:SlowDown:2"),
    ("apply-then-refuse", "STATUS:CODE, such as 500:InternalError"),
    ("reset-before", ""),
    ("reset-after", ""),
    ("hang-before", "MILLISECONDS"),
    ("hang-after", "MILLISECONDS"),
    ("land-late", "MILLISECONDS"),
    ("twice", ""),
    ("reset-in-body", ""),
    ("stall-in-body", "MILLISECONDS"),
    ("trickle", "BYTES_PER_SECOND"),
    ("short-body", ""),
    ("wrong-bytes", ""),
    ("whole-for-range", ""),
    ("wrong-range", ""),
    ("wrong-etag", ""),
    ("missing", ""),
    ("stale-list", "NEWEST_OBJECTS"),
    ("messy-list", ""),
    ("partly-failed-delete", ""),
    ("error-in-success", ""),
    ("web-page", ""),
    ("ignore-conditions", ""),
    ("late-write", "MILLISECONDS"),
];

impl Fault {
    /// The name in a text and in the log.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Fault::Refuse { .. } => "refuse",
            Fault::ApplyThenRefuse { .. } => "apply-then-refuse",
            Fault::ResetBefore => "reset-before",
            Fault::ResetAfter => "reset-after",
            Fault::HangBefore(_) => "hang-before",
            Fault::HangAfter(_) => "hang-after",
            Fault::LandLate(_) => "land-late",
            Fault::Twice => "twice",
            Fault::ResetInBody => "reset-in-body",
            Fault::StallInBody(_) => "stall-in-body",
            Fault::Trickle(_) => "trickle",
            Fault::ShortBody => "short-body",
            Fault::WrongBytes => "wrong-bytes",
            Fault::WholeForRange => "whole-for-range",
            Fault::WrongRange => "wrong-range",
            Fault::WrongEtag => "wrong-etag",
            Fault::Missing => "missing",
            Fault::StaleList(_) => "stale-list",
            Fault::MessyList => "messy-list",
            Fault::PartlyFailedDelete => "partly-failed-delete",
            Fault::ErrorInSuccess => "error-in-success",
            Fault::WebPage => "web-page",
            Fault::IgnoreConditions => "ignore-conditions",
            Fault::LateWrite(_) => "late-write",
        }
    }

    /// Reads `name` or `name=value`, as [`NAMES`] has them.
    #[must_use]
    pub fn parse(text: &str) -> Option<Fault> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let millis = || value.parse().ok().map(Duration::from_millis);
        let mut parts = value.split(':');
        Some(match name {
            "refuse" => Fault::Refuse {
                status: parts.next()?.parse().ok()?,
                code: parts.next().unwrap_or_default().to_owned(),
                retry_after: match parts.next() {
                    Some(seconds) => Some(seconds.parse().ok()?),
                    None => None,
                },
            },
            "apply-then-refuse" => Fault::ApplyThenRefuse {
                status: parts.next()?.parse().ok()?,
                code: parts.next().unwrap_or_default().to_owned(),
            },
            "reset-before" => Fault::ResetBefore,
            "reset-after" => Fault::ResetAfter,
            "hang-before" => Fault::HangBefore(millis()?),
            "hang-after" => Fault::HangAfter(millis()?),
            "land-late" => Fault::LandLate(millis()?),
            "twice" => Fault::Twice,
            "reset-in-body" => Fault::ResetInBody,
            "stall-in-body" => Fault::StallInBody(millis()?),
            "trickle" => Fault::Trickle(value.parse().ok().filter(|rate| *rate > 0)?),
            "short-body" => Fault::ShortBody,
            "wrong-bytes" => Fault::WrongBytes,
            "whole-for-range" => Fault::WholeForRange,
            "wrong-range" => Fault::WrongRange,
            "wrong-etag" => Fault::WrongEtag,
            "missing" => Fault::Missing,
            "stale-list" => Fault::StaleList(value.parse().ok()?),
            "messy-list" => Fault::MessyList,
            "partly-failed-delete" => Fault::PartlyFailedDelete,
            "error-in-success" => Fault::ErrorInSuccess,
            "web-page" => Fault::WebPage,
            "ignore-conditions" => Fault::IgnoreConditions,
            "late-write" => Fault::LateWrite(millis()?),
            _ => return None,
        })
    }

    /// Whether a request of this kind can fail so.
    #[must_use]
    pub fn concerns(&self, kind: Kind) -> bool {
        match self {
            Fault::ResetInBody | Fault::StallInBody(_) | Fault::Trickle(_) => {
                matches!(kind, Kind::Get | Kind::List)
            }
            Fault::ShortBody | Fault::WrongBytes | Fault::WholeForRange | Fault::WrongRange => {
                kind == Kind::Get
            }
            Fault::Missing => matches!(kind, Kind::Get | Kind::Head),
            Fault::StaleList(_) | Fault::MessyList => kind == Kind::List,
            Fault::PartlyFailedDelete => kind == Kind::DeleteMany,
            Fault::LandLate(_) => kind.writes(),
            Fault::IgnoreConditions | Fault::LateWrite(_) => {
                matches!(kind, Kind::Put | Kind::Copy | Kind::Complete)
            }
            _ => true,
        }
    }
}

/// A fault, and the requests that it is for.
#[derive(Clone, Debug)]
pub struct Rule {
    fault: Fault,
    kind: Option<Kind>,
    key: String,
    skip: u64,
    count: u64,
    probability: f64,
}

impl Rule {
    /// A fault for all requests that it can concern.
    #[must_use]
    pub fn new(fault: Fault) -> Rule {
        let key = "*".to_owned();
        Rule { fault, kind: None, key, skip: 0, count: u64::MAX, probability: 1.0 }
    }

    /// For requests of one kind only.
    #[must_use]
    pub fn on(mut self, kind: Kind) -> Rule {
        self.kind = Some(kind);
        self
    }

    /// For keys of this pattern only, where `*` stands for any text. For a listing the prefix is
    /// compared.
    #[must_use]
    pub fn key(mut self, pattern: &str) -> Rule {
        pattern.clone_into(&mut self.key);
        self
    }

    /// After this many requests.
    #[must_use]
    pub fn skip(mut self, skip: u64) -> Rule {
        self.skip = skip;
        self
    }

    /// At most so often.
    #[must_use]
    pub fn count(mut self, count: u64) -> Rule {
        self.count = count;
        self
    }

    /// With this probability.
    #[must_use]
    pub fn probability(mut self, probability: f64) -> Rule {
        self.probability = probability;
        self
    }

    /// Reads `FAULT [on=KIND] [key=PATTERN] [skip=N] [count=N] [probability=P]`.
    ///
    /// # Errors
    /// The word that is not understood.
    pub fn parse(text: &str) -> Result<Rule, String> {
        let mut words = text.split_whitespace();
        let fault = words.next().unwrap_or_default();
        let known = Fault::parse(fault).ok_or_else(|| format!("`{fault}` is no fault"))?;
        let mut rule = Rule::new(known);
        for word in words {
            let wrong = || format!("`{word}` is not understood");
            let (name, value) = word.split_once('=').ok_or_else(wrong)?;
            match name {
                "on" => rule.kind = Some(Kind::parse(value).ok_or_else(wrong)?),
                "key" => value.clone_into(&mut rule.key),
                "skip" => rule.skip = value.parse().map_err(|_| wrong())?,
                "count" => rule.count = value.parse().map_err(|_| wrong())?,
                "probability" => {
                    let probability = value.parse().ok();
                    let valid = probability.filter(|share| (0.0..=1.0).contains(share));
                    rule.probability = valid.ok_or_else(wrong)?;
                }
                _ => return Err(wrong()),
            }
        }
        Ok(rule)
    }

    fn is_for(&self, kind: Kind, key: &str) -> bool {
        self.kind.is_none_or(|wanted| wanted == kind)
            && self.fault.concerns(kind)
            && is_like(key, &self.key)
    }
}

/// Whether a text has the form of a pattern in which `*` stands for any text.
fn is_like(text: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(text) = text.strip_prefix(first) else { return false };
    rest.is_empty()
        || text.char_indices().any(|(at, _)| text.get(at..).is_some_and(|end| is_like(end, rest)))
        || is_like("", rest)
}

/// The rules of a server, and how often each fault happened.
#[derive(Debug)]
pub(crate) struct FaultPlan {
    rules: Vec<Rule>,
    random: Random,
    injected: BTreeMap<&'static str, u64>,
}

impl FaultPlan {
    pub(crate) fn new(rules: Vec<Rule>, seed: u64) -> FaultPlan {
        FaultPlan { rules, random: Random::new(seed), injected: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    pub(crate) fn heal(&mut self) {
        self.rules.clear();
    }

    pub(crate) fn injected(&self) -> BTreeMap<&'static str, u64> {
        self.injected.clone()
    }

    /// The fault of a request: that of the first rule that is for it and whose turn it is.
    pub(crate) fn draw(&mut self, kind: Kind, key: &str) -> Option<Fault> {
        for rule in &mut self.rules {
            if rule.count == 0 || !rule.is_for(kind, key) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            if rule.probability < 1.0 && self.random.share() >= rule.probability {
                continue;
            }
            rule.count = rule.count.saturating_sub(u64::from(rule.count != u64::MAX));
            *self.injected.entry(rule.fault.name()).or_default() += 1;
            return Some(rule.fault.clone());
        }
        None
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.random.next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_from_text() {
        let rule = "refuse=503:SlowDown:2 on=put key=*/wal/* skip=1 count=2 probability=1";
        let mut plan = FaultPlan::new(vec![Rule::parse(rule).unwrap()], 1);
        assert_eq!(plan.draw(Kind::Put, "db/wal/1"), None, "skipped");
        assert_eq!(plan.draw(Kind::Get, "db/wal/1"), None, "another kind");
        assert_eq!(plan.draw(Kind::Put, "db/manifest/1"), None, "another key");
        let fault =
            Fault::Refuse { status: 503, code: "SlowDown".to_owned(), retry_after: Some(2) };
        assert_eq!(plan.draw(Kind::Put, "db/wal/1"), Some(fault.clone()));
        assert_eq!(plan.draw(Kind::Put, "db/wal/2"), Some(fault));
        assert_eq!(plan.draw(Kind::Put, "db/wal/3"), None, "used up");
        assert_eq!(plan.injected().get("refuse"), Some(&2));
        for wrong in ["", "refuse", "no-such", "twice on=x", "twice probability=2", "twice x"] {
            assert!(Rule::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_name_is_read_and_shown() {
        for (name, value) in NAMES {
            let example = match value {
                "" => name.to_owned(),
                value if value.starts_with("STATUS") => format!("{name}=503:SlowDown"),
                _ => format!("{name}=7"),
            };
            assert_eq!(Fault::parse(&example).map(|fault| fault.name()), Some(name), "{example}");
        }
    }

    #[test]
    fn a_seed_repeats_its_draws() {
        let draws = |seed| {
            let rule = Rule::new(Fault::Twice).probability(0.5);
            let mut plan = FaultPlan::new(vec![rule], seed);
            (0..64).map(|_| plan.draw(Kind::Put, "a").is_some()).collect::<Vec<_>>()
        };
        assert_eq!(draws(3), draws(3));
        assert_ne!(draws(3), draws(4));
    }

    #[test]
    fn patterns_match_whole_keys() {
        for (text, pattern, expected) in [
            ("db/wal/1", "*/wal/*", true),
            ("db/wal/1", "db/wal/1", true),
            ("db/wal/1", "db/wal", false),
            ("db/wal/1", "*wal", false),
            ("db/wal/1.sst", "*.sst", true),
            ("", "*", true),
        ] {
            assert_eq!(is_like(text, pattern), expected, "{text} {pattern}");
        }
    }
}
