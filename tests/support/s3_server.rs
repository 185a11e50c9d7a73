//! Stores on the S3 server of the tests (`tests/server`), by the real client.

use siltstone::env::Effects;
use siltstone::store::options::StoreOptions;
use siltstone::store::{Store, url};
use siltstone_test_server::{ServerConfig, TestServer};
use std::sync::Arc;

/// The bucket of a server with default settings.
pub const BUCKET: &str = "quarry";

/// Starts a server that knows one key, with the other settings of `config`.
///
/// # Panics
/// If the system has no more sockets or threads.
#[must_use]
pub fn start(config: ServerConfig) -> TestServer {
    let keys = vec![("test-key".to_owned(), "test-secret".to_owned())];
    match TestServer::start(ServerConfig { keys, ..config }) {
        Ok(server) => server,
        Err(error) => unreachable!("{error}"),
    }
}

/// The store at `path` of the server's bucket.
///
/// # Panics
/// If an option is not accepted.
#[must_use]
pub fn store(server: &TestServer, path: &str, effects: &Effects) -> Arc<dyn Store> {
    store_with(server, path, &[], effects)
}

/// The store at `path` of the server's bucket, with more options, which replace the server's own.
///
/// # Panics
/// If an option is not accepted.
#[must_use]
pub fn store_with(
    server: &TestServer,
    path: &str,
    more: &[(&str, &str)],
    effects: &Effects,
) -> Arc<dyn Store> {
    let endpoint = server.endpoint();
    let own = [
        ("endpoint", endpoint.as_str()),
        ("region", "us-east-1"),
        ("access_key_id", "test-key"),
        ("secret_access_key", "test-secret"),
    ];
    let options = own.iter().chain(more);
    let options: StoreOptions =
        options.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    match url::parse(&format!("s3://{BUCKET}/{path}"), &options, [], effects) {
        Ok(store) => store,
        Err(error) => unreachable!("{error}"),
    }
}
