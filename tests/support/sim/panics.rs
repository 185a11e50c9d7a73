//! Panics of tasks. The engine catches them (RFC 0003), so a simulation would not notice them: they
//! are counted where they begin.

use std::cell::Cell;
use std::sync::Once;

thread_local! {
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

/// Counts panics from now on.
pub(crate) fn count() {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            SEEN.set(SEEN.get() + 1);
            before(panic);
        }));
    });
}

/// Panics of this thread so far.
pub(crate) fn seen() -> u64 {
    SEEN.get()
}
