//! The recorded facts of each place: its writers with their first numbers, and the acknowledged
//! writes.

use super::*;

/// The writers of a place, each with its first number.
pub(super) type Line = Vec<(u64, u64)>;
pub(super) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// One writer: its tag, the turn of its line, and the number of its writes.
pub(super) struct Reign {
    pub(super) tag: u64,
    pub(super) turns: u64,
    pub(super) n: u64,
}

pub(super) fn text(rows: &Rows) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    rows.iter().map(|(key, value)| format!("{}={} ", text(key), text(value))).collect()
}

/// The rows of a place on `line` after its n-th write.
pub(super) fn shows(line: &Line, n: u64) -> Rows {
    let tag = |m: u64| line.iter().rev().find(|(first, _)| *first <= m).map_or(0, |(_, tag)| *tag);
    let value = |m: u64| format!("{m}/{}", tag(m)).into_bytes();
    let mut rows: BTreeMap<Vec<u8>, Vec<u8>> =
        (n.saturating_sub(KEYS - 1).max(1)..=n).map(|m| (key(m), value(m))).collect();
    if n > 0 {
        rows.insert(COUNTER.to_vec(), value(n));
    }
    rows.into_iter().collect()
}

pub(super) fn key(n: u64) -> Vec<u8> {
    format!("key{:02}", n % KEYS).into_bytes()
}

/// The counter among `rows`.
pub(super) fn counted(rows: &Rows) -> u64 {
    let counter = rows.iter().find(|(key, _)| key == COUNTER);
    counter.map_or(0, |(_, value)| {
        let text = std::str::from_utf8(value).expect("text");
        text.split('/').next().and_then(|n| n.parse().ok()).expect("a number")
    })
}

/// The recorded facts of a place.
#[derive(Default)]
pub(super) struct Known {
    pub(super) line: Line,
    /// Everything up to this number is durable, on this line.
    pub(super) acknowledged: u64,
    /// Number of turns, by which the line was cut or ended; and number of begun or finished
    /// attempts at one: odd while an attempt runs.
    pub(super) turns: u64,
    pub(super) tries: u64,
    /// The last writer that opened.
    pub(super) epoch: u64,
    /// The line of each writer, as it opened.
    pub(super) lines: BTreeMap<u64, Line>,
}

#[derive(Default)]
pub(super) struct Books {
    pub(super) places: BTreeMap<String, Known>,
    pub(super) did: BTreeMap<Action, u64>,
    pub(super) violations: Vec<String>,
    pub(super) acknowledged: u64,
}

pub(super) struct Family {
    pub(super) sim: SimHandle,
    pub(super) places: Arc<Places>,
    pub(super) plan: Mutex<FaultPlan>,
    pub(super) books: Mutex<Books>,
    pub(super) options: Options,
    pub(super) off: Option<Action>,
    pub(super) stop: AtomicBool,
    /// Number of running owners and cloners.
    pub(super) active: AtomicU64,
    pub(super) next: AtomicU64,
}

pub(super) fn excused(error: &Error) -> bool {
    use ErrorKind::{Closed, Fenced, Timeout, Unavailable};
    matches!(error.kind(), Closed | Fenced | Timeout | Unavailable)
}

