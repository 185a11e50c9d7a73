//! Credentials that a function renews, and the count of all requests of a client.

use crate::server::{
    Reply, Server, TABLE, WAL, begun, completed, created, part, serve, serve_by, status,
};
use bytes::Bytes;
use parking_lot::Mutex;
use siltstone::store::counting::CountingStore;
use siltstone::store::options::{OptionsSource, StoreOptions};
use siltstone::store::retry::with_retries;
use siltstone::store::{PutAnswer, url};
use siltstone::{Error, ErrorKind, Result};
use siltstone_base::name::prefix;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// A function whose credentials change.
struct Keys {
    endpoint: String,
    key: Mutex<&'static str>,
    lifetime: Mutex<Option<f64>>,
    calls: Mutex<u32>,
    /// The function ends once this is free.
    gate: Mutex<()>,
}

impl Keys {
    fn options(&self) -> StoreOptions {
        let key = *self.key.lock();
        let mut given = vec![
            ("endpoint", self.endpoint.clone()),
            ("access_key_id", key.to_owned()),
            ("secret_access_key", format!("secret-of-{key}")),
        ];
        if let Some(lifetime) = *self.lifetime.lock() {
            let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
            given.push(("expires_at", format!("{}", now + lifetime)));
        }
        given.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl OptionsSource for Keys {
    fn store_options(&self) -> Result<StoreOptions> {
        *self.calls.lock() += 1;
        drop(self.gate.lock());
        let key = *self.key.lock();
        match key {
            "" => Err(Error::new(ErrorKind::Denied, "the function fails")),
            _ => Ok(self.options()),
        }
    }
}

/// A server that accepts only the credentials of `good`, and a store that gets them from a
/// function.
fn renewing(good: Arc<Mutex<&'static str>>, keys: &'static str) -> (Server, Arc<Keys>) {
    let mut server = serve_by(&[], move |_, head, _| {
        if !head.contains(&format!("Credential={}/", *good.lock())) {
            return status("400 Bad Request", "<Code>ExpiredToken</Code>");
        }
        match head.split(' ').next() {
            Some("PUT") => created(),
            Some("POST") if head.contains("?uploads") => begun(),
            Some("POST") => completed(),
            _ => part("0-3/4", 4, "abcd"),
        }
    });
    let keys = Arc::new(Keys {
        endpoint: server.endpoint.clone(),
        key: Mutex::new(keys),
        lifetime: Mutex::default(),
        calls: Mutex::default(),
        gate: Mutex::default(),
    });
    let source: Arc<dyn OptionsSource> = Arc::<Keys>::clone(&keys);
    let options = keys.options().renewed_by(source);
    server.store = url::parse("s3://quarry/db", &options, [], &server.effects).unwrap();
    (server, keys)
}

fn read(server: &Server) -> Result<()> {
    let env = server.effects.clone().with_store(Arc::clone(&server.store));
    let read = with_retries(&env, LIMIT, "read", || server.store.get(TABLE, Some(0..4)));
    server.runtime.block_on(read).map(drop)
}

#[test]
fn refused_credentials_are_asked_for_again() {
    let good = Arc::new(Mutex::new("key-1"));
    let (server, keys) = renewing(Arc::clone(&good), "key-1");
    read(&server).unwrap();
    assert_eq!(*keys.calls.lock(), 0);
    (*good.lock(), *keys.key.lock()) = ("key-2", "key-2");
    read(&server).unwrap();
    assert!(*keys.calls.lock() >= 1);
    (*good.lock(), *keys.key.lock()) = ("key-3", "key-3");
    // A create is refused, and known not to be applied.
    let refused = server.put();
    let PutAnswer::Refused(error) = refused else { panic!("{refused:?}") };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let again = server.runtime.block_on(async {
        server.effects.clock.sleep(Duration::from_millis(300)).await;
        server.store.put_if_absent(WAL, "body".into()).await
    });
    assert!(matches!(again, PutAnswer::Created), "{again:?}");
}

/// A long upload outlives the credentials with which it began.
#[test]
fn credentials_are_renewed_in_an_upload() {
    let good = Arc::new(Mutex::new("key-1"));
    let (server, keys) = renewing(Arc::clone(&good), "key-1");
    for bytes in [1 << 20, 40 << 20] {
        let rotated = if *good.lock() == "key-2" { "key-3" } else { "key-2" };
        server.runtime.block_on(async {
            let mut upload = server.store.upload(TABLE).await.unwrap();
            for at in 0..bytes >> 20 {
                if at == bytes >> 21 {
                    (*good.lock(), *keys.key.lock()) = (rotated, rotated);
                }
                upload.write(Bytes::from(vec![b'a'; 1 << 20])).await.unwrap();
            }
            upload.finish().await.unwrap();
        });
    }
    assert!(*keys.calls.lock() >= 2);
}

#[test]
fn credentials_that_stay_refused_are_denied() {
    for key in ["key-1", ""] {
        let (server, keys) = renewing(Arc::new(Mutex::new("another")), "key-1");
        *keys.key.lock() = key;
        let error = read(&server).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!error.to_string().contains("secret-of"), "{error}");
        assert!((1..=11).contains(&*keys.calls.lock()), "{}", keys.calls.lock());
    }
}

/// Each rotation is seen for itself, however soon it follows the one before.
#[test]
fn credentials_may_be_rotated_often() {
    let good = Arc::new(Mutex::new("key-1"));
    let (server, keys) = renewing(Arc::clone(&good), "key-1");
    for key in ["key-2", "key-3", "key-4"] {
        (*good.lock(), *keys.key.lock()) = (key, key);
        read(&server).unwrap();
        pause(&server, Duration::from_millis(2_500));
    }
}

/// The function gives the new credentials some seconds after the store takes them.
#[test]
fn credentials_that_come_late_are_taken() {
    let good = Arc::new(Mutex::new("key-2"));
    let (server, keys) = renewing(Arc::clone(&good), "key-1");
    assert_eq!(read(&server).unwrap_err().kind(), ErrorKind::Denied);
    *keys.key.lock() = "key-2";
    let calls = *keys.calls.lock();
    for _ in 0..7 {
        pause(&server, Duration::from_secs(1));
        if read(&server).is_ok() {
            return;
        }
        assert!(*keys.calls.lock() <= calls + 2, "{}", keys.calls.lock());
    }
    panic!("the new credentials are not asked for");
}

fn pause(server: &Server, time: Duration) {
    server.runtime.block_on(async { server.effects.clock.sleep(time).await });
}

/// An AWS profile whose keys are rotated in the shared file while a handle is open.
#[test]
fn keys_that_are_rotated_in_a_shared_file_are_read_again() {
    let good = Arc::new(Mutex::new("key-1"));
    let (server, _) = renewing(Arc::clone(&good), "key-1");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    let rotate = |key: &str| {
        let text = format!(
            "[quarry]\naws_access_key_id = {key}\naws_secret_access_key = secret-of-{key}\n\
             endpoint_url = {}\n",
            server.endpoint
        );
        std::fs::write(&file, text).unwrap();
    };
    rotate("key-1");
    let environment = [
        ("AWS_SHARED_CREDENTIALS_FILE".to_owned(), file.display().to_string()),
        ("AWS_PROFILE".to_owned(), "quarry".to_owned()),
    ];
    let options = StoreOptions::default();
    let store = url::parse("s3://quarry/db", &options, environment, &server.effects).unwrap();
    let read = || {
        let env = server.effects.clone().with_store(Arc::clone(&store));
        let read = with_retries(&env, LIMIT, "read", || store.get(TABLE, Some(0..4)));
        server.runtime.block_on(read).map(drop)
    };
    read().unwrap();
    *good.lock() = "key-2";
    rotate("key-2");
    read().unwrap();
    // A file that still has the old keys: Denied, and no secret in the text.
    *good.lock() = "key-3";
    let error = read().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!error.to_string().contains("secret-of"), "{error}");
}

