//! A request, told apart by method, path and query.

use bytes::Bytes;
use hyper::{HeaderMap, Method, Uri};
use percent_encoding::percent_decode_str;
use std::fmt;
use std::ops::Range;

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Read an object or a part of it.
    Get,
    /// Read the attributes of an object, or ask for a bucket.
    Head,
    /// Store an object.
    Put,
    /// Delete an object.
    Delete,
    /// Delete up to 1,000 objects.
    DeleteMany,
    /// List the objects of a bucket.
    List,
    /// Copy an object.
    Copy,
    /// Begin a multipart upload.
    CreateUpload,
    /// Store a part of a multipart upload.
    Part,
    /// Complete a multipart upload.
    Complete,
    /// Abort a multipart upload.
    Abort,
    /// List the parts of a multipart upload, or the uploads of a bucket.
    ListUploads,
    /// Create or delete a bucket, or ask for its region.
    Bucket,
}

/// Every kind, with its name in a fault plan and in the log.
const KINDS: [(Kind, &str); 13] = [
    (Kind::Get, "get"),
    (Kind::Head, "head"),
    (Kind::Put, "put"),
    (Kind::Delete, "delete"),
    (Kind::DeleteMany, "delete-many"),
    (Kind::List, "list"),
    (Kind::Copy, "copy"),
    (Kind::CreateUpload, "create-upload"),
    (Kind::Part, "part"),
    (Kind::Complete, "complete"),
    (Kind::Abort, "abort"),
    (Kind::ListUploads, "list-uploads"),
    (Kind::Bucket, "bucket"),
];

impl Kind {
    /// All kinds.
    pub fn all() -> impl Iterator<Item = Kind> {
        KINDS.into_iter().map(|(kind, _)| kind)
    }

    /// The name in a fault plan and in the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// The kind of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Kind> {
        KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }

    /// Whether it changes what the server has.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Kind::Get | Kind::Head | Kind::List | Kind::ListUploads)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) bucket: String,
    /// Empty for a request about a bucket.
    pub(crate) key: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) method: Method,
    /// Decoded, as it is signed.
    pub(crate) path: String,
}

impl Call {
    /// `None` for a request that S3 does not have, or this server does not.
    pub(crate) fn read(method: Method, uri: &Uri, headers: HeaderMap, body: Bytes) -> Option<Call> {
        let path = percent_decode_str(uri.path()).decode_utf8().ok()?;
        let place = path.strip_prefix('/')?;
        let (bucket, key) = place.split_once('/').unwrap_or((place, ""));
        let query = query(uri.query().unwrap_or_default());
        let kind = kind(&method, key.is_empty(), &query, &headers)?;
        let (bucket, key) = (bucket.to_owned(), key.to_owned());
        let path = path.into_owned();
        Some(Call { kind, bucket, key, query, headers, body, method, path })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The place of the request: the key, or the prefix of a listing.
    pub(crate) fn place(&self) -> &str {
        if self.key.is_empty() { self.parameter("prefix").unwrap_or_default() } else { &self.key }
    }

    /// The first and the last byte that are asked for, as far as they are given. `None` without a
    /// single range: several ranges and unknown units ask for the whole object.
    pub(crate) fn range(&self) -> Option<(Option<u64>, Option<u64>)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let number =
            |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
        match (number(first)?, number(last)?) {
            (None, None) => None,
            (Some(first), Some(last)) if last < first => None,
            range => Some(range),
        }
    }
}

/// The bytes of an object of `length` bytes that a range names; `None` if it lies outside.
pub(crate) fn within(range: (Option<u64>, Option<u64>), length: u64) -> Option<Range<u64>> {
    let range = match range {
        (Some(first), last) => {
            first..last.map_or(length, |last| length.min(last.saturating_add(1)))
        }
        (None, last) => length.saturating_sub(last.unwrap_or(0))..length,
    };
    (range.start < range.end).then_some(range)
}

