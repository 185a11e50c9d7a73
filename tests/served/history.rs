//! The writes to each key, and how far they are acknowledged.

use std::collections::BTreeMap;

/// The writes to one key: values, or `None` for a delete.
#[derive(Debug, Default)]
struct KeyHistory {
    writes: Vec<Option<Vec<u8>>>,
    /// Writes that are durable for certain: an acknowledged write, and those before it.
    durable: usize,
}

/// All keys.
#[derive(Debug, Default)]
pub(crate) struct History {
    keys: BTreeMap<Vec<u8>, KeyHistory>,
    acknowledged: u64,
    uncertain: u64,
}

/// One write: its key, and its place among the writes to it.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    key: Vec<u8>,
    place: usize,
}

impl History {
    /// A write is sent.
    pub(crate) fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> Written {
        let history = self.keys.entry(key.to_vec()).or_default();
        history.writes.push(value.map(<[u8]>::to_vec));
        Written { key: key.to_vec(), place: history.writes.len() }
    }

    /// A write was acknowledged.
    pub(crate) fn acknowledge(&mut self, written: &Written) {
        self.acknowledged += 1;
        if let Some(history) = self.keys.get_mut(&written.key) {
            history.durable = history.durable.max(written.place);
        }
    }

    /// A write ended with an error that leaves it open.
    pub(crate) fn leave_open(&mut self) {
        self.uncertain += 1;
    }

    /// Whether `found` may be read: the newest durable write, or a later one.
    pub(crate) fn check(&self, key: &[u8], found: Option<&[u8]>) -> Result<(), String> {
        let Some(history) = self.keys.get(key) else {
            return if found.is_none() { Ok(()) } else { Err("never written".to_owned()) };
        };
        let first = history.durable.saturating_sub(1);
        let is_open = history.durable == 0 && found.is_none();
        let known = history.writes.iter().skip(first).any(|write| write.as_deref() == found);
        if known || is_open {
            return Ok(());
        }
        let found = found.map(String::from_utf8_lossy);
        Err(format!("{found:?} instead of write {} or a later one", history.durable))
    }

    /// A new writer read `found`, so it is durable.
    pub(crate) fn recovered(&mut self, key: &[u8], found: Option<&[u8]>) -> Result<(), String> {
        self.check(key, found)?;
        let Some(history) = self.keys.get_mut(key) else { return Ok(()) };
        // Values are unique; several deletes cannot be told apart.
        let place =
            history.writes.iter().position(|write| write.is_some() && write.as_deref() == found);
        history.durable = history.durable.max(place.map_or(0, |place| place + 1));
        Ok(())
    }

    /// Every key that was written.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        self.keys.keys().cloned().collect()
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    pub(crate) fn uncertain(&self) -> u64 {
        self.uncertain
    }
}
