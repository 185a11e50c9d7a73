//! Listings: prefixes, delimiters and pages, and the listings of stores that get them wrong.

use crate::bucket::{BucketState, StoredObject};
use crate::call::Call;
use crate::operations::Answer;
use crate::random::Random;
use crate::{time, xml};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::collections::BTreeMap;
use std::ops::Bound;

/// How a listing is wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disturbance {
    /// The newest objects are missing.
    Stale(usize),
    /// It has deleted names and duplicates, is out of order, and ignores where it should begin.
    Messy(u64),
}

/// Characters that S3 leaves as they are in a key of `encoding-type=url`, and in a signature.
pub(crate) const KEPT_IN_KEY: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// The most names of a page.
const PAGE: usize = 1000;

/// One line: an object, or a common prefix.
enum Line<'a> {
    Object(&'a str, &'a StoredObject),
    Folder(String),
}

impl Line<'_> {
    /// The position at which the next page continues: after a key, or after all keys of a common
    /// prefix.
    fn token(&self) -> String {
        match self {
            Line::Object(key, _) => format!("key {key}"),
            Line::Folder(prefix) => format!("folder {prefix}"),
        }
    }
}

/// The text that a page of this token begins after.
fn passed(token: &str) -> Option<String> {
    let key = token.strip_prefix("key ").map(str::to_owned);
    key.or_else(|| token.strip_prefix("folder ").map(end_of))
}

/// The answer to `GET /bucket?list-type=2`.
pub(crate) fn answer(
    bucket: &BucketState,
    call: &Call,
    disturbance: Option<Disturbance>,
) -> Result<Answer, Answer> {
    let most = call.parameter("max-keys").and_then(|most| most.parse().ok()).unwrap_or(PAGE);
    let most = most.min(PAGE);
    let token = call.parameter("continuation-token");
    let is_messy = matches!(disturbance, Some(Disturbance::Messy(_)));
    let start = call.parameter("start-after").filter(|_| !is_messy);
    let after = match token {
        Some(token) => passed(token).ok_or_else(|| {
            let text = "The continuation token provided is incorrect";
            Answer::error(400, "InvalidArgument", text)
        })?,
        None => start.unwrap_or_default().to_owned(),
    };
    let stale;
    let objects = match disturbance {
        Some(Disturbance::Stale(newest)) => {
            stale = without_newest(&bucket.objects, newest);
            &stale
        }
        _ => &bucket.objects,
    };
    let (mut lines, is_truncated) = page(objects, call, &after, most);
    let next = lines.last().map(Line::token);
    if let Some(Disturbance::Messy(seed)) = disturbance {
        disturb(&mut lines, bucket, call, seed);
    }
    Ok(document(call, &lines, next.filter(|_| is_truncated)))
}

fn without_newest(
    objects: &BTreeMap<String, StoredObject>,
    newest: usize,
) -> BTreeMap<String, StoredObject> {
    let mut numbers: Vec<u64> = objects.values().map(|object| object.number).collect();
    numbers.sort_unstable();
    let first = numbers.iter().rev().nth(newest.saturating_sub(1)).copied().unwrap_or(0);
    let old = objects.iter().filter(|(_, object)| object.number < first);
    old.map(|(key, object)| (key.clone(), object.clone())).collect()
}

/// At most `most` lines after `after`, and whether there are more.
fn page<'a>(
    objects: &'a BTreeMap<String, StoredObject>,
    call: &Call,
    after: &str,
    most: usize,
) -> (Vec<Line<'a>>, bool) {
    let prefix = call.parameter("prefix").unwrap_or_default();
    let delimiter = call.parameter("delimiter").filter(|delimiter| !delimiter.is_empty());
    let mut lines = Vec::new();
    let mut from = if after < prefix {
        Bound::Included(prefix.to_owned())
    } else {
        Bound::Excluded(after.to_owned())
    };
    while let Some((key, object)) = objects.range((from, Bound::Unbounded)).next() {
        let Some(rest) = key.strip_prefix(prefix) else { break };
        if lines.len() == most {
            return (lines, true);
        }
        let folder = delimiter.and_then(|delimiter| {
            let at = rest.find(delimiter)? + delimiter.len();
            Some(format!("{prefix}{}", rest.get(..at)?))
        });
        match folder {
            Some(folder) => {
                from = Bound::Excluded(end_of(&folder));
                lines.push(Line::Folder(folder));
            }
            None => {
                from = Bound::Excluded(key.clone());
                lines.push(Line::Object(key, object));
            }
        }
    }
    (lines, false)
}

/// A text after all keys below a common prefix.
fn end_of(folder: &str) -> String {
    format!("{folder}{}", char::MAX)
}

fn disturb<'a>(lines: &mut Vec<Line<'a>>, bucket: &'a BucketState, call: &Call, seed: u64) {
    let prefix = call.parameter("prefix").unwrap_or_default();
    let deleted = bucket.deleted.iter().filter(|(key, _)| key.starts_with(prefix));
    lines.extend(deleted.map(|(key, object)| Line::Object(key, object)));
    let mut random = Random::new(seed);
    let twice: Vec<(&str, &StoredObject)> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Object(key, object) => Some((*key, *object)),
            Line::Folder(_) => None,
        })
        .step_by(3)
        .collect();
    lines.extend(twice.into_iter().map(|(key, object)| Line::Object(key, object)));
    for at in (1..lines.len()).rev() {
        lines.swap(at, random.below(at + 1));
    }
}

fn document(call: &Call, lines: &[Line<'_>], next: Option<String>) -> Answer {
    let is_encoded = call.parameter("encoding-type") == Some("url");
    let shown = |name: &str| match is_encoded {
        true => utf8_percent_encode(name, KEPT_IN_KEY).to_string(),
        false => name.to_owned(),
    };
    let mut content = xml::element("Name", &call.bucket);
    for name in ["prefix", "delimiter", "start-after"] {
        let tag = match name {
            "prefix" => "Prefix",
            "delimiter" => "Delimiter",
            _ => "StartAfter",
        };
        let value = call.parameter(name).filter(|value| !value.is_empty() || name == "prefix");
        content.extend(value.map(|value| xml::element(tag, &shown(value))));
    }
    content.push_str(&xml::element("KeyCount", &lines.len().to_string()));
    content.push_str(&xml::element("IsTruncated", &next.is_some().to_string()));
    content.extend(next.map(|next| xml::element("NextContinuationToken", &next)));
    for line in lines {
        match line {
            Line::Object(key, object) => content.push_str(&format!(
                "<Contents>{}{}{}{}<StorageClass>STANDARD</StorageClass></Contents>",
                xml::element("Key", &shown(key)),
                xml::element("LastModified", &time::iso(object.modified)),
                xml::element("ETag", &object.etag),
                xml::element("Size", &object.bytes.len().to_string()),
            )),
            Line::Folder(folder) => {
                let folder = xml::element("Prefix", &shown(folder));
                content.push_str(&format!("<CommonPrefixes>{folder}</CommonPrefixes>"));
            }
        }
    }
    Answer::xml(200, xml::document("ListBucketResult", &content))
}
