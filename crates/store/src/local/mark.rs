//! The mark of a writer in a local folder: a locked file.
//!
//! ```text
//! .writer:  process <id> | host <name> | space <where that id means a process> | begun <when>
//! ```
//! The lock belongs to an open file (`flock`), so the system frees it when the process dies in any
//! way. A forked child has the open file too, and would keep the lock although it never uses it.
//! The mark therefore names its process, and the lock of a dead process does not count. (Record
//! locks, which children do not inherit, end when any code of the process closes the file, as a
//! backup of the folder does.) Closing unlocks the file, which also holds for the open files of
//! children.
//!
//! Openers read and write the mark one at a time, under a lock of `.staging`, so that no opener
//! sees half a mark. An old mark without a lock is locked and overwritten: a new file in its place
//! would cost a disk write, because file systems write a file that is renamed over another one. If
//! another process holds the lock (a writer that is taken over, a child of a dead one), or there is
//! no mark, a new file is locked and renamed.

use super::files::Locked;
use super::folder::Folder;
use super::parts::ROOT;
use super::staging;
use crate::presence::Occupant;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use siltstone_base::{Error, Result};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::sync::Arc;

/// In the root. It is not the name of an object, so no listing shows it.
pub(super) const NAME: &str = ".writer";

/// The result of an attempt to set the mark.
pub(super) enum MarkAttempt {
    /// The mark is set until this is dropped.
    Set(Mark),
    /// A writer is alive.
    Occupied(Occupant),
    /// Another opener is writing the mark, which takes a few system calls.
    Busy,
}

/// A mark that is set.
pub(super) struct Mark {
    file: Arc<File>,
    process: u32,
}

impl Drop for Mark {
    fn drop(&mut self) {
        // All processes that have the file open share the lock, so a forked child must not release
        // its parent's.
        if self.process == std::process::id() {
            // Closing the file would also end the lock, if no child has it open.
            let _ = self.file.unlock();
        }
    }
}

impl Folder {
    /// Sets the mark of a writer of this process; with `take_over` also over that of a living
    /// writer.
    ///
    /// # Errors
    /// If the file system has no locks or refuses them. Whether a writer is alive is unknown then.
    pub(super) fn mark(&self, staged: &str, take_over: bool) -> Result<MarkAttempt> {
        let fail = |error: io::Error| Error::unavailable("no mark").caused_by(error);
        let (root, own) = (self.parts.made(ROOT).map_err(fail)?, Signature::own());
        let staging = self.parts.made_for_now(staging::FOLDER).map_err(fail)?;
        let Some(turn) = self.files.lock_folder(&staging.folder).map_err(fail)? else {
            return Ok(MarkAttempt::Busy);
        };
        let marked = match self.files.locked(&root.folder, OsStr::new(NAME)) {
            Ok(Locked::Here(file)) => {
                let written = self.files.rewrite(&file, &own.to_string());
                written.is_ok().then(|| Arc::new(file))
            }
            Ok(Locked::By(text)) => match occupant(&text, &own) {
                Some(occupant) if !take_over => return Ok(MarkAttempt::Occupied(occupant)),
                _ => None,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(fail(error)),
        };
        let file = match marked {
            Some(file) => file,
            None => self.mark_anew(staged, &own)?,
        };
        let _ = turn.unlock();
        Ok(MarkAttempt::Set(Mark { file, process: std::process::id() }))
    }

    /// Writes the mark into a new file and renames it over the old one.
    fn mark_anew(&self, staged: &str, own: &Signature) -> Result<Arc<File>> {
        let fail = |error: io::Error| Error::unavailable("no mark").caused_by(error);
        let (mut file, root) = self.stage(ROOT, staged)?;
        let Some(locked) = file.locked().map(Arc::clone) else {
            return Err(fail(io::ErrorKind::Unsupported.into()));
        };
        file.write(own.to_string().as_bytes()).map_err(fail)?;
        file.rename(&root.folder, OsStr::new(NAME)).map_err(fail)?;
        Ok(locked)
    }
}

/// The living writer that a locked mark describes; `None` if its process is dead.
fn occupant(text: &str, own: &Signature) -> Option<Occupant> {
    let Some(other) = Signature::parse(text) else { return Some(Occupant::Unknown) };
    if other == *own {
        return Some(Occupant::Here);
    }
    if other.space == own.space && other.is_dead() {
        return None;
    }
    Some(Occupant::There { process: other.process, host: other.host })
}

/// The process of a mark. Fields that cannot be determined are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Signature {
    process: String,
    host: String,
    /// Identifies the set of processes that see each other's ids, in one boot of one machine.
    space: String,
    /// When the process began, in ticks since the boot, because ids are reused.
    begun: String,
}

