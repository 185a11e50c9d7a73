//! The root of a database and its parts (`manifest/`, `wal/` and so on), each opened once (rule
//! E2): a folder is its descriptor. One that was removed stays removed, another one at the same
//! path is another one, and none that was open is ever made again.
//!
//! Without this a writer whose folder was removed would make it anew with its next object, and be
//! told that it is stored; and would put objects of its own into the folder of whoever was quicker.
//!
//! The parts stay open for the handles that work here ([`Store::begin_use`]). Once the last of them
//! has ended they are closed, and what reads on (a scan that outlives its handle) opens a part for
//! each request. It asks for tables, whose names are never used twice.
//!
//! [`Store::begin_use`]: crate::io::store::Store::begin_use

use super::files::{Files, OpenFolder};
use parking_lot::Mutex;
use siltstone_base::{Error, ErrorKind};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The root, as a part.
pub(super) const ROOT: &str = "";
/// Below it there are as many folders as ingest jobs: these are opened when they are used.
const JOBS: &str = "ingest/";
/// What a writer makes names in, sooner or later.
const WRITTEN: [&str; 3] = ["manifest", "wal", "compacted"];

/// A folder of a database.
pub(super) struct Part {
    pub(super) folder: Arc<OpenFolder>,
    /// Its path below the root.
    relative: String,
    /// Whether its own name is on the disk, as far as is known.
    is_named: AtomicBool,
    /// Whether a name was made in it and could not be synced: nothing in it is believed before a
    /// sync succeeds.
    is_unsynced: AtomicBool,
}

/// The folders of one database.
pub(super) struct FolderParts {
    root: PathBuf,
    files: Arc<dyn Files>,
    open: Mutex<OpenParts>,
}

/// The parts that are open, and for whom.
#[derive(Default)]
struct OpenParts {
    by_path: HashMap<String, Arc<Part>>,
    uses: usize,
    /// Whether there were uses, and the last one has ended: nothing is kept open.
    is_at_rest: bool,
}

/// The folder that a part is in, and its own name there.
fn parent(relative: &str) -> (&str, &OsStr) {
    let (parent, own) = relative.rsplit_once('/').unwrap_or((ROOT, relative));
    (parent, OsStr::new(own))
}

