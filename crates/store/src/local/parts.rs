//! The root of a database and its parts (`manifest/`, `wal/` and so on). Each is opened once and
//! identified by its descriptor (rule E2). A removed folder stays removed, and another folder at
//! the same path is not the same. A folder that was open must never be created again.
//!
//! Without this rule a writer whose folder was removed would create it anew with its next object
//! and report that object as stored, or would put objects into the folder of a database that
//! another process has created there.
//!
//! The parts stay open for the handles that work here ([`Place::begin_use`]). Once the last handle
//! has ended they are closed. Requests after that open a part for each: reads of a scan that
//! outlives its handle, and creates and deletes that the handle had begun. The path may lead to
//! another database by then, so they compare the root with the one that was open. Without that, a
//! late create put an object of the log into a new database, which could no longer be opened.
//!
//! [`Place::begin_use`]: crate::Place::begin_use

use super::files::{Files, FolderIdentity, OpenFolder};
use parking_lot::Mutex;
use siltstone_base::{Error, ErrorKind};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The root, as a part.
pub(super) const ROOT: &str = "";
/// This folder has a subfolder per ingest job. These are opened on use.
const JOBS: &str = "ingest/";
/// Folders in which every writer creates names sooner or later.
const WRITTEN: [&str; 3] = ["manifest", "wal", "compacted"];

/// A folder of a database.
pub(super) struct Part {
    pub(super) folder: Arc<OpenFolder>,
    /// Its path below the root.
    relative: String,
    /// Whether its own name is known to be synced.
    is_named: AtomicBool,
    /// Whether a name was created in it that could not be synced. Nothing in it may be relied on
    /// before a sync succeeds.
    is_unsynced: AtomicBool,
}

