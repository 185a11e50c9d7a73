//! The server by its protocol: requests and conditions, faults, races, signatures, pace and speed.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that panics has failed, as it should; clients are threads in real time"
)]

mod faults;
mod listings;
mod paced;
mod program;
mod protocol;
mod races;
mod signed;

use siltstone_test_server::client::{Client, Reply};
use siltstone_test_server::{ServerConfig, TestServer};

/// A server and one connection to it.
struct Served {
    server: TestServer,
    client: Client,
}

impl Served {
    fn new(config: ServerConfig) -> Served {
        let server = TestServer::start(config).unwrap();
        let client = Client::connect(server.address()).unwrap();
        Served { server, client }
    }

    fn plain() -> Served {
        Served::new(ServerConfig::default())
    }

    /// A request to an object of the bucket, with headers and body.
    fn send(&mut self, method: &str, key: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.client.send(method, &format!("/quarry/{key}"), headers, body).unwrap()
    }

    fn put(&mut self, key: &str, body: &[u8]) -> Reply {
        let reply = self.send("PUT", key, &[], body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply
    }

    fn get(&mut self, key: &str) -> Reply {
        self.send("GET", key, &[], b"")
    }

    fn list(&mut self, query: &str) -> Reply {
        let reply = self.client.send("GET", &format!("/quarry?list-type=2{query}"), &[], b"");
        reply.unwrap()
    }

    /// A new connection, after a fault has ended the last one.
    fn reconnect(&mut self) {
        self.client = Client::connect(self.server.address()).unwrap();
    }
}

/// The status and the code of a refusal.
fn refused(reply: &Reply) -> (u16, String) {
    (reply.status, reply.element("Code").unwrap_or_default())
}
