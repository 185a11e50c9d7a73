//! A creator that stops at any request, before or after it takes effect: a repeated request
//! continues, and ends with an intact clone.

use super::*;
use siltstone::ErrorKind;
use siltstone_base::UnixMillis;
use siltstone_manifest::Edit;
use siltstone_tests::mortal::Life;

/// Revokes checkpoints with an expiry, at any time, and collects unreferenced objects.
async fn expire(env: &Env) {
    let newest = manifest(env).await;
    let ids = newest.checkpoints.iter().map(|one| one.id).collect();
    let revoke = Edit::RevokeExpired { ids, now: UnixMillis(u64::MAX) };
    gc::commit(env, revoke, newest).await.unwrap();
    rewrite(env).await;
}

/// The clone that a stopped creator makes.
#[derive(Clone, Copy, Debug)]
enum Made {
    /// A clone of a clone, so that there are two pins.
    OfOne,
    /// A union of that clone with its own parent, which has two pins.
    OfBoth,
}

/// Stops a creator after `at` requests; returns whether the clone was completed nevertheless.
async fn stopped(places: &Places, at: u64, lands: bool, expires: bool, made: Made) -> bool {
    let name = format!("{at} {lands} {expires}");
    let (grand, parent) = (places.parent(&format!("grand {name}")).await, places.env(&name));
    clone(&parent, &grand).await.unwrap();
    let db = open(&parent).await.unwrap();
    fill(&db, 0..2, 30).await;
    db.flush().await.unwrap();
    std::mem::forget(db);
    let mut expected = parents_rows();
    expected[..2].iter_mut().for_each(|row| row.1 = value(30));

    let env = places.env(&format!("clone {name}"));
    let life = Life::new(at, lands);
    let parents = |seen: &dyn Fn(&Env) -> Env| match made {
        Made::OfOne => vec![of(&seen(&parent))],
        Made::OfBoth => {
            let cut = Some(key(30));
            vec![
                united::part(&seen(&grand), cut.clone(), None),
                united::part(&seen(&parent), None, cut),
            ]
        }
    };
    let mortals = parents(&|env| life.env(env));
    let mortal = admin::clone(&life.env(&env), &mortals, &options()).await;
    if expires {
        expire(&parent).await;
        expire(&grand).await;
    }
    if mortal.is_err() {
        let seen = read(&env).await;
        let told = seen.as_ref().is_err_and(|error| match error.kind() {
            ErrorKind::Conflict => text(error).contains("being made"),
            kind => kind == ErrorKind::NotFound,
        });
        assert!(told || seen.as_ref().is_ok_and(|rows| *rows == expected), "{name}: {seen:?}");
    }
    let again = admin::clone(&env, &parents(&Env::clone), &options()).await;
    again.unwrap_or_else(|error| panic!("{name}: {error}"));
    for env in [&parent, &grand] {
        expire(env).await;
    }
    assert_eq!(read(&env).await.unwrap(), expected, "{name}");
    // It also releases everything that it ever pinned and recorded.
    rewrite(&env).await;
    assert_eq!(manifest(&env).await.ancestors, [], "{name}");
    let ours = siltstone::CheckpointOwner::Clone(manifest(&env).await.database);
    for env in [&parent, &grand] {
        let left = manifest(env).await.checkpoints.clone();
        assert!(left.iter().all(|one| one.owner != ours), "{name}: {left:?}");
    }
    assert_eq!(read(&env).await.unwrap(), expected, "{name}");
    mortal.is_ok()
}

fn each_request(test: &'static str, lands: bool, expires: bool, made: Made) {
    run(test, async |places| {
        let mut at = 1;
        while !stopped(&places, at, lands, expires, made).await {
            at += 1;
            assert!(at < 400, "it never ends");
        }
        assert!(at > 30, "{at} requests");
    });
}

#[test]
fn stopped_before_any_request() {
    each_request("before", false, false, Made::OfOne);
}

#[test]
fn stopped_after_any_request() {
    each_request("after", true, false, Made::OfOne);
}

/// So late that pins that were not permanent yet have expired.
#[test]
fn stopped_until_the_pins_are_gone() {
    each_request("slept before", false, true, Made::OfOne);
    each_request("slept after", true, true, Made::OfOne);
}

/// The same for several parents, one of which is an ancestor too.
#[test]
fn stopped_at_any_request_of_a_union() {
    for (test, lands) in [("union before", false), ("union after", true)] {
        each_request(test, lands, false, Made::OfBoth);
    }
}

#[test]
fn stopped_until_the_pins_of_a_union_are_gone() {
    for (test, lands) in [("union slept before", false), ("union slept after", true)] {
        each_request(test, lands, true, Made::OfBoth);
    }
}
