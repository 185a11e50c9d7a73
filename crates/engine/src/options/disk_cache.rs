//! The options of the disk cache: `disk_cache_path`, `disk_cache_bytes` and `disk_cache_mirror`.

use super::OptionValue;
use siltstone_base::{Error, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Size of a cache whose size was not given.
pub(super) const DEFAULT_BYTES: u64 = 16 << 30;

/// The folder of the disk cache, its size, and the keys that it mirrors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCacheOptions {
    /// The folder; `None`: no cache.
    pub path: Option<PathBuf>,
    /// Its maximum size in bytes; `None`: 16 GiB.
    pub bytes: Option<u64>,
    /// The keys whose tables the cache keeps whole; `None`: it keeps parts that were read.
    pub mirror: Option<MirroredKeys>,
}

/// The keys of `[start, end)`; `None`: no bound. As text `all`, or the bounds in hexadecimal, as in
/// `0x61..0x7a`, `0x61..` and `..0x7a`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirroredKeys {
    /// The first key.
    pub start: Option<Vec<u8>>,
    /// The first key behind.
    pub end: Option<Vec<u8>>,
}

impl FromStr for MirroredKeys {
    type Err = Error;

    fn from_str(text: &str) -> Result<MirroredKeys> {
        if text == "all" {
            return Ok(MirroredKeys::default());
        }
        let bound = |text: &str| match text.strip_prefix("0x") {
            _ if text.is_empty() => Some(None),
            Some(digits) if !digits.is_empty() => hex::decode(digits).ok().map(Some),
            _ => None,
        };
        let bounds = text.split_once("..").filter(|_| text != "..");
        let bounds = bounds.and_then(|(start, end)| Some((bound(start)?, bound(end)?)));
        match bounds {
            Some((Some(start), Some(end))) if start >= end => {
                Err(Error::invalid("the range of keys is empty: its start is not below its end"))
            }
            Some((start, end)) => Ok(MirroredKeys { start, end }),
            None => Err(Error::invalid(
                "not a range of keys; write \"all\", or the bounds in hexadecimal, as in \
                 \"0x61..0x7a\", \"0x61..\" or \"..0x7a\"",
            )),
        }
    }
}

impl fmt::Display for MirroredKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = |key: &Option<Vec<u8>>| {
            key.as_ref().map_or_else(String::new, |key| format!("0x{}", hex::encode(key)))
        };
        match (&self.start, &self.end) {
            (None, None) => f.write_str("all"),
            (start, end) => write!(f, "{}..{}", bound(start), bound(end)),
        }
    }
}

impl DiskCacheOptions {
    /// The folder and its size, if there is a cache.
    pub(super) fn folder(&self) -> Option<(&Path, u64)> {
        Some((self.path.as_deref()?, self.bytes.unwrap_or(DEFAULT_BYTES)))
    }

    /// Sets an option to a value that was checked.
    pub(super) fn set(&mut self, name: &str, value: OptionValue) {
        match (name, value) {
            ("disk_cache_mirror", OptionValue::Text(span)) => self.mirror = span.parse().ok(),
            ("disk_cache_mirror", _) => self.mirror = None,
            ("disk_cache_path", OptionValue::Text(path)) => self.path = Some(path.into()),
            ("disk_cache_path", _) => self.path = None,
            (_, OptionValue::Int(bytes)) => self.bytes = Some(bytes),
            _ => self.bytes = None,
        }
    }

    pub(super) fn get(&self, name: &str) -> OptionValue {
        let path = || self.path.as_ref().map(|path| path.display().to_string());
        let value = match name {
            "disk_cache_path" => path().map(OptionValue::Text),
            "disk_cache_mirror" => self.mirror.as_ref().map(|it| OptionValue::Text(it.to_string())),
            _ => self.bytes.map(OptionValue::Int),
        };
        value.unwrap_or(OptionValue::Nothing)
    }

    /// # Errors
    /// Invalid for a size or a mirror without a folder.
    pub(super) fn check(&self) -> Result<()> {
        if self.mirror.is_some() && self.path.is_none() {
            let text = "disk_cache_mirror has no effect without disk_cache_path: name the folder";
            return Err(Error::invalid(text));
        }
        if self.bytes.is_some() && self.path.is_none() {
            let text = "disk_cache_bytes has no effect without disk_cache_path: name the folder";
            return Err(Error::invalid(text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_they_are_written() {
        let span = |start: Option<&[u8]>, end: Option<&[u8]>| MirroredKeys {
            start: start.map(<[u8]>::to_vec),
            end: end.map(<[u8]>::to_vec),
        };
        let spans = [
            ("all", span(None, None)),
            ("0x61..0x7a", span(Some(b"a"), Some(b"z"))),
            ("0x00ff..", span(Some(b"\x00\xff"), None)),
            ("..0x7a", span(None, Some(b"z"))),
        ];
        for (text, span) in spans {
            assert_eq!(text.parse::<MirroredKeys>().unwrap(), span);
            assert_eq!(span.to_string(), text);
        }
        for text in ["", "..", "a..z", "0x..", "0x6..0x7", "0x7a..0x61", "0x61..0x61", "0x61"] {
            assert!(text.parse::<MirroredKeys>().is_err(), "{text}");
        }
    }
}
