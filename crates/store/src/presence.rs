//! Presence of a writer, which other openers see: begun when a database is opened for writing, held
//! until that handle ends. It keeps two writers from opening one database by mistake. It must not
//! decide about safety, which epochs and fences ensure (RFC 0004). If a writer's presence cannot be
//! known, because it runs elsewhere or the file system has no locks, openers take over.

use parking_lot::Mutex;
use siltstone_base::{DatabaseId, Error, ErrorKind, Result};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Held by a writer while it lives. Dropping it shows that the writer has ended.
pub struct Presence(Option<Box<dyn Send + Sync>>);

impl Presence {
    /// The presence of a writer that other openers cannot see.
    #[must_use]
    pub fn unknown() -> Presence {
        Presence(None)
    }

    /// A presence that ends when `held` is dropped.
    #[must_use]
    pub fn held(held: impl Send + Sync + 'static) -> Presence {
        Presence(Some(Box::new(held)))
    }
}

/// The presence of an opening, and of the resulting handle. A caller that gives up waiting ends it
/// immediately, so that the next opener of this process does not meet the presence of an abandoned
/// opening.
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
    /// Closed if the end has come.
    pub fn begin(&self, presence: Presence) -> Result<()> {
        let mut occupied = self.0.lock();
        if occupied.has_ended {
            return Err(Error::new(ErrorKind::Closed, "the opener of the database gave up"));
        }
        occupied.presence = Some(presence);
        Ok(())
    }

    /// Lets other openers open the database. The handle must take no more writes.
    pub fn end(&self) {
        let mut occupied = self.0.lock();
        occupied.has_ended = true;
        let presence = occupied.presence.take();
        drop(occupied);
        // Dropping it closes a file, so do that outside of the lock.
        drop(presence);
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Presence").field(&self.0.is_some()).finish()
    }
}

/// The writer that has a database open, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// A handle of this process.
    Here,
    /// Another process, on this machine or another one.
    There {
        /// Its process id, as the process itself sees it.
        process: String,
        /// The name of its machine.
        host: String,
    },
    /// A writer of unknown identity.
    Unknown,
}

impl Occupant {
    /// Why an opener is refused, and what the caller can do.
    pub(crate) fn refusal(&self) -> Error {
        let conflict = |who: &str| {
            let text = format!(
                "{who} has this database open for writing, and only one writer is allowed; close \
                 that one, open a reader (open_reader), or fence it by opening with take_over=True"
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

/// The place of the single writer among the handles of a process.
#[derive(Clone, Default)]
pub(crate) struct WriterSeat(Arc<Mutex<Option<SeatHolder>>>);

/// The holder of a seat: the process, because a forked process has a copy of the seat, and the
/// handle.
#[derive(Clone)]
struct SeatHolder {
    process: u32,
    handle: Arc<()>,
}

impl WriterSeat {
    /// Takes the seat. With `take_over`, also from another holder.
    ///
    /// # Errors
    /// Conflict while another handle of this process has the seat.
    pub(crate) fn take(&self, take_over: bool) -> Result<Presence> {
        let sitter = SeatHolder { process: std::process::id(), handle: Arc::default() };
        let mut seat = self.0.lock();
        if !take_over && seat.as_ref().is_some_and(|other| other.process == sitter.process) {
            return Err(Occupant::Here.refusal());
        }
        *seat = Some(sitter.clone());
        Ok(Presence::held(Sitting { seat: self.clone(), sitter }))
    }

    /// Whether the seat is free.
    pub(crate) fn is_free(&self) -> bool {
        self.0.lock().is_none()
    }
}

/// Seats of stores without memory of their own, by place and database. A place may have several
/// databases over time, and a database may be copied to several places.
static SEATS: LazyLock<Mutex<HashMap<(String, DatabaseId), WriterSeat>>> =
    LazyLock::new(Mutex::default);

/// The seat of `database` at `place`, one for all handles of this process.
pub(crate) fn seat(place: String, database: DatabaseId) -> WriterSeat {
    let mut seats = SEATS.lock();
    // Forget closed ones; few are open at a time.
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
        // The end of a handle that was taken over frees nothing.
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

    /// In a forked child the parent's handles do not count.
    #[test]
    fn a_seat_of_another_process_is_free() {
        let seat = WriterSeat::default();
        let parents =
            SeatHolder { process: std::process::id().wrapping_add(1), handle: Arc::default() };
        *seat.0.lock() = Some(parents);
        drop(seat.take(false).unwrap());
    }
}
