//! `open(…, shared=True)`: one engine handle for all openers of a location in this process (RFC
//! 0026).

use crate::database::{CloseReason, Database, OpenPlace, Opened};
use crate::held::Held;
use crate::process::Process;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use pyo3::prelude::*;
use siltstone::store::options::StoreOptions;
use siltstone::{Env, Error, OpenOptions, OptionValue, Result};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::Mutex;

/// A location whose openers share a handle. The lock serialises opening and closing the handle.
#[derive(Default)]
pub(crate) struct SharedPlace {
    joint: Mutex<Weak<SharedHandle>>,
}

/// The shared handle and the number of its users.
struct SharedHandle {
    opened: Arc<Opened>,
    opening: Opening,
    users: AtomicUsize,
}

/// The arguments of one opener.
pub(crate) struct Opening {
    pub(crate) how: OpenOptions,
    /// The options that the opener named.
    pub(crate) named: Vec<String>,
    pub(crate) store_options: StoreOptions,
}

impl Opening {
    /// Checks that this opener may use the handle that was opened with `other`.
    ///
    /// # Errors
    /// Invalid, with the first named option that the handle has with another value.
    fn check(&self, other: &Opening) -> Result<()> {
        let unlike = |what: &'static str, name: &str| {
            let text = "this process shares the database already, and with another setting: give \
                        the same, or leave it out, which takes it as it is";
            Error::invalid(text).with(what, name)
        };
        let (mine, theirs) = (&self.how.options, &other.how.options);
        for name in &self.named {
            let (given, open) = (mine.get(name), theirs.get(name));
            if given != open {
                let refused = unlike("option", name);
                return Err(refused.with("given", shown(given)).with("open", shown(open)));
            }
        }
        if let Some(name) = self.store_options.first_unlike(&other.store_options) {
            return Err(unlike("store_option", name));
        }
        let Some(mine) = &self.how.merge_operator else { return Ok(()) };
        match &other.how.merge_operator {
            Some(theirs) if theirs.name() == mine.name() => Ok(()),
            theirs => Err(unlike("option", "merge_operator")
                .with("given", mine.name())
                .with("open", theirs.as_ref().map_or("none", |theirs| theirs.name()))),
        }
    }
}

/// The value of an option for an error text.
fn shown(value: Option<OptionValue>) -> String {
    match value {
        Some(OptionValue::Seconds(seconds)) => seconds.to_string(),
        Some(OptionValue::Int(number)) => number.to_string(),
        Some(OptionValue::Bool(on)) => on.to_string(),
        Some(OptionValue::Text(text)) => text,
        Some(OptionValue::Nothing) | None => "none".to_owned(),
    }
}

/// One opener's share of the handle.
pub(crate) struct Share {
    meeting: Arc<SharedPlace>,
    joint: Arc<SharedHandle>,
    /// Set once the share was returned: the result of returning it.
    ended: OnceLock<Held<Ended>>,
    /// An empty holder for calls after that.
    nothing: Held<siltstone::Database>,
}

/// The result of returning a share, which several callers can await.
type Ended = Shared<BoxFuture<'static, Result<()>>>;

/// The location by which the handles of this process are found: the identity of the store of `env`,
/// and for a local folder its canonical path.
///
/// # Errors
/// Errors of reading the folder.
pub(crate) fn place(py: Python<'_>, env: &Env) -> PyResult<String> {
    let place = format!("{:?}", env.store);
    match place.strip_prefix("file://") {
        Some(folder) => py.import("os.path")?.getattr("realpath")?.call1((folder,))?.extract(),
        None => Ok(place),
    }
}

