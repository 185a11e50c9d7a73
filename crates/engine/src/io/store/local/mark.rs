//! The mark of a writer in a local folder: a locked file.
//!
//! ```text
//! .writer:  process <id> | host <name> | space <where that id means a process> | begun <when>
//! ```
//! The lock is one of an open file (`flock`), so the system frees it when the process dies, however
//! it dies. A process that was forked from it has the open file as well, and the lock would live on
//! in one that never uses it: so the mark names its process, and a lock whose process is known to
//! be dead counts for nothing. (Record locks, which children do not inherit, end whenever anything
//! in the process closes that file, as a copy of the folder for a backup does.) Closing unlocks,
//! which holds for the children's open files too.
//!
//! Openers look and mark one at a time, by a lock of `.staging`, so nobody sees half a mark. An old
//! one that nobody has locked any more is locked and written over: a new file in its place
//! would cost a write to the disk, since file systems bring to the disk what is renamed over
//! another file. Where somebody has it locked all the same (a writer that is taken over, a child of
//! a dead one), or there is none, a new file is locked and gets the name.

use super::files::Locked;
use super::folder::Folder;
use super::parts::ROOT;
use super::staging;
use crate::io::store::presence::Occupant;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use siltstone_base::{Error, Result};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::sync::Arc;

/// In the root; no object's name, and in no listing.
pub(super) const NAME: &str = ".writer";

/// What came of an attempt to set the mark.
pub(super) enum MarkAttempt {
    /// It stands until this is dropped.
    Set(Mark),
    /// A writer lives.
    Occupied(Occupant),
    /// Another opener is at it, for as long as a few system calls take.
    Busy,
}

/// A mark that stands.
pub(super) struct Mark {
    file: Arc<File>,
    process: u32,
}

impl Drop for Mark {
    fn drop(&mut self) {
        // The lock is that of all who have the file open: a forked child must not end its parent's.
        if self.process == std::process::id() {
            // Closing the file ends the lock just so, where no child has it open.
            let _ = self.file.unlock();
        }
    }
}

impl Folder {
    /// Sets the mark of a writer of this process, over that of a living one if `take_over`.
    ///
    /// # Errors
    /// Where the file system has no locks, or refuses: nothing can be known then.
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

    /// A new file with the mark, in place of what has its name.
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

/// Who lives, of what stands in a mark that is locked; `None` when nobody does.
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

/// Which process a mark is of. What cannot be found out is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Signature {
    process: String,
    host: String,
    /// Of one boot of one machine, the processes that see each other by their ids.
    space: String,
    /// When the process began, in ticks since the boot: ids are used again.
    begun: String,
}

impl Signature {
    /// Of this process. Found out once: a look into `/proc` takes as long as a file's sync. A
    /// forked child is another process, and in no other way different.
    fn own() -> Signature {
        static FOUND: Mutex<Option<(u32, Signature)>> = Mutex::new(None);
        let id = std::process::id();
        let known = FOUND.try_lock().and_then(|found| found.clone());
        if let Some((_, known)) = known.filter(|(of, _)| *of == id) {
            return known;
        }
        let own = Signature::find_out();
        // Never waited for: a child that was forked in the midst of it would wait for ever.
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

    /// Whether the process has ended for certain. It must be of this process's space.
    fn is_dead(&self) -> bool {
        let id = self.process.parse().ok().filter(|id| *id > 0).and_then(Pid::from_raw);
        let Some(id) = id.filter(|_| !self.space.is_empty()) else { return false };
        if test_kill_process(id) == Err(Errno::SRCH) {
            return true;
        }
        // Another one has its id by now; or it waits for its parent to take notice of its end.
        began(&self.process).is_some_and(|began| began != self.begun)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Signature { process, host, space, begun } = self;
        writeln!(f, "process {process}\nhost {host}\nspace {space}\nbegun {begun}")
    }
}

/// When a living process began; "ended" for one that is a zombie, `None` where nothing tells.
fn began(process: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Its second field is a name in parentheses, which may hold anything; counted from behind it,
    // the state is the first field and the beginning the twentieth (proc(5)).
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

    /// One that ended, one whose id another process has by now, and one that nothing is known of.
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