impl FolderParts {
    pub(super) fn new(root: PathBuf, files: Arc<dyn Files>) -> FolderParts {
        FolderParts { root, files, open: Mutex::default() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A handle begins to work here.
    pub(super) fn begin_use(&self) {
        let mut open = self.open.lock();
        open.uses += 1;
        open.is_at_rest = false;
    }

    /// A handle has ended. Whether it was the last one: the parts are closed then, but for those
    /// that know what must not be believed.
    pub(super) fn end_use(&self) -> bool {
        let mut open = self.open.lock();
        open.uses = open.uses.saturating_sub(1);
        open.is_at_rest = open.uses == 0;
        if open.is_at_rest {
            open.by_path.retain(|_, part| part.is_unsynced.load(Ordering::Acquire));
        }
        open.is_at_rest
    }

    /// Whether nothing is to be kept open.
    pub(super) fn is_at_rest(&self) -> bool {
        self.open.lock().is_at_rest
    }

    /// A part that is open, if what is read in it may be believed as it stands.
    pub(super) fn settled(&self, relative: &str) -> Option<Arc<Part>> {
        let part = self.open.lock().by_path.get(relative).map(Arc::clone)?;
        (!part.is_unsynced.load(Ordering::Acquire)).then_some(part)
    }

    /// The part, `None` where it was never made. NotFound where what it would be in was removed.
    pub(super) fn find(&self, relative: &str) -> io::Result<Option<Arc<Part>>> {
        if let Some(part) = self.open.lock().by_path.get(relative) {
            return Ok(Some(Arc::clone(part)));
        }
        let opened = if relative == ROOT {
            self.files.open_root(&self.root)
        } else {
            let (parent, own) = parent(relative);
            let Some(parent) = self.find(parent)? else { return Ok(None) };
            match self.files.open_folder(&parent.folder, own) {
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && self.files.is_gone(&parent.folder)? =>
                {
                    return Err(error);
                }
                opened => opened,
            }
        };
        let folder = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => Arc::new(opened?),
        };
        let part = Arc::new(Part {
            folder,
            relative: relative.to_owned(),
            // What lies above the root is the user's.
            is_named: AtomicBool::new(relative == ROOT),
            is_unsynced: AtomicBool::new(false),
        });
        if relative.starts_with(JOBS) {
            return Ok(Some(part));
        }
        let mut open = self.open.lock();
        if open.is_at_rest {
            return Ok(Some(part));
        }
        // Whoever was quicker has opened the one that counts.
        Ok(Some(Arc::clone(open.by_path.entry(relative.to_owned()).or_insert(part))))
    }

    /// The part, made where it is missing, with its name on the disk. The root is made as long as
    /// it was never open, and nothing is made in a folder that was removed: NotFound.
    pub(super) fn made(&self, relative: &str) -> io::Result<Arc<Part>> {
        let part = self.made_for_now(relative)?;
        // Whoever made it may not have synced it yet.
        if !part.is_named.load(Ordering::Acquire) {
            self.sync_parts(parent(relative).0)?;
            part.is_named.store(true, Ordering::Release);
        }
        Ok(part)
    }

    /// As [`Parts::made`], for a folder whose name may be lost with the power: nothing in it is
    /// ever looked for.
    pub(super) fn made_for_now(&self, relative: &str) -> io::Result<Arc<Part>> {
        match self.find(relative)? {
            Some(part) => Ok(part),
            None => {
                self.make(relative)?;
                Ok(self.find(relative)?.ok_or(io::ErrorKind::NotFound)?)
            }
        }
    }

    /// Brings the names of the parts in `above` to the disk. One sync does for all that were open
    /// before it, so those that will be needed are opened first.
    fn sync_parts(&self, above: &str) -> io::Result<()> {
        if above == ROOT {
            WRITTEN.iter().try_for_each(|part| self.find(part).map(drop))?;
        }
        let folder = self.made(above)?;
        let is_below =
            |part: &&Arc<Part>| part.relative != ROOT && parent(&part.relative).0 == above;
        let parts: Vec<_> = self.open.lock().by_path.values().filter(is_below).cloned().collect();
        self.sync_names(&folder)?;
        parts.iter().for_each(|part| part.is_named.store(true, Ordering::Release));
        Ok(())
    }

    fn make(&self, relative: &str) -> io::Result<()> {
        if relative == ROOT {
            return self.make_root(&self.root);
        }
        let (parent, own) = parent(relative);
        match self.files.create_folder(&self.made(parent)?.folder, own) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes the folder at `path`, and those above it, and syncs their names.
    fn make_root(&self, path: &Path) -> io::Result<()> {
        let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) else {
            return self.files.create_root(path);
        };
        let made = match self.files.create_root(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_root(above)?;
                self.files.create_root(path)
            }
            made => made,
        };
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.and_then(|()| self.files.sync_folder(&self.files.open_root(above)?)),
        }
    }

    /// Before anything in a part is believed: syncs it when the last sync there failed.
    pub(super) fn settle(&self, part: &Part) -> io::Result<()> {
        if part.is_unsynced.load(Ordering::Acquire) {
            self.files.sync_folder(&part.folder)?;
            part.is_unsynced.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Brings the names in a part to the disk, after one was made.
    pub(super) fn sync_names(&self, part: &Arc<Part>) -> io::Result<()> {
        #[cfg(mutation = "local_skips_folder_sync")]
        return Ok(());
        #[cfg(not(mutation = "local_skips_folder_sync"))]
        self.files.sync_folder(&part.folder).inspect_err(|_| {
            part.is_unsynced.store(true, Ordering::Release);
            // Kept, that of a job as well, since it knows what must not be believed.
            self.open.lock().by_path.insert(part.relative.clone(), Arc::clone(part));
        })
    }

    /// What to tell when `error` happened since the root or `part` was removed (any part, where
    /// none is given); `None` when it has another cause.
    pub(super) fn gone(&self, error: &io::Error, part: Option<&Part>) -> Option<Error> {
        use io::ErrorKind::{NotFound, StaleNetworkFileHandle};
        let is_gone = |folder: &OpenFolder| self.files.is_gone(folder).unwrap_or(false);
        let open = self.open.lock().by_path.clone();
        let root = open.get(ROOT).map(|root| Arc::clone(&root.folder));
        let one_is_gone = || match part {
            Some(part) => is_gone(&part.folder) || root.as_deref().is_some_and(is_gone),
            None => open.values().any(|part| is_gone(&part.folder)),
        };
        let is_stale = error.kind() == StaleNetworkFileHandle;
        let was_removed = error.kind() == NotFound && one_is_gone();
        if !is_stale && !was_removed {
            return None;
        }
        // What stands at the path now does not matter to what was open; it does to the reader.
        let place = root.as_deref().map(|root| self.files.is_in_place(root));
        let text = match place {
            Some(Ok(true)) if !is_stale => {
                "a part of the database's folder was removed while it was open; put it back from \
                 a copy, or remove the rest, and open the database again"
            }
            Some(Ok(false)) if self.root.exists() => {
                "the database's folder was removed while it was open, and another one stands in \
                 its place; open the database again"
            }
            _ => "the database's folder was removed while it was open; open the database again",
        };
        Some(Error::new(ErrorKind::NotFound, text).with("path", self.root.display()))
    }
}
