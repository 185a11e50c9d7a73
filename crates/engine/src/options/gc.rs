//! The group of options of garbage collection. The option `embedded_gc` of the writer is not in
//! this group.

use std::time::Duration;

/// Intervals and limits of the writer's collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gc {
    /// Time between two checks for garbage.
    pub interval: Duration,
    /// Grace period: younger objects are not collected.
    pub min_age: Duration,
    /// Bytes of garbage above which `min_age` is ignored; `None`: determined by the database's
    /// size.
    pub max_garbage_bytes: Option<u64>,
    /// Grace period of a soft destroy.
    pub db_delete_grace: Duration,
}

impl Default for Gc {
    fn default() -> Gc {
        Gc {
            interval: Duration::from_secs(300),
            min_age: Duration::from_secs(300),
            max_garbage_bytes: None,
            db_delete_grace: Duration::from_secs(86_400),
        }
    }
}