impl Signature {
    /// The signature of this process. Determined once, because reading `/proc` takes as long as
    /// syncing a file. A forked child determines its own.
    fn own() -> Signature {
        static FOUND: Mutex<Option<(u32, Signature)>> = Mutex::new(None);
        let id = std::process::id();
        let known = FOUND.try_lock().and_then(|found| found.clone());
        if let Some((_, known)) = known.filter(|(of, _)| *of == id) {
            return known;
        }
        let own = Signature::find_out();
        // Never wait for the lock: a child that was forked while it was held would wait for ever.
        if let Some(mut found) = FOUND.try_lock() {
            *found = Some((id, own.clone()));
        }
        own
    }

    fn find_out() -> Signature {
        let process = std::process::id().to_string();
        let begun = began(&process).unwrap_or_default();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let ids = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let space = match boot.trim() {
            "" => String::new(),
            boot => format!("{boot}/{}", ids.display()),
        };
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Signature { process, host, space, begun }
    }

    fn parse(text: &str) -> Option<Signature> {
        let mut values = text.lines().map(|line| line.split_once(' '));
        let mut value = |name: &str| {
            let (found, value) = values.next()??;
            (found == name).then(|| value.to_owned())
        };
        Some(Signature {
            process: value("process")?,
            host: value("host")?,
            space: value("space")?,
            begun: value("begun")?,
        })
    }

    /// Whether the process has certainly ended. It must belong to this process's space.
    fn is_dead(&self) -> bool {
        let id = self.process.parse().ok().filter(|id| *id > 0).and_then(Pid::from_raw);
        let Some(id) = id.filter(|_| !self.space.is_empty()) else { return false };
        if test_kill_process(id) == Err(Errno::SRCH) {
            return true;
        }
        // The id may belong to a later process now, or the process is a zombie.
        began(&self.process).is_some_and(|began| began != self.begun)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Signature { process, host, space, begun } = self;
        writeln!(f, "process {process}\nhost {host}\nspace {space}\nbegun {begun}")
    }
}

/// The start time of a living process; "ended" for a zombie, `None` if unknown.
fn began(process: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses and may contain anything. Counted from behind it,
    // the state is the first field and the start time the twentieth (proc(5)).
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    match fields.next()? {
        "Z" | "X" => Some("ended".to_owned()),
        _ => fields.nth(18).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_says_who_wrote_it() {
        let own = Signature::own();
        assert_eq!(Signature::parse(&own.to_string()), Some(own.clone()));
        assert!(!own.is_dead());
        for text in ["", "process 7", "host x\nprocess 7\nspace y\nbegun 1", "\0\n\n\n"] {
            assert_eq!(Signature::parse(text), None, "{text:?}");
        }
    }

    /// A process that ended, one whose id another process has now, and one that is unknown.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_is_dead_only_for_certain() {
        let own = Signature::own();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id().to_string();
        child.wait().unwrap();
        let ended = Signature { process, ..own.clone() };
        assert!(ended.is_dead());
        assert!(Signature { begun: "1".to_owned(), ..own.clone() }.is_dead());
        assert!(!Signature { space: String::new(), ..ended }.is_dead());
        for process in ["", "0", "-1", "x", "99999999999999999999"] {
            assert!(!Signature { process: process.to_owned(), ..own.clone() }.is_dead());
        }
    }
}
