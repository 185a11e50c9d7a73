//! The options of the disk cache: `disk_cache_path` and `disk_cache_bytes`.

use super::OptionValue;
use siltstone_base::{Error, Result};
use std::path::{Path, PathBuf};

/// Size of a cache whose size was not given.
pub(super) const DEFAULT_BYTES: u64 = 16 << 30;

/// Where parts of tables are cached on a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCacheOptions {
    /// The folder; `None`: no cache.
    pub path: Option<PathBuf>,
    /// Bytes that it may take; `None`: 16 GiB.
    pub bytes: Option<u64>,
}

impl DiskCacheOptions {
    /// The folder and its size, if there is a cache.
    pub(super) fn folder(&self) -> Option<(&Path, u64)> {
        Some((self.path.as_deref()?, self.bytes.unwrap_or(DEFAULT_BYTES)))
    }

    /// Sets an option to a value that was checked.
    pub(super) fn set(&mut self, name: &str, value: OptionValue) {
        match (name, value) {
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
            _ => self.bytes.map(OptionValue::Int),
        };
        value.unwrap_or(OptionValue::Nothing)
    }

    /// # Errors
    /// Invalid for a size without a folder.
    pub(super) fn check(&self) -> Result<()> {
        if self.bytes.is_some() && self.path.is_none() {
            let text = "disk_cache_bytes has no effect without disk_cache_path: name the folder";
            return Err(Error::invalid(text));
        }
        Ok(())
    }
}