#[test]
fn credentials_are_renewed_before_they_expire() {
    // Three quarters of a life are over if the machine stalls: the next life is longer.
    let is_fresh_at_first = [0.9, 3.6, 14.4].into_iter().any(|lifetime| {
        let (server, keys) = renewing(Arc::new(Mutex::new("key-1")), "key-1");
        *keys.lifetime.lock() = Some(lifetime);
        let options = keys.options().renewed_by(Arc::<Keys>::clone(&keys));
        let store = url::parse("s3://quarry/db", &options, [], &server.effects).unwrap();
        let server = Server { store, ..server };
        read(&server).unwrap();
        let is_fresh = *keys.calls.lock() == 0;
        if is_fresh {
            pause(&server, Duration::from_secs_f64(lifetime * 8.0 / 9.0));
            read(&server).unwrap();
            assert_eq!(*keys.calls.lock(), 1, "before the end, and once");
        }
        is_fresh
    });
    assert!(is_fresh_at_first, "renewed at once");
}

/// A request that waits for the function can be given up. It names the function, and the next
/// request does not call it a second time beside the first.
#[test]
fn a_function_that_hangs_is_named_and_called_once() {
    let (server, keys) = renewing(Arc::new(Mutex::new("key-1")), "key-1");
    *keys.lifetime.lock() = Some(0.0);
    let options = keys.options().renewed_by(Arc::<Keys>::clone(&keys));
    let store = url::parse("s3://quarry/db", &options, [], &server.effects).unwrap();
    let server = Server { store, ..server };
    let hangs = keys.gate.lock();
    pause(&server, Duration::from_millis(300));
    let env = server.effects.clone().with_store(Arc::clone(&server.store));
    let read = || server.store.get(TABLE, Some(0..4));
    let limit = Duration::from_millis(1500);
    let error = server.runtime.block_on(env.deadline(limit, "read", read())).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("waits for: the function of the store options"), "{text}");
    assert_eq!(*keys.calls.lock(), 1);
    // The credentials that it has still work.
    server.runtime.block_on(read()).unwrap();
    assert_eq!(*keys.calls.lock(), 1);
    drop(hangs);
    for _ in 0..600 {
        if server.store.unanswered().is_none() {
            return;
        }
        pause(&server, Duration::from_millis(50));
    }
    panic!("unanswered: {:?}", server.store.unanswered());
}

#[test]
fn every_request_that_a_client_sends_is_counted() {
    let busy = || status("503 Slow Down", "");
    let server = serve(vec![busy(), Reply::Reset, part("0-3/100", 4, "abcd")]);
    let (store, requests) = CountingStore::wrap(Arc::clone(&server.store));
    server.runtime.block_on(store.get(TABLE, Some(0..4))).unwrap();
    let totals = requests.totals();
    assert_eq!((totals.gets, totals.failed, totals.transient), (3, 2, 2));
    assert_eq!((totals.bytes_read, server.requests()), (4, 3));
    let server = serve(vec![busy(), status("403 Forbidden", "<Code>AccessDenied</Code>")]);
    let (store, requests) = CountingStore::wrap(Arc::clone(&server.store));
    assert!(server.runtime.block_on(store.list(prefix::WAL, None)).is_err());
    let totals = requests.totals();
    assert_eq!((totals.lists, totals.gets, totals.failed, totals.transient), (2, 0, 2, 1));
}
