//! Places of stores, as URLs name them: what a URL says, before a store is made of it.

use crate::options::StoreOptions;
use siltstone_base::{Error, Result};
use std::borrow::Cow;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The provider of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    /// S3, or a store that speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

impl Provider {
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Provider::S3 => "s3",
            Provider::Gcs => "gs",
            Provider::Azure => "az",
        }
    }
}

/// The `file:` URL of a folder; `None` if its path is not valid UTF-8.
pub(crate) fn of_folder(root: &Path) -> Option<String> {
    let mut url = "file://".to_owned();
    for byte in root.to_str()?.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
    Some(url)
}

/// The folder of a `file:` URL; `None` for any other URL.
pub(crate) fn folder(url: &str) -> Option<PathBuf> {
    match place(url, &StoreOptions::default()).ok()? {
        StorePlace::Local(path) if url.starts_with("file://") => Some(PathBuf::from(&*path)),
        _ => None,
    }
}

/// Provider, bucket and path of a URL of an object store; `None` for any other URL.
pub(crate) fn in_bucket(url: &str) -> Option<(Provider, &str, String)> {
    match place(url, &StoreOptions::default()).ok()? {
        StorePlace::Remote(provider, bucket, root) => Some((provider, bucket, root)),
        _ => None,
    }
}

pub(crate) fn absolute_folder(path: &str) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| {
        Error::invalid("a path is empty or cannot be made absolute")
            .with("path", path)
            .caused_by(error)
    })
}

/// A parsed URL.
pub(crate) enum StorePlace<'a> {
    /// A path of the file system.
    Local(Cow<'a, str>),
    /// A name in the memory of this process.
    Memory(&'a str),
    /// A bucket, and a path in it without leading and trailing slashes.
    Remote(Provider, &'a str, String),
}

pub(crate) fn place<'a>(url: &'a str, options: &StoreOptions) -> Result<StorePlace<'a>> {
    let Some((scheme, rest)) = split_scheme(url) else {
        options.expect_none("a local path")?;
        return local(Cow::Borrowed(url));
    };
    let provider = match scheme.to_ascii_lowercase().as_str() {
        "s3" | "s3a" => Provider::S3,
        "gs" => Provider::Gcs,
        "az" | "azure" | "abfs" => Provider::Azure,
        "file" => {
            options.expect_none("file:")?;
            return local(Cow::Owned(file_path(rest)?));
        }
        "memory" => {
            options.expect_none("memory:")?;
            if rest.is_empty() {
                return Err(Error::invalid("a memory: URL needs a name, as in memory://name"));
            }
            return Ok(StorePlace::Memory(rest));
        }
        unknown => {
            let text = "unknown URL scheme; known are s3, gs, az, file and memory";
            return Err(Error::invalid(text).with("scheme", unknown));
        }
    };
    let (bucket, root) = bucket_and_root(scheme, rest)?;
    Ok(StorePlace::Remote(provider, bucket, root))
}

/// Splits off the scheme; `None` for a plain path. One letter before the colon is a drive, not a
/// scheme.
fn split_scheme(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let mut letters = scheme.bytes();
    let is_scheme = scheme.len() > 1
        && letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme.then_some((scheme, rest))
}

fn local(path: Cow<'_, str>) -> Result<StorePlace<'_>> {
    if path.contains('\0') {
        return Err(Error::invalid("a path cannot contain a NUL").with("path", path.escape_debug()));
    }
    Ok(StorePlace::Local(path))
}

/// The path of a `file:` URL, from the text after the two slashes (RFC 8089: an empty host or
/// `localhost`, then an absolute path, percent-encoded).
fn file_path(rest: &str) -> Result<String> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        let text = "a file: URL holds an absolute path and no host, as in file:///var/db";
        return Err(Error::invalid(text).with("url", format_args!("file://{rest}")));
    }
    let wrong = || {
        Error::invalid("a bad percent-encoding in a file: URL; write % as %25")
            .with("url", format_args!("file://{rest}"))
    };
    let mut bytes = Vec::with_capacity(path.len());
    let mut parts = path.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let (hex, text) = part.split_at_checked(2).ok_or_else(wrong)?;
        if !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        bytes.push(u8::from_str_radix(hex, 16).map_err(|_| wrong())?);
        bytes.extend_from_slice(text.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// The bucket, and the path in it without leading and trailing slashes. The path is taken
/// literally: nothing is resolved, decoded or dropped.
fn bucket_and_root<'a>(scheme: &str, rest: &'a str) -> Result<(&'a str, String)> {
    let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        let text = "the URL names no bucket; it looks like s3://bucket/path";
        return Err(Error::invalid(text).with("url", format_args!("{scheme}://{rest}")));
    }
    // Do not show the URL here, because it may contain secrets.
    if rest.contains('@') && !path.contains('@') {
        return Err(Error::invalid("credentials do not belong into a URL; use store options"));
    }
    if let Some(odd) = rest.chars().find(|c| "?#\\".contains(*c) || c.is_control()) {
        let text = "the URL's bucket and path cannot contain ?, #, \\ or control characters";
        return Err(Error::invalid(text).with("character", odd.escape_debug()));
    }
    let root = path.trim_matches('/');
    let bad = |part: &str| part.is_empty() || part == "." || part == "..";
    if !root.is_empty() && root.split('/').any(bad) {
        let text = "the URL's path has an empty part, a single or a double dot in it";
        return Err(Error::invalid(text).with("path", root));
    }
    Ok((bucket, root.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_told_from_paths() {
        assert_eq!(split_scheme("s3://b/p"), Some(("s3", "b/p")));
        for path in ["/var/db", "db", "a:b", "C://x", "://x", "3s://x", "a b://x"] {
            assert_eq!(split_scheme(path), None, "{path}");
        }
    }

    #[test]
    fn file_urls_are_decoded() {
        assert_eq!(file_path("/a/b").unwrap(), "/a/b");
        assert_eq!(file_path("localhost/a%20b/%C3%A9").unwrap(), "/a b/é");
        for bad in ["", "host/path", "/a%2", "/a%zz", "/%+1", "/%ff", "/%é"] {
            assert!(file_path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_folder_is_found_by_its_url() {
        for path in ["/a/b", "/a b/é", "/100%/?#"] {
            let url = of_folder(Path::new(path)).unwrap();
            assert_eq!(folder(&url), Some(PathBuf::from(path)), "{url}");
        }
        assert_eq!(folder("/a/b"), None);
        assert_eq!(folder("s3://b/a"), None);
    }

    #[test]
    fn buckets_and_paths_are_strict() {
        let split =
            |rest| bucket_and_root("s3", rest).map(|(bucket, root)| (bucket.to_owned(), root));
        let pair = |bucket: &str, root: &str| (bucket.to_owned(), root.to_owned());
        assert_eq!(split("b").unwrap(), pair("b", ""));
        assert_eq!(split("b/").unwrap(), pair("b", ""));
        assert_eq!(split("b/a/b@c/").unwrap(), pair("b", "a/b@c"));
        for bad in ["", "/p", "b/a//b", "b/../c", "b/./c", "b/a?x=1", "b/a#f", "k:s@b/p", "b/a\nb"]
        {
            assert!(split(bad).is_err(), "{bad:?}");
        }
        let error = split("key:canary@bucket/p").unwrap_err().to_string();
        assert!(!error.contains("canary"), "{error}");
    }
}
