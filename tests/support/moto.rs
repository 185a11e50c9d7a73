//! An S3 server for tests: moto, in its own Python process, on a loopback port.

use siltstone::env::Effects;
use siltstone::store::options::StoreOptions;
use siltstone::store::{Store, url};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Serves S3 until it is dropped.
#[derive(Debug)]
pub struct Moto {
    child: Child,
    port: u16,
}

const SCRIPT: &str = include_str!("serve_moto.py");

/// Python interpreters that may have moto: the workspace's environment, then the system's.
pub(crate) fn pythons() -> [PathBuf; 2] {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    [workspace.join(".venv/bin/python"), PathBuf::from("python3")]
}

impl Moto {
    /// Starts a server with an empty bucket.
    ///
    /// # Errors
    /// The reason why it did not start, for a test to print when it skips.
    pub fn start(bucket: &str) -> Result<Moto, String> {
        let mut reasons = Vec::new();
        for python in &pythons() {
            match Moto::start_with(python) {
                Ok(moto) => {
                    moto.create_bucket(bucket)?;
                    return Ok(moto);
                }
                Err(reason) => reasons.push(format!("{}: {reason}", python.display())),
            }
        }
        Err(format!("no moto server ({})", reasons.join("; ")))
    }

    /// [`Moto::start`], or `None` after printing the reason if there is no moto. If
    /// `SILTSTONE_REQUIRE_MOTO` is set, as by `make test`, that is a failure.
    #[must_use]
    pub fn start_or_skip(bucket: &str) -> Option<Moto> {
        match Moto::start(bucket) {
            Ok(moto) => Some(moto),
            Err(reason) => {
                let required = std::env::var_os("SILTSTONE_REQUIRE_MOTO").is_some();
                assert!(!required, "{reason}");
                eprintln!("skipped: {reason}");
                None
            }
        }
    }

    /// The store at `path` in `bucket`.
    ///
    /// # Panics
    /// If the URL or an option is not accepted.
    #[must_use]
    pub fn store(&self, bucket: &str, path: &str, effects: &Effects) -> Arc<dyn Store> {
        self.store_at(&format!("s3://{bucket}/{path}"), &[], effects)
    }

    /// The store of `url`, with the options of this server and `more`.
    ///
    /// # Panics
    /// If the URL or an option is not accepted.
    #[must_use]
    pub fn store_at(&self, url: &str, more: &[(&str, &str)], effects: &Effects) -> Arc<dyn Store> {
        let endpoint = self.endpoint();
        let own = [
            ("endpoint", endpoint.as_str()),
            ("allow_http", "true"),
            ("region", "us-east-1"),
            ("access_key_id", "test-key"),
            ("secret_access_key", "test-secret"),
        ];
        let options = own.iter().chain(more);
        let options: StoreOptions =
            options.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        match url::parse(url, &options, [], effects) {
            Ok(store) => store,
            Err(error) => unreachable!("{error}"),
        }
    }

    fn start_with(python: &Path) -> Result<Moto, String> {
        let child = Command::new(python)
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut moto = Moto { child, port: 0 };
        let output = moto.child.stdout.take().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        let port = line.trim().parse();
        moto.port = port.map_err(|_| "it has no moto with its server part".to_owned())?;
        Ok(moto)
    }

    /// Creates one more bucket.
    ///
    /// # Errors
    /// The server's answer.
    pub fn create_bucket(&self, bucket: &str) -> Result<(), String> {
        let request = format!(
            "PUT /{bucket} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n"
        );
        let mut answer = String::new();
        let mut talk = || -> std::io::Result<()> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.write_all(request.as_bytes())?;
            stream.read_to_string(&mut answer)?;
            Ok(())
        };
        talk().map_err(|error| error.to_string())?;
        match answer.split(' ').nth(1) {
            Some("200") => Ok(()),
            _ => Err(format!("the bucket was not made: {answer}")),
        }
    }

    /// The address on which it listens.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
