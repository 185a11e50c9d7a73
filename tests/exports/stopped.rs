//! An exporter that stops at any request, before or after it takes effect: the next one continues,
//! and ends with an intact mirror.

use super::*;
use siltstone_tests::mortal::Life;

/// Stops an exporter after `at` requests; returns whether it had ended.
async fn stopped(places: &Places, at: u64, lands: bool, grows: bool) -> bool {
    let name = format!("{at} {lands} {grows}");
    let source = places.parent(&format!("source {name}")).await;
    let target = places.env(&format!("mirror {name}"));
    let before = match grows {
        false => None,
        true => {
            export(&source, &target).await.unwrap();
            let db = open(&source).await.unwrap();
            fill(&db, 0..2, 30).await;
            db.flush_memtable().await.unwrap();
            fill(&db, 2..3, 31).await;
            std::mem::forget(db);
            Some(parents_rows())
        }
    };
    let mut expected = read(&source).await.unwrap();
    let life = Life::new(at, lands);
    let mortal = export(&life.env(&source), &life.env(&target)).await;
    match read(&target).await {
        Ok(rows) => {
            let is_old = before.as_ref() == Some(&rows);
            assert!(rows == expected || (is_old && mortal.is_err()), "{name}: {rows:?}");
        }
        Err(error) => {
            let told = match error.kind() {
                ErrorKind::Conflict => text(&error).contains("being made"),
                kind => kind == ErrorKind::NotFound,
            };
            assert!(told && before.is_none() && mortal.is_err(), "{name}: {error}");
        }
    }
    // A collector runs in between: staged objects are kept.
    let staged = |names: Vec<ObjectName>| {
        let is_staged = |name: &ObjectName| matches!(name, ObjectName::IngestSst(..));
        names.into_iter().filter(is_staged).count()
    };
    let there = staged(names(&target).await);
    // A collector leaves a database alone that is being created, and reports that.
    drop(gc::round(&target).await);
    if mortal.is_err() && before.is_none() {
        assert_eq!(staged(names(&target).await), there, "{name}");
    }
    if at.is_multiple_of(3) {
        // The source continues meanwhile.
        let db = open(&source).await.unwrap();
        fill(&db, 3..4, 40).await;
        db.flush_memtable().await.unwrap();
        std::mem::forget(db);
        expected = read(&source).await.unwrap();
    }
    export(&source, &target).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(read(&target).await.unwrap(), expected, "{name}");
    check_whole(&target).await;
    assert_eq!(read(&target).await.unwrap(), expected, "{name}");
    mortal.is_ok()
}

fn each_request(test: &'static str, lands: bool, grows: bool) {
    run(test, async |places| {
        let mut at = 1;
        while !stopped(&places, at, lands, grows).await {
            at += 1;
            assert!(at < 400, "it never ends");
        }
        assert!(at > 30, "{at} requests");
    });
}

#[test]
fn stopped_at_any_request_of_the_first_export() {
    each_request("first, before", false, false);
    each_request("first, after", true, false);
}

#[test]
fn stopped_at_any_request_of_a_later_export() {
    each_request("later, before", false, true);
    each_request("later, after", true, true);
}

/// The same call completes an import that died at any request, including the last one: then there
/// is nothing to do. Once the imported database was written to, it is not changed.
#[test]
fn stopped_at_any_request_of_an_import() {
    run("import stopped", async |places| {
        let source = places.parent("source").await;
        for lands in [false, true] {
            for at in 1.. {
                let target = places.env(&format!("imported {lands} {at}"));
                let life = Life::new(at, lands);
                let stopped = import(&life.env(&source), &life.env(&target)).await;
                for again in 0..2 {
                    let told = import(&source, &target).await;
                    told.unwrap_or_else(|error| panic!("{at}, {lands}, {again}: {error}"));
                    assert_eq!(read(&target).await.unwrap(), parents_rows());
                }
                if stopped.is_ok() {
                    open(&target).await.unwrap().close().await.unwrap();
                    let refused = import(&source, &target).await.unwrap_err();
                    assert_eq!(refused.kind(), ErrorKind::Conflict);
                    break;
                }
            }
        }
    });
}

/// The same for a promotion.
#[test]
fn a_promotion_is_repeated() {
    run("promotion", async |places| {
        let (source, target) = (places.parent("source").await, places.env("mirror"));
        export(&source, &target).await.unwrap();
        for _ in 0..2 {
            admin::promote(&target, options().deadline).await.unwrap();
        }
        let other = import(&source, &target).await.unwrap_err();
        assert_eq!(other.kind(), ErrorKind::Conflict, "another request's");
        open(&target).await.unwrap().close().await.unwrap();
        let refused = admin::promote(&target, options().deadline).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
    });
}

/// Tables that were copied completely are not copied again.
#[test]
fn staged_tables_stay() {
    run("staged", async |places| {
        let source = places.parent("source").await;
        let whole = export(&source, &places.env("whole")).await.unwrap();
        let mut least = whole.bytes;
        for at in 1.. {
            let target = places.env(&format!("mirror {at}"));
            let life = Life::new(at, false);
            let stopped = export(&life.env(&source), &life.env(&target)).await;
            let rest = export(&source, &target).await.unwrap();
            if stopped.is_ok() {
                break;
            }
            assert!(rest.bytes <= whole.bytes);
            if rest.tables_shared == 0 {
                // No head was committed.
                assert_eq!(rest.tables_moved, whole.tables_moved);
                least = least.min(rest.bytes);
            }
        }
        assert!(least < whole.bytes / 2, "{least} of {whole:?}");
    });
}

/// X2: of two exporters the one with the newer claim commits.
#[test]
fn an_exporter_that_was_overtaken_says_so() {
    run("two", async |places| {
        let (source, target) = (places.parent("source").await, places.env("mirror"));
        export(&source, &target).await.unwrap();
        let (left, right) = futures::join!(export(&source, &target), export(&source, &target));
        let lost: Vec<Error> = [left, right].into_iter().filter_map(Result::err).collect();
        assert!(lost.len() <= 1 && lost.iter().all(|one| one.kind() == ErrorKind::Conflict));
        assert_eq!(read(&target).await.unwrap(), parents_rows());
        check_whole(&target).await;
    });
}
