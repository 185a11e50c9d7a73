//! Servers for tests that a Python program of `tests/python` starts and stops.

use crate::moto::pythons;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct PythonServer {
    child: Child,
    line: String,
}

impl PythonServer {
    /// Starts a program, which prints one line once it serves; `None` after printing `remedy` if it
    /// cannot.
    #[must_use]
    pub fn start_or_skip(program: &str, remedy: &str) -> Option<PythonServer> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(program);
        for python in &pythons() {
            let child = Command::new(python)
                .arg(&script)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn();
            let Ok(mut child) = child else { continue };
            let mut line = String::new();
            let output = child.stdout.take();
            let read = output.map(|output| BufReader::new(output).read_line(&mut line));
            if matches!(read, Some(Ok(length)) if length > 1) {
                return Some(PythonServer { child, line: line.trim().to_owned() });
            }
            let _ = child.wait();
        }
        eprintln!("skipped: {remedy}");
        None
    }

    /// A MariaDB server; its line is the URL of an empty database, with a password.
    #[must_use]
    pub fn mariadb() -> Option<PythonServer> {
        let remedy = "no MariaDB on this machine: apt-get install mariadb-server-core";
        PythonServer::start_or_skip("mariadb_for_tests.py", remedy)
    }

    /// An emulator of DynamoDB; its line is the port.
    #[must_use]
    pub fn dynamodb() -> Option<PythonServer> {
        PythonServer::start_or_skip("dynamodb_for_tests.py", "pip install 'moto[server]'")
    }

    /// The line that the program printed.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.line
    }
}

impl Drop for PythonServer {
    fn drop(&mut self) {
        // The program stops the server when its standard input closes.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
