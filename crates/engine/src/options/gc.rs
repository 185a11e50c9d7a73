//! The group of options that only collection needs. Whether the writer collects at all stands at
//! the top (`embedded_gc`), beside its compactor.

use std::time::Duration;

/// When the writer's collector looks, and what it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gc {
    /// Time between two looks.
    pub interval: Duration,
    /// What is younger is not collected.
    pub min_age: Duration,
    /// Bytes of garbage from which on age counts no longer; `None`: by the size of the database.
    pub max_garbage_bytes: Option<u64>,
    /// For so long a database that was destroyed softly is left as it is.
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
