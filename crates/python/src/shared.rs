//! `open(…, shared=True)`: one handle for all openers of a place in this process (RFC 0026).

use crate::database::{CloseReason, Database, Opened};
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

/// A place that openers share: nobody opens or closes it while somebody else does.
#[derive(Default)]
pub(crate) struct SharedPlace {
    joint: Mutex<Weak<SharedHandle>>,
}

/// The one handle, and how many have it.
struct SharedHandle {
    opened: Arc<Opened>,
    opening: Opening,
    users: AtomicUsize,
}

/// What an opener brings.
pub(crate) struct Opening {
    pub(crate) how: OpenOptions,
    /// The options that were named.
    pub(crate) named: Vec<String>,
    pub(crate) store_options: StoreOptions,
}

impl Opening {
    /// Whether whoever opens so may have the handle that was opened as `other`.
    ///
    /// # Errors
    /// Invalid, naming the first of what is named here and is otherwise there.
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

/// An option's value for people.
fn shown(value: Option<OptionValue>) -> String {
    match value {
        Some(OptionValue::Seconds(seconds)) => seconds.to_string(),
        Some(OptionValue::Int(number)) => number.to_string(),
        Some(OptionValue::Bool(on)) => on.to_string(),
        Some(OptionValue::Text(text)) => text,
        Some(OptionValue::Nothing) | None => "none".to_owned(),
    }
}

/// What one opener has of the handle.
pub(crate) struct Share {
    meeting: Arc<SharedPlace>,
    joint: Arc<SharedHandle>,
    /// Set once it was given back: how that ends.
    ended: OnceLock<Held<Ended>>,
    /// What its calls find then.
    nothing: Held<siltstone::Database>,
}

/// The end of a share, for every one who waits for it.
type Ended = Shared<BoxFuture<'static, Result<()>>>;

/// Where the handles of this process are found that serve `env`'s store: by what names it, and a
/// folder by where it really is.
///
/// # Errors
/// What the look at a folder raises.
pub(crate) fn place(py: Python<'_>, env: &Env) -> PyResult<String> {
    let place = format!("{:?}", env.store);
    match place.strip_prefix("file://") {
        Some(folder) => py.import("os.path")?.getattr("realpath")?.call1((folder,))?.extract(),
        None => Ok(place),
    }
}

/// Opens the database, or joins those who have it open.
///
/// # Errors
/// As opening; Invalid for an opener who brings what the handle has otherwise.
pub(crate) async fn open(
    process: &'static Process,
    meeting: Arc<SharedPlace>,
    env: Env,
    opening: Opening,
    place: String,
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
    /// Whether the handle serves anybody.
    fn is_alive(&self) -> bool {
        self.opened.held().peek().is_some_and(|engine| engine.ended().is_none())
    }
}

impl SharedPlace {
    /// Gives one share back: what was written is durable then, and after the last one the handle is
    /// closed.
    async fn give_back(&self, joint: &SharedHandle, unasked: Option<CloseReason>) -> Result<()> {
        let mut flushed = None;
        // Nobody joins while this is held, and nobody opens before it is closed.
        let _current = loop {
            let engine = joint.opened.held().peek().filter(|_| flushed.is_none());
            if let Some(engine) = engine.filter(|_| joint.users.load(Ordering::Acquire) > 1) {
                // Still counted, so that nobody closes it meanwhile.
                flushed = Some(engine.flush().await);
            }
            let current = self.joint.lock().await;
            // Somebody may have joined since: no close writes then what this one has written.
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
    /// The handle; nothing once the share was given back.
    pub(crate) fn held(&self) -> &Held<siltstone::Database> {
        if self.ended.get().is_some() { &self.nothing } else { self.joint.opened.held() }
    }

    /// Whether it was given back.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.get().is_some()
    }

    /// How giving it back ended; `None` while it has not.
    pub(crate) fn closed(&self) -> Option<Result<()>> {
        match self.ended.get() {
            Some(ended) => ended.peek()?.peek().cloned(),
            // The interpreter's end closes the handle under everybody.
            None => self.joint.opened.closed(),
        }
    }

    /// Gives it back, for somebody who waits: it goes on when the future is dropped.
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
    /// Forgotten: given back in the background.
    fn drop(&mut self) {
        let process = self.nothing.process();
        if self.is_over() || process.is_stale() || process.is_over() {
            return;
        }
        let ended = self.begin(Some(CloseReason::Forgotten));
        process.note_closing(process.handle().spawn(ended.map(drop)));
    }
}
