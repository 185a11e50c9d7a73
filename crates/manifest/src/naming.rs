//! How a caller names a checkpoint: by its id, in any spelling, or by its name (RFC 0027).

use crate::state::{Checkpoint, Manifest};
use siltstone_base::{CheckpointId, Error, ErrorKind, Result};
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// Positions of the dashes of a UUID (RFC 9562, section 4).
const DASHES: [usize; 4] = [8, 13, 18, 23];
/// Length of a UUID with dashes.
const DASHED_LENGTH: usize = 36;

/// The id or the name of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckpointName {
    /// The checkpoint with this id.
    Id(CheckpointId),
    /// The checkpoint that has this name now.
    Name(String),
}

impl CheckpointName {
    /// The checkpoint in `state`.
    ///
    /// # Errors
    /// Expired if it does not exist.
    pub fn find<'a>(&self, state: &'a Manifest) -> Result<&'a Checkpoint> {
        match self {
            CheckpointName::Id(id) => {
                let found = state.checkpoint(*id);
                found.ok_or_else(|| gone(*id))
            }
            CheckpointName::Name(name) => {
                let named = |one: &&Checkpoint| one.name.as_ref() == Some(name);
                state.checkpoints.iter().find(named).ok_or_else(|| {
                    let text = "no checkpoint has this name, or none any more; list them, or make \
                                a new one";
                    Error::new(ErrorKind::Expired, text).with("name", name)
                })
            }
        }
    }
}

impl FromStr for CheckpointName {
    type Err = Infallible;

    /// An id is 32 hexadecimal digits in either case, with or without the dashes of a UUID; any
    /// other text is a name.
    fn from_str(text: &str) -> std::result::Result<CheckpointName, Infallible> {
        Ok(match parse_id(text) {
            Some(id) => CheckpointName::Id(id),
            None => CheckpointName::Name(text.to_owned()),
        })
    }
}

impl From<CheckpointId> for CheckpointName {
    fn from(id: CheckpointId) -> CheckpointName {
        CheckpointName::Id(id)
    }
}

impl fmt::Display for CheckpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointName::Id(id) => fmt::Display::fmt(id, f),
            CheckpointName::Name(name) => f.write_str(name),
        }
    }
}

/// The error for a checkpoint that no longer exists.
#[must_use]
pub fn gone(id: CheckpointId) -> Error {
    let text = "the checkpoint is gone or has expired: refresh it while it is still listed, or \
                make a new one";
    Error::new(ErrorKind::Expired, text).with("checkpoint", id)
}

fn parse_id(text: &str) -> Option<CheckpointId> {
    let is_dashed = text.len() == DASHED_LENGTH
        && text.bytes().enumerate().all(|(at, byte)| DASHES.contains(&at) == (byte == b'-'));
    let digits = if is_dashed { text.replace('-', "") } else { text.to_owned() };
    CheckpointId::parse(&digits.to_ascii_lowercase())
}

/// Whether a checkpoint may have this name: 1 to 255 bytes without control characters, and not the
/// form of an id.
pub(crate) fn is_name(text: &str) -> bool {
    let reads = matches!(text.parse(), Ok(CheckpointName::Id(_)));
    (1..=255).contains(&text.len()) && !text.chars().any(char::is_control) && !reads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::empty;

    #[test]
    fn every_spelling_of_an_id_is_the_id() {
        let id = CheckpointId(0x0174_0ee5_6459_44af_9a45_85de_b6e4_68e3);
        for text in [
            "01740ee5-6459-44af-9a45-85deb6e468e3",
            "01740ee5645944af9a4585deb6e468e3",
            "01740EE5-6459-44AF-9A45-85DEB6E468E3",
        ] {
            assert_eq!(text.parse(), Ok(CheckpointName::Id(id)), "{text}");
            assert!(!is_name(text));
        }
        assert_eq!(CheckpointName::Id(id).to_string().parse(), Ok(CheckpointName::Id(id)));
    }

    #[test]
    fn all_else_is_a_name() {
        let dashes_astray = "01740ee56-459-44af-9a45-85deb6e468e3";
        for text in ["daily", "2026-11-22", "ünder", dashes_astray, "cafe", &"d".repeat(31)] {
            assert_eq!(text.parse(), Ok(CheckpointName::Name(text.to_owned())));
            assert!(is_name(text), "{text}");
        }
        for text in ["", "a\nb", &"x".repeat(256)] {
            assert!(!is_name(text), "{text}");
        }
    }

    #[test]
    fn an_absent_checkpoint_is_expired() {
        let state = empty();
        for name in [CheckpointName::Id(CheckpointId(7)), CheckpointName::Name("daily".to_owned())]
        {
            assert_eq!(name.find(&state).unwrap_err().kind(), ErrorKind::Expired);
        }
    }
}
