//! A MariaDB server for tests, started and stopped by a Python process of its own.

use crate::moto::pythons;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Serves an empty database until it is dropped.
#[derive(Debug)]
pub struct MariaDb {
    child: Child,
    url: String,
}

impl MariaDb {
    /// Starts a server; `None` after printing the reason if there is none on this machine.
    #[must_use]
    pub fn start_or_skip() -> Option<MariaDb> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/mariadb_for_tests.py");
        for python in &pythons() {
            let child = Command::new(python)
                .arg(&script)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn();
            let Ok(mut child) = child else { continue };
            let mut url = String::new();
            let output = child.stdout.take();
            let read = output.map(|output| BufReader::new(output).read_line(&mut url));
            if matches!(read, Some(Ok(length)) if length > 1) {
                return Some(MariaDb { child, url: url.trim().to_owned() });
            }
            let _ = child.wait();
        }
        eprintln!("skipped: no MariaDB on this machine: apt-get install mariadb-server-core");
        None
    }

    /// The URL of the database, with a password.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        // The process stops the server when its standard input closes.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
