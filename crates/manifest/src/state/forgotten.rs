//! The encoding of forgotten applications (rule N11). It is an extension, because version 1 of the
//! format has no field for it, beside a feature that every committer must know.
//!
//! ```text
//!  0  1  version: 1
//!  1  8  number of applications forgotten so far, little-endian
//!  9  8  a job that began at a lower number cannot be checked any more
//! 17  4  number of names; of each: when it was forgotten (8), length (4), name
//! ```
//!
//! An application has one record, of its last version, which replaces the record of an earlier
//! job. Once it is forgotten, no process knows whether such a job was installed. So a job records
//! how many applications had been forgotten when it began, and a job that began before its own
//! application was forgotten is refused permanently.

use crate::features::Features;
use bytes::Bytes;
use siltstone_base::bytes_io::Reader;
use siltstone_base::{Error, Result};

/// Name of the extension.
const NAME: &str = "siltstone.forgotten-apps";
const VERSION: u8 = 1;
/// Number of applications for which the time of forgetting is recorded. For earlier ones the latest
/// of these times is used for all applications: a job of any application that began before it must
/// be staged again.
pub const MOST_FORGOTTEN: usize = 64;

/// Which applications were forgotten, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ForgottenApps {
    /// Number of applications forgotten so far. A job records this number when it begins.
    pub count: u64,
    /// A job that began when fewer applications were forgotten cannot be checked any more.
    below: u64,
    /// The applications forgotten last, oldest first: the name, and `count` at that time.
    apps: Vec<(String, u64)>,
}

impl ForgottenApps {
    /// Forgets an application.
    pub(crate) fn add(&mut self, app: &str) {
        self.count += 1;
        self.apps.retain(|(name, _)| name != app);
        self.apps.push((app.to_owned(), self.count));
        if self.apps.len() > MOST_FORGOTTEN {
            let (_, at) = self.apps.remove(0);
            self.below = self.below.max(at);
        }
    }

    /// The smallest `count` at the begin of a job of `app` with which the job may be requested.
    #[must_use]
    pub fn begins(&self, app: &str) -> u64 {
        let last = self.apps.iter().find(|(name, _)| name == app);
        last.map_or(self.below, |(_, at)| self.below.max(*at))
    }

    /// Whether `app` was forgotten after `count` applications were, as far as names are recorded.
    #[must_use]
    pub fn has(&self, app: &str, count: u64) -> bool {
        self.apps.iter().any(|(name, at)| name == app && *at > count)
    }

    /// Adds the extension to `features`.
    pub(crate) fn onto(&self, features: &Features) -> Features {
        features.with_extension(NAME, self.encode())
    }

    /// Removes the extension from `features` and decodes it.
    ///
    /// # Errors
    /// Corruption for invalid bytes; Unsupported for data of a newer version.
    pub(crate) fn out_of(features: &mut Features) -> Result<ForgottenApps> {
        let stored = features.take_extension(NAME);
        stored.map_or_else(|| Ok(ForgottenApps::default()), |value| ForgottenApps::decode(&value))
    }

    fn encode(&self) -> Bytes {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.extend_from_slice(&self.below.to_le_bytes());
        bytes.extend_from_slice(&(self.apps.len() as u32).to_le_bytes());
        for (name, at) in &self.apps {
            bytes.extend_from_slice(&at.to_le_bytes());
            bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes.into()
    }

    fn decode(bytes: &[u8]) -> Result<ForgottenApps> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if version != VERSION {
            return Err(Error::unsupported(
                "what is known of forgotten applications was written by a newer version of \
                 Siltstone",
            )
            .with("version", version));
        }
        let impossible = || Error::corruption("impossible list of forgotten applications");
        let (count, below) = (reader.u64()?, reader.u64()?);
        let mut apps: Vec<(String, u64)> = Vec::new();
        for _ in 0..reader.u32()? {
            let (at, length) = (reader.u64()?, reader.u32()? as usize);
            let name = std::str::from_utf8(reader.take(length)?).map_err(|_| impossible())?;
            let ascends = apps.last().map_or(below, |(_, last)| *last) < at && at <= count;
            if !ascends || apps.iter().any(|(other, _)| other == name) {
                return Err(impossible());
            }
            apps.push((name.to_owned(), at));
        }
        if !reader.is_empty() || below > count || apps.len() > MOST_FORGOTTEN {
            return Err(impossible());
        }
        Ok(ForgottenApps { count, below, apps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_base::ErrorKind;

    fn forgotten(names: impl IntoIterator<Item = String>) -> ForgottenApps {
        let mut all = ForgottenApps::default();
        names.into_iter().for_each(|name| all.add(&name));
        all
    }

    #[test]
    fn jobs_that_began_before_are_nobodys() {
        let all = forgotten(["a", "b", "a"].map(str::to_owned));
        assert_eq!((all.count, all.begins("a"), all.begins("b"), all.begins("c")), (3, 3, 2, 0));
        assert!(all.has("a", 2) && !all.has("a", 3) && !all.has("b", 2) && !all.has("c", 0));
    }

    /// For applications whose names are no longer recorded, the latest time counts for all.
    #[test]
    fn the_number_of_known_names_is_bounded() {
        let all = forgotten((0..100).map(|number| number.to_string()));
        assert_eq!((all.apps.len(), all.count), (MOST_FORGOTTEN, 100));
        assert_eq!((all.begins("35"), all.begins("36"), all.begins("99")), (36, 37, 100));
        assert_eq!(all.begins("another"), 36);
    }

    #[test]
    fn any_bytes_give_it_or_an_error() {
        let all = forgotten((0..70).map(|number| number.to_string()));
        let bytes = all.encode();
        assert_eq!(ForgottenApps::decode(&bytes).unwrap(), all);
        for length in 0..bytes.len() {
            assert!(ForgottenApps::decode(&bytes[..length]).is_err(), "{length}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            drop(ForgottenApps::decode(&flipped));
        }
        let newer = [&[2], &bytes[1..]].concat();
        assert_eq!(ForgottenApps::decode(&newer).unwrap_err().kind(), ErrorKind::Unsupported);
        let twice =
            ForgottenApps { count: 3, below: 0, apps: vec![("a".into(), 1), ("a".into(), 2)] };
        assert!(ForgottenApps::decode(&twice.encode()).is_err());
        let above = ForgottenApps { count: 1, below: 0, apps: vec![("a".into(), 2)] };
        assert!(ForgottenApps::decode(&above.encode()).is_err());
    }
}