/// Names and values in the order of the query, decoded.
fn query(text: &str) -> Vec<(String, String)> {
    let decoded = |part: &str| {
        let spaced = part.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let split = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    split.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn kind(
    method: &Method,
    is_bucket: bool,
    query: &[(String, String)],
    headers: &HeaderMap,
) -> Option<Kind> {
    let has = |name: &str| query.iter().any(|(known, _)| known == name);
    Some(match (method.as_str(), is_bucket) {
        ("GET", true) if has("uploads") => Kind::ListUploads,
        ("GET", true) if has("location") => Kind::Bucket,
        ("GET", true) => Kind::List,
        ("HEAD", _) => Kind::Head,
        ("PUT" | "DELETE", true) => Kind::Bucket,
        ("POST", true) if has("delete") => Kind::DeleteMany,
        ("GET", false) if has("uploadId") => Kind::ListUploads,
        ("GET", false) => Kind::Get,
        ("PUT", false) if has("uploadId") => Kind::Part,
        ("PUT", false) if headers.contains_key("x-amz-copy-source") => Kind::Copy,
        ("PUT", false) => Kind::Put,
        ("POST", false) if has("uploads") => Kind::CreateUpload,
        ("POST", false) if has("uploadId") => Kind::Complete,
        ("DELETE", false) if has("uploadId") => Kind::Abort,
        ("DELETE", false) => Kind::Delete,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, uri: &str, headers: &[(&'static str, &'static str)]) -> Option<Call> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        Call::read(method.parse().unwrap(), &uri.parse().unwrap(), map, Bytes::new())
    }

    #[test]
    fn requests_are_told_apart() {
        let copy = [("x-amz-copy-source", "b/a")];
        for (method, uri, headers, kind) in [
            ("GET", "/b/a", &[][..], Kind::Get),
            ("HEAD", "/b/a", &[], Kind::Head),
            ("PUT", "/b/a%20b", &[], Kind::Put),
            ("PUT", "/b/a", &copy, Kind::Copy),
            ("PUT", "/b/a?partNumber=1&uploadId=x", &copy, Kind::Part),
            ("POST", "/b/a?uploads", &[], Kind::CreateUpload),
            ("POST", "/b/a?uploadId=x", &[], Kind::Complete),
            ("DELETE", "/b/a?uploadId=x", &[], Kind::Abort),
            ("DELETE", "/b/a", &[], Kind::Delete),
            ("POST", "/b?delete", &[], Kind::DeleteMany),
            ("GET", "/b?list-type=2&prefix=a%2Fb", &[], Kind::List),
            ("GET", "/b?uploads", &[], Kind::ListUploads),
            ("PUT", "/b/", &[], Kind::Bucket),
        ] {
            let call = call(method, uri, headers).unwrap();
            assert_eq!(call.kind, kind, "{method} {uri}");
            assert_eq!(call.bucket, "b");
            assert_eq!(Kind::parse(kind.name()), Some(kind));
        }
        assert!(call("PATCH", "/b/a", &[]).is_none());
        assert_eq!(call("PUT", "/b/a%20b", &[]).unwrap().key, "a b");
        assert_eq!(call("GET", "/b?prefix=a%2Fb", &[]).unwrap().place(), "a/b");
    }

    #[test]
    fn a_range_is_within_the_object() {
        let range = |text| call("GET", "/b/a", &[("range", text)]).unwrap().range();
        assert_eq!(range("bytes=2-3").and_then(|range| within(range, 10)), Some(2..4));
        assert_eq!(range("bytes=2-").and_then(|range| within(range, 10)), Some(2..10));
        assert_eq!(range("bytes=-3").and_then(|range| within(range, 10)), Some(7..10));
        assert_eq!(range("bytes=-30").and_then(|range| within(range, 10)), Some(0..10));
        assert_eq!(range("bytes=8-99").and_then(|range| within(range, 10)), Some(8..10));
        assert_eq!(range("bytes=10-").map(|range| within(range, 10)), Some(None));
        for whole in ["bytes=0-1,3-4", "rows=1-2", "bytes=-", "bytes=3-2"] {
            assert_eq!(range(whole), None, "{whole}");
        }
    }
}