/// Opens the database, or shares the handle of the openers that have it open.
///
/// # Errors
/// As opening; Invalid if an option differs from the open handle.
pub(crate) async fn open(
    process: &'static Process,
    meeting: Arc<SharedPlace>,
    env: Env,
    opening: Opening,
    place: OpenPlace,
) -> Result<Database> {
    let mut current = meeting.joint.lock().await;
    let joint = match current.upgrade().filter(|joint| joint.is_alive()) {
        Some(joint) => {
            opening.check(&joint.opening)?;
            joint.users.fetch_add(1, Ordering::AcqRel);
            joint
        }
        None => {
            let engine = siltstone::Database::open(env, opening.how.clone()).await?;
            let opened = Opened::new(process, engine, place);
            let joint = Arc::new(SharedHandle { opened, opening, users: AtomicUsize::new(1) });
            *current = Arc::downgrade(&joint);
            joint
        }
    };
    drop(current);
    let (ended, nothing) = (OnceLock::new(), Held::empty(process));
    let opened = Arc::clone(&joint.opened);
    Ok(Database::shared(opened, Share { meeting, joint, ended, nothing }))
}

impl SharedHandle {
    /// Whether the handle is still usable.
    fn is_alive(&self) -> bool {
        self.opened.held().peek().is_some_and(|engine| engine.refusal().is_none())
    }
}

impl SharedPlace {
    /// Returns one share: its writes are durable afterwards, and the last share closes the handle.
    async fn give_back(&self, joint: &SharedHandle, unasked: Option<CloseReason>) -> Result<()> {
        let mut flushed = None;
        // While this lock is held no opener can join, and no opener can open before the close has
        // ended.
        let _current = loop {
            let engine = joint.opened.held().peek().filter(|_| flushed.is_none());
            if let Some(engine) = engine.filter(|_| joint.users.load(Ordering::Acquire) > 1) {
                // This share still counts as a user, so that no other share closes the handle
                // during the flush.
                flushed = Some(engine.flush().await);
            }
            let current = self.joint.lock().await;
            // Another opener may have joined since the check. Then this share does not close the
            // handle, so the loop repeats and flushes its writes first.
            let closes = joint.users.load(Ordering::Acquire) == 1;
            if closes || flushed.is_some() || joint.opened.held().peek().is_none() {
                break current;
            }
        };
        if joint.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return flushed.unwrap_or(Ok(()));
        }
        match unasked {
            Some(when) => {
                joint.opened.close_unasked(when).await;
                Ok(())
            }
            None => joint.opened.close().await,
        }
    }
}

impl Share {
    /// The handle; an empty holder once the share was returned.
    pub(crate) fn held(&self) -> &Held<siltstone::Database> {
        if self.ended.get().is_some() { &self.nothing } else { self.joint.opened.held() }
    }

    /// Whether the share was returned.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.get().is_some()
    }

    /// The result of returning the share; `None` until then.
    pub(crate) fn closed(&self) -> Option<Result<()>> {
        match self.ended.get() {
            Some(ended) => ended.peek()?.peek().cloned(),
            // The exit hook of the interpreter closes the handle for all its users.
            None => self.joint.opened.closed(),
        }
    }

    /// Returns the share, for a caller that waits. It continues if the future is dropped.
    pub(crate) fn close(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let process = self.nothing.process();
        let ended = self.ended.get_or_init(|| Held::new(process, self.begin(None)));
        let ended = ended.peek().cloned();
        async move {
            match ended {
                Some(ended) => ended.await,
                None => Ok(()),
            }
        }
    }

    fn begin(&self, unasked: Option<CloseReason>) -> Ended {
        let (meeting, joint) = (Arc::clone(&self.meeting), Arc::clone(&self.joint));
        let task = async move { meeting.give_back(&joint, unasked).await };
        let task = self.nothing.process().handle().spawn(task);
        let ended = task.map(|ended| {
            ended.unwrap_or_else(|died| {
                Err(Error::internal("closing ended without an answer").caused_by(died))
            })
        });
        ended.boxed().shared()
    }
}

impl Drop for Share {
    /// A share that is dropped while open is returned in the background.
    fn drop(&mut self) {
        let process = self.nothing.process();
        if self.is_over() || process.is_stale() || process.is_over() {
            return;
        }
        let ended = self.begin(Some(CloseReason::Forgotten));
        let close = process.handle().spawn(ended).map(drop).boxed().shared();
        process.note_closing(self.joint.opened.place.key.clone(), close);
    }
}
