//! From URLs to stores.

use crate::conformance::runtime;
use siltstone::store::options::StoreOptions;
use siltstone::store::{PutAnswer, Store, url};
use siltstone_base::{DatabaseId, ErrorKind, ObjectName, Result, WalId};
use std::sync::Arc;

const NAME: ObjectName = ObjectName::Wal(WalId(1));

fn parse(url: &str, options: &[(&str, &str)]) -> Result<Arc<dyn Store>> {
    let (_runtime, effects) = runtime();
    let options: StoreOptions =
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    url::parse(url, &options, [], &effects)
}

#[test]
fn stores_show_where_they_are_and_no_secrets() {
    let s3 = [("access_key_id", "canary-id"), ("secret_access_key", "canary-secret")];
    let store = parse("s3://quarry/a/b/", &s3).unwrap();
    assert_eq!(format!("{store:?}"), "s3://quarry/a/b");
    let azure = [("account_name", "acme"), ("access_key", "Y2FuYXJ5LXNlY3JldA==")];
    let store = parse("az://box/x", &azure).unwrap();
    assert_eq!(format!("{store:?}"), "az://box/x");
    let store = parse("gs://pail/x", &[("skip_signature", "true")]).unwrap();
    assert_eq!(format!("{store:?}"), "gs://pail/x");
    assert_eq!(format!("{:?}", parse("memory://m", &[]).unwrap()), "memory://m");
    assert_eq!(format!("{:?}", parse("file:///v/a%20b", &[]).unwrap()), "file:///v/a b");
}

#[test]
fn wrong_urls_and_options_are_invalid_and_named() {
    let cases: [(&str, &[(&str, &str)], &str); 9] = [
        ("ftp://host/x", &[], "ftp"),
        ("s3://", &[], "no bucket"),
        ("s3:///path", &[], "no bucket"),
        ("s3://b/../x", &[], "double dot"),
        ("memory://", &[], "needs a name"),
        ("file://host/x", &[], "no host"),
        ("memory://m", &[("region", "x")], "`region`"),
        ("/some/path", &[("endpoint", "x")], "`endpoint`"),
        ("s3://b/x", &[("sceret_access_key", "canary")], "`sceret_access_key`"),
    ];
    for (url, options, word) in cases {
        let error = parse(url, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        let text = error.to_string();
        assert!(text.contains(word), "{url}: {text}");
        assert!(!text.contains("canary"), "{text}");
    }
}

#[test]
fn a_separate_log_has_the_options_of_its_provider_and_its_own() {
    let keys = [("access_key_id", "canary-id"), ("secret_access_key", "canary-secret")];
    let with = |more: &[(&'static str, &'static str)]| [keys.as_slice(), more].concat();
    for (url, options) in [
        ("s3://b/x", with(&[("wal_url", "s3://w/logs"), ("wal_region", "r")])),
        ("s3://b/x", with(&[("wal_url", "memory://w")])),
        ("s3://b/x", with(&[("wal_url", "gs://w"), ("wal_skip_signature", "true")])),
        // A folder takes no options: they are those of the log.
        ("memory://x", with(&[("wal_url", "s3://w")])),
        ("memory://x", vec![("wal_url", "memory://w")]),
    ] {
        let store = parse(url, &options).unwrap();
        assert_eq!(format!("{store:?}"), url);
    }
    for (url, options, word) in [
        ("s3://b/x", with(&[("wal_url", "ftp://w")]), "wal_url"),
        ("s3://b/x", with(&[("wal_url", "s3://key:canary@w/p")]), "wal_url"),
        ("s3://b/x", with(&[("wal_url", "s3://w"), ("wal_regoin", "r")]), "`regoin`"),
        ("s3://b/x", with(&[("wal_region", "r")]), "`wal_region`"),
        ("memory://x", vec![("wal_url", "memory://w"), ("region", "r")], "`region`"),
        ("memory://x", vec![("wal_url", "memory://w"), ("wal_region", "r")], "`region`"),
    ] {
        let error = parse(url, &options).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        let text = error.to_string();
        assert!(text.contains(word) && !text.contains("canary"), "{text}");
    }
}

/// Both writers are in one process, each with a separate store. The check makes no request.
#[test]
fn a_second_writer_is_known_wherever_the_first_one_is() {
    let (runtime, effects) = runtime();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("db").display().to_string();
    let s3 = [("skip_signature", "true"), ("region", "x")];
    let s3 = || s3.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
    for (url, options) in [
        ("memory://occupied", StoreOptions::default()),
        (folder.as_str(), StoreOptions::default()),
        ("s3://quarry/occupied", s3()),
    ] {
        let open = || url::parse(url, &options, [], &effects).unwrap();
        let occupy = |take_over| runtime.block_on(open().place().occupy(DatabaseId(1), take_over));
        let first = occupy(false).unwrap();
        let refused = occupy(false).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{url}");
        assert!(refused.to_string().contains("this process"), "{refused}");
        let second = occupy(true).unwrap();
        drop(first);
        assert!(occupy(false).is_err(), "{url}");
        drop(second);
        drop(occupy(false).unwrap());
    }
}

#[test]
fn memory_is_shared_by_name_and_local_paths_agree() {
    let (runtime, effects) = runtime();
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().display().to_string();
    let file = format!("file://{plain}");
    for (here, there) in [("memory://shared", "memory://shared"), (&*plain, &*file)] {
        let open = |url| url::parse(url, &StoreOptions::default(), [], &effects).unwrap();
        let (here, there) = (open(here), open(there));
        runtime.block_on(async {
            let answer = here.put_if_absent(NAME, "x".into()).await;
            assert!(matches!(answer, PutAnswer::Created), "{answer:?}");
            assert_eq!(there.get(NAME, None).await.unwrap().as_deref(), Some(&b"x"[..]));
            let answer = there.put_if_absent(NAME, "y".into()).await;
            assert!(matches!(answer, PutAnswer::Exists), "{answer:?}");
        });
    }
}