/// The error for a folder that does not exist after an attempt to create it. Another process may
/// have removed it or a folder above, which a repetition cures. It does not cure a path that leads
/// nowhere.
fn not_made(path: &Path) -> io::Error {
    let leads_nowhere = path.ancestors().any(|part| part.is_symlink() && !part.exists());
    let text = match path.parent() {
        _ if leads_nowhere => "a symbolic link in it leads to nothing: create its target",
        Some(above) if above.is_dir() => "its file system does not create folders there",
        _ => return io::ErrorKind::NotFound.into(),
    };
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// The folders of one database.
pub(super) struct FolderParts {
    root: PathBuf,
    files: Arc<dyn Files>,
    open: Mutex<OpenParts>,
    /// The root that was opened first.
    first_root: OnceLock<Option<FolderIdentity>>,
}

/// The open parts and the number of their users.
#[derive(Default)]
struct OpenParts {
    by_path: HashMap<String, Arc<Part>>,
    uses: usize,
    /// Whether there were uses and the last one has ended: nothing is kept open.
    is_at_rest: bool,
}

/// The parent folder of a part, and its own name there.
fn parent(relative: &str) -> (&str, &OsStr) {
    let (parent, own) = relative.rsplit_once('/').unwrap_or((ROOT, relative));
    (parent, OsStr::new(own))
}

impl FolderParts {
    pub(super) fn new(root: PathBuf, files: Arc<dyn Files>) -> FolderParts {
        FolderParts { root, files, open: Mutex::default(), first_root: OnceLock::new() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Begins the use by a handle.
    pub(super) fn begin_use(&self) {
        let mut open = self.open.lock();
        open.uses += 1;
        open.is_at_rest = false;
    }

    /// Ends the use by a handle. Returns whether it was the last one. Then all parts are closed,
    /// except those with names that are not synced.
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

    /// An open part whose names are all synced.
    pub(super) fn settled(&self, relative: &str) -> Option<Arc<Part>> {
        let part = self.open.lock().by_path.get(relative).map(Arc::clone)?;
        (!part.is_unsynced.load(Ordering::Acquire)).then_some(part)
    }

    /// The part; `None` if it was never created. NotFound if its parent was removed.
    pub(super) fn find(&self, relative: &str) -> io::Result<Option<Arc<Part>>> {
        if let Some(part) = self.open.lock().by_path.get(relative) {
            return Ok(Some(Arc::clone(part)));
        }
        let opened = if relative == ROOT {
            self.open_root()
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
            // A root that was open is never created again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return if relative == ROOT && self.is_known() { Err(error) } else { Ok(None) };
            }
            opened => Arc::new(opened?),
        };
        let part = Arc::new(Part {
            folder,
            relative: relative.to_owned(),
            // The folders above the root belong to the user.
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
        // If another thread has opened the part meanwhile, its descriptor is used.
        Ok(Some(Arc::clone(open.by_path.entry(relative.to_owned()).or_insert(part))))
    }

    /// Opens the root by its path.
    ///
    /// # Errors
    /// NotFound also if another folder is there than before.
    fn open_root(&self) -> io::Result<OpenFolder> {
        let folder = self.files.open_root(&self.root)?;
        let identity = folder.identity()?;
        match *self.first_root.get_or_init(|| identity) {
            known if known == identity => Ok(folder),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Whether the root was open before.
    fn is_known(&self) -> bool {
        self.first_root.get().is_some()
    }

    /// Whether the root was open before, and is not at its path any more.
    fn is_replaced(&self) -> bool {
        let is_gone = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        self.is_known() && self.open_root().err().is_some_and(is_gone)
    }

    /// The part, created if it is missing, with its name synced. The root is created only if it was
    /// never open. NotFound if the parent was removed, because nothing is created in a removed
    /// folder.
    pub(super) fn made(&self, relative: &str) -> io::Result<Arc<Part>> {
        let part = self.made_for_now(relative)?;
        // The process that created it may not have synced it yet.
        if !part.is_named.load(Ordering::Acquire) {
            self.sync_parts(parent(relative).0)?;
            part.is_named.store(true, Ordering::Release);
        }
        Ok(part)
    }

    /// As [`FolderParts::made`], for a folder whose name may be lost in a power failure, because
    /// its content is temporary.
    pub(super) fn made_for_now(&self, relative: &str) -> io::Result<Arc<Part>> {
        match self.find(relative)? {
            Some(part) => Ok(part),
            None => {
                self.make(relative)?;
                let made = self.find(relative)?;
                made.ok_or_else(|| match relative {
                    ROOT => not_made(&self.root),
                    _ => io::ErrorKind::NotFound.into(),
                })
            }
        }
    }

    /// Syncs the names of the parts in `above`. One sync covers all parts that were open before it,
    /// so those that will be needed are opened first.
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

    /// Creates the folder at `path` and its parents, and syncs their names.
    fn make_root(&self, path: &Path) -> io::Result<()> {
        let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) else {
            return self.files.create_root(path);
        };
        let made = match self.files.create_root(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_root(above)?;
                self.files.create_root(path).map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => not_made(path),
                    _ => error,
                })
            }
            made => made,
        };
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.and_then(|()| self.files.sync_folder(&self.files.open_root(above)?)),
        }
    }

    /// Syncs a part if its last sync failed, before its names are relied on.
    pub(super) fn settle(&self, part: &Part) -> io::Result<()> {
        if part.is_unsynced.load(Ordering::Acquire) {
            self.files.sync_folder(&part.folder)?;
            part.is_unsynced.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Syncs the names in a part, after one was created.
    pub(super) fn sync_names(&self, part: &Arc<Part>) -> io::Result<()> {
        self.files.sync_folder(&part.folder).inspect_err(|_| {
            part.is_unsynced.store(true, Ordering::Release);
            // Keep the part, even that of a job, because it knows that its names are not synced.
            self.open.lock().by_path.insert(part.relative.clone(), Arc::clone(part));
        })
    }

    /// The error to report if `error` was caused by the removal of the root or of `part` (of any
    /// part, if none is given); `None` if it has another cause.
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
        let is_removed = || match root {
            Some(_) => one_is_gone(),
            None => one_is_gone() || self.is_replaced(),
        };
        let was_removed = error.kind() == NotFound && is_removed();
        if !is_stale && !was_removed {
            return None;
        }
        // The folder that is now at the path does not matter to open handles, but the error names
        // it.
        let place = root.as_deref().map(|root| self.files.is_in_place(root));
        let text = match place {
            Some(Ok(true)) if !is_stale => {
                "a part of the database's folder was removed while it was open; restore it from \
                 a copy, or remove the rest, and open the database again"
            }
            None | Some(Ok(false)) if self.root.exists() => {
                "the database's folder was removed while it was open, and another one is in \
                 its place; open the database again"
            }
            _ => "the database's folder was removed while it was open; open the database again",
        };
        Some(Error::new(ErrorKind::NotFound, text).with("path", self.root.display()))
    }
}
