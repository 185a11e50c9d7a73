//! What tells others that a writer lives: taken when a database is opened for writing, held until
//! that handle ends. It keeps two from opening one database by mistake. It decides nothing about
//! safety, which is the epochs' and fences' alone (RFC 0004): where nothing can be known, because
//! a writer elsewhere leaves no trace or a file system has no locks, openers take over as ever.

use parking_lot::Mutex;
use siltstone_base::{DatabaseId, Error, ErrorKind, Result};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Held by a writer while it lives; dropping it says that it lives no more.
pub struct Presence(Option<Box<dyn Send + Sync>>);

impl Presence {
    /// That of a writer which nobody can know of.
    #[must_use]
    pub fn unknown() -> Presence {
        Presence(None)
    }

    /// Ends when `held` is dropped.
    #[must_use]
    pub fn held(held: impl Send + Sync + 'static) -> Presence {
        Presence(Some(Box::new(held)))
    }
}

/// The presence of an opening, and of the handle that comes of it. Whoever gives up waiting for
/// either ends it, at once: the next opener of this process must not meet one that nobody has.
#[derive(Clone, Debug, Default)]
pub struct Occupancy(Arc<Mutex<Occupied>>);

#[derive(Debug, Default)]
struct Occupied {
    presence: Option<Presence>,
    has_ended: bool,
}

impl Occupancy {
    /// Holds `presence` until the end.
    ///
    /// # Errors
    /// Closed when that has come.
    pub(crate) fn begin(&self, presence: Presence) -> Result<()> {
        let mut occupied = self.0.lock();
        if occupied.has_ended {
            return Err(Error::new(ErrorKind::Closed, "whoever opened the database gave up"));
        }
        occupied.presence = Some(presence);
        Ok(())
    }

    /// Others may open the database now: what was opened takes no more writes, for good.
    pub fn end(&self) {
        let mut occupied = self.0.lock();
        occupied.has_ended = true;
        let presence = occupied.presence.take();
        drop(occupied);
        // A file is closed, outside of the lock.
        drop(presence);
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Presence").field(&self.0.is_some()).finish()
    }
}

/// Who has a database open for writing, as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Occupant {
    /// A handle of this process.
    Here,
    /// Another process, of this machine or another one.
    There {
        /// Its process id, as it sees it itself.
        process: String,
        /// The machine's name.
        host: String,
    },
    /// Somebody.
    Unknown,
}

impl Occupant {
    /// Why an opener is refused, and what he can do.
    pub(super) fn refusal(&self) -> Error {
        let conflict = |who: &str| {
            let text = format!(
                "{who} has this database open for writing, and it has one writer at a time; close \
                 that one, read beside it (open_reader), or end it by opening with take_over=True"
            );
            Error::new(ErrorKind::Conflict, text)
        };
        match self {
            Occupant::Here => conflict("this process").with("process", std::process::id()),
            Occupant::There { process, host } => conflict(&format!("process {process} on {host}"))
                .with("process", process)
                .with("host", host),
            Occupant::Unknown => conflict("another process"),
        }
    }
}

/// The place of one writer among the handles of a process.
#[derive(Clone, Default)]
pub(super) struct WriterSeat(Arc<Mutex<Option<SeatHolder>>>);

/// Who sits: the process, since a forked one has a copy of the seat, and which of its handles.
#[derive(Clone)]
struct SeatHolder {
    process: u32,
    handle: Arc<()>,
}

impl WriterSeat {
    /// Takes the place, from whoever has it if `take_over`.
    ///
    /// # Errors
    /// Conflict while another handle of this process has it.
    pub(super) fn take(&self, take_over: bool) -> Result<Presence> {
        let sitter = SeatHolder { process: std::process::id(), handle: Arc::default() };
        let mut seat = self.0.lock();
        if !take_over && seat.as_ref().is_some_and(|other| other.process == sitter.process) {
            return Err(Occupant::Here.refusal());
        }
        *seat = Some(sitter.clone());
        Ok(Presence::held(Sitting { seat: self.clone(), sitter }))
    }

    /// Whether nobody has it.
    pub(super) fn is_free(&self) -> bool {
        self.0.lock().is_none()
    }
}

/// Seats of stores that have no memory of their own, by place and database: at one place there may
/// be one database after the other, and one database copied to several places.
static SEATS: LazyLock<Mutex<HashMap<(String, DatabaseId), WriterSeat>>> =
    LazyLock::new(Mutex::default);

/// The seat of `database` at `place`, one for all handles of this process.
pub(super) fn seat(place: String, database: DatabaseId) -> WriterSeat {
    let mut seats = SEATS.lock();
    // Few are open at a time, and what was closed is forgotten.
    seats.retain(|_, seat| Arc::strong_count(&seat.0) > 1 || !seat.is_free());
    seats.entry((place, database)).or_default().clone()
}

struct Sitting {
    seat: WriterSeat,
    sitter: SeatHolder,
}

impl Drop for Sitting {
    fn drop(&mut self) {
        let mut seat = self.seat.0.lock();
        if seat.as_ref().is_some_and(|other| Arc::ptr_eq(&other.handle, &self.sitter.handle)) {
            *seat = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_one_handles_until_it_ends() {
        let seat = WriterSeat::default();
        let first = seat.take(false).unwrap();
        let refused = seat.take(false).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        assert!(refused.to_string().contains("this process"), "{refused}");
        let second = seat.take(true).unwrap();
        // The end of one that was taken over frees nothing.
        drop(first);
        assert!(seat.take(false).is_err());
        drop(second);
        assert!(seat.is_free());
        drop(seat.take(false).unwrap());
    }

    #[test]
    fn a_seat_goes_by_place_and_database() {
        let [one, other] = ["one", "other"].map(|name| format!("presence-test://{name}"));
        let held = seat(one.clone(), DatabaseId(1)).take(false).unwrap();
        assert!(seat(one.clone(), DatabaseId(1)).take(false).is_err());
        drop(seat(one.clone(), DatabaseId(2)).take(false).unwrap());
        drop(seat(other, DatabaseId(1)).take(false).unwrap());
        drop(held);
        drop(seat(one, DatabaseId(1)).take(false).unwrap());
    }

    /// As a forked child finds it: the parent's handles are none of its own.
    #[test]
    fn a_seat_of_another_process_is_free() {
        let seat = WriterSeat::default();
        let parents =
            SeatHolder { process: std::process::id().wrapping_add(1), handle: Arc::default() };
        *seat.0.lock() = Some(parents);
        drop(seat.take(false).unwrap());
    }
}