impl Family {
    pub(super) fn process(&self, role: &'static str, place: &str) -> (ProcessId, Env) {
        let process = self.sim.process(role, 0);
        let bucket = self.places.bucket(&self.sim, place, self.plan.lock().clone());
        (process, self.sim.env(process, bucket.store(process)))
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether an action is taken now, with this frequency in a thousand.
    pub(super) fn takes(&self, action: Action, rng: &mut Rng, per_mille: u32) -> bool {
        rng.chance(per_mille) && self.off != Some(action)
    }

    pub(super) fn did(&self, action: Action) {
        *self.books.lock().did.entry(action).or_default() += 1;
    }

    pub(super) fn violation(&self, what: String) {
        self.books.lock().violations.push(what);
    }

    pub(super) async fn pause(&self, rng: &mut Rng, millis: u64) {
        self.sim.sleep(Duration::from_millis(rng.below(millis))).await;
    }

    /// Runs an actor in the network, which is never killed.
    pub(super) fn start(self: &Arc<Self>, actor: impl Future<Output = ()> + Send + 'static) {
        self.active.fetch_add(1, Ordering::Relaxed);
        let family = Arc::clone(self);
        self.sim.spawn(ProcessId::NETWORK, "actor", async move {
            actor.await;
            family.active.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Runs `work` as a task of `process`; `None` if that was killed.
    pub(super) async fn within<T: Send + 'static>(
        &self,
        process: ProcessId,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, ended) = futures::channel::oneshot::channel();
        self.sim.spawn(process, "work", async move { drop(done.send(work.await)) });
        ended.await.ok()
    }

    pub(super) fn line(&self, place: &str) -> (Line, u64, u64) {
        let books = self.books.lock();
        let known = &books.places[place];
        (known.line.clone(), known.acknowledged, known.turns)
    }

    pub(super) fn tries(&self, place: &str) -> u64 {
        self.books.lock().places[place].tries
    }

    /// Whether no process has cut or ended the line, or attempted it, since this number of
    /// attempts.
    pub(super) fn stood(&self, place: &str, tries: u64) -> bool {
        tries.is_multiple_of(2) && self.tries(place) == tries
    }

    /// A process is about to cut or end the line; or has done so.
    pub(super) fn tries_to_turn(&self, place: &str) {
        self.books.lock().places.get_mut(place).expect("a place").tries += 1;
    }

    /// The writer of `epoch` has opened `place` and found `rows`. Returns its reign; `None` if it
    /// was overtaken before it reported that.
    pub(super) fn opened(&self, place: &str, epoch: u64, rows: &Rows) -> Option<Reign> {
        let (tag, n) = (self.number(), counted(rows));
        let mut books = self.books.lock();
        let known = books.places.get_mut(place).expect("a place");
        if epoch <= known.epoch {
            return None;
        }
        let right = shows(&known.line, n) == *rows;
        let (acknowledged, line) = (known.acknowledged, known.line.clone());
        known.epoch = epoch;
        known.line.retain(|(first, _)| *first <= n);
        known.line.push((n + 1, tag));
        known.lines.insert(tag, known.line.clone());
        let turns = known.turns;
        if n < acknowledged {
            books.violations.push(format!("{place}: {n} recovered, {acknowledged} acknowledged"));
        } else if !right {
            let text = format!("{place}: after {n} writes on {line:?} it shows {}", text(rows));
            books.violations.push(text);
        }
        Some(Reign { tag, turns, n })
    }

    /// A writer received the answer that everything up to `n` is durable.
    pub(super) fn acknowledged(&self, place: &str, reign: &Reign, n: u64) {
        let mut books = self.books.lock();
        books.acknowledged += 1;
        let known = books.places.get_mut(place).expect("a place");
        if known.turns != reign.turns {
            // Its writes were undone, or its place was emptied, meanwhile.
            return;
        }
        let later = known.line.iter().find(|(_, tag)| *tag > reign.tag);
        match later {
            // A later writer has opened since: it must have the write.
            Some((first, _)) if *first <= n => {
                let text = format!("{place}: {n} acknowledged, and {:?} recovered", known.line);
                books.violations.push(text);
            }
            _ => known.acknowledged = known.acknowledged.max(n),
        }
    }

    /// The line of `place` continues from `n`, or has ended.
    pub(super) fn turns(&self, place: &str, line: Line, n: u64) {
        let mut books = self.books.lock();
        let known = books.places.entry(place.to_owned()).or_default();
        known.line = line;
        known.line.retain(|(first, _)| *first <= n);
        if n == 0 {
            known.epoch = 0;
        }
        (known.acknowledged, known.turns) = (n, known.turns + 1);
    }
}
