//! The log lines of the engine by thread: a simulated world stays on its own thread.

use log::{LevelFilter, Log, Metadata, Record};
use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Keep;

impl Log for Keep {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        LINES.with_borrow_mut(|lines| lines.push(record.args().to_string()));
    }

    fn flush(&self) {}
}

/// Keeps lines from now on.
pub(crate) fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Keep).expect("the only one of this binary");
        log::set_max_level(LevelFilter::Info);
    });
}

/// The lines of this thread.
pub(crate) fn kept() -> Vec<String> {
    LINES.with_borrow(Clone::clone)
}
