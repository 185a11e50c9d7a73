//! Parents in other buckets (rule K3, RFC 0029): processes that may reach them, and the errors of
//! those that may not. S3 is a server on this machine.

use super::*;
use siltstone::verify::verify;
use siltstone::{CheckpointOwner, ErrorKind, Progress};
use siltstone_tests::moto::Moto;

const DEADLINE: Duration = Duration::from_secs(20);
const LIVE: &str = "s3://prod/live";
const ALLOWED: [(&str, &str); 1] = [("clone_parents", "s3://prod")];

/// Environments at URLs of one server.
struct Server {
    moto: Moto,
    runtime: tokio::runtime::Handle,
}

impl Server {
    fn start() -> Option<Server> {
        let moto = Moto::start_or_skip("prod")?;
        moto.create_bucket("dev").unwrap();
        Some(Server { moto, runtime: tokio::runtime::Handle::current() })
    }

    fn env(&self, url: &str, more: &[(&str, &str)]) -> Env {
        let effects = siltstone::task::tokio_effects(self.runtime.clone());
        let store = self.moto.store_at(url, more, &effects);
        effects.with_store(store)
    }

    /// A database with tables and a log.
    async fn parent(&self, url: &str) -> Env {
        let env = self.env(url, &[]);
        let db = open(&env).await.unwrap();
        fill(&db, 0..ROWS, 1).await;
        db.flush_memtable().await.unwrap();
        fill(&db, 0..10, 2).await;
        db.flush().await.unwrap();
        std::mem::forget(db);
        env
    }
}

fn rows_of(rounds: [(std::ops::Range<u32>, u8); 2]) -> Pairs {
    let all = rounds.into_iter().flat_map(|(rows, round)| rows.map(move |n| (n, round)));
    all.map(|(n, round)| (key(n), value(round))).collect()
}

async fn collect(env: &Env) -> Result<()> {
    siltstone::gc::once(env, &gc::AT_ONCE, false).await.map(drop)
}

/// Every use of a clone by processes other than its creator.
async fn each_use(env: &Env) -> Vec<(&'static str, Result<()>)> {
    vec![
        (
            "writer",
            match open(env).await {
                Ok(db) => db.close().await,
                Err(error) => Err(error),
            },
        ),
        ("reader", read(env).await.map(drop)),
        ("compactor", compact(env).await),
        ("collector", collect(env).await),
        ("verify", verify(env, DEADLINE, &Progress::default()).await.map(drop)),
    ]
}

async fn pins_in(parent: &Env) -> usize {
    let is_pin = |owner: &CheckpointOwner| matches!(owner, CheckpointOwner::Clone(_));
    manifest(parent).await.checkpoints.iter().filter(|one| is_pin(&one.owner)).count()
}

#[test]
fn a_parent_in_another_bucket_is_followed_where_it_is_allowed() {
    run("two buckets", async |_| {
        let Some(server) = Server::start() else { return };
        let parent = server.parent(LIVE).await;
        let expected = rows_of([(0..10, 2), (10..ROWS, 1)]);
        let (plain, allowed) =
            (server.env("s3://dev/try", &[]), server.env("s3://dev/try", &ALLOWED));

        let refused = clone(&plain, &parent).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(text(&refused).contains("`clone_parents`") && text(&refused).contains(LIVE));
        assert!(gc::newest(&plain).await.unwrap().is_none(), "nothing was made");
        assert_eq!(pins_in(&parent).await, 0);

        clone(&allowed, &parent).await.unwrap();
        assert_eq!(read(&allowed).await.unwrap(), expected);
        let before = manifest(&allowed).await.id;
        let elsewhere = server.env("s3://dev/try", &[("clone_parents", "s3://prod/other")]);
        for env in [&plain, &elsewhere] {
            for (who, used) in each_use(env).await {
                let refused = used.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Unsupported, "{who}: {refused}");
                let told = text(&refused);
                assert!(told.contains("`clone_parents`") && told.contains(LIVE), "{who}: {told}");
            }
        }
        assert_eq!(manifest(&allowed).await.id, before, "no epoch was claimed");

        for (who, used) in each_use(&allowed).await {
            used.unwrap_or_else(|error| panic!("{who}: {error}"));
        }
        rewrite(&allowed).await;
        assert_eq!((manifest(&allowed).await.ancestors.len(), pins_in(&parent).await), (0, 0));
        // Its tables are in no other place any more, so no permission is required.
        assert_eq!(read(&plain).await.unwrap(), expected);
    });
}

#[test]
fn databases_of_two_buckets_are_united() {
    run("two buckets united", async |_| {
        let Some(server) = Server::start() else { return };
        let (live, own) = (server.parent(LIVE).await, server.parent("s3://dev/own").await);
        let db = open(&own).await.unwrap();
        fill(&db, 40..ROWS, 7).await;
        db.close().await.unwrap();
        let env = server.env("s3://dev/both", &ALLOWED);
        let parents =
            [united::part(&own, Some(key(40)), None), united::part(&live, None, Some(key(40)))];
        admin::clone(&env, &parents, &options()).await.unwrap();
        let expected =
            [rows_of([(0..10, 2), (10..40, 1)]), rows_of([(40..ROWS, 7), (0..0, 0)])].concat();
        assert_eq!(read(&env).await.unwrap(), expected);
        // A clone of it, in the parent's bucket, must be allowed to reach the other one.
        let far = server.env("s3://prod/far", &[]);
        let refused = clone(&far, &env).await.unwrap_err();
        assert!(text(&refused).contains("s3://dev/both"), "{refused}");
        let far = server.env("s3://prod/far", &[("clone_parents", "s3://dev/both, s3://dev/own")]);
        clone(&far, &env).await.unwrap();
        assert_eq!(read(&far).await.unwrap(), expected);
        // A destroyed clone releases its pins in both.
        for env in [&far, &env] {
            siltstone::destroy(env, false, DEADLINE).await.unwrap();
        }
        assert_eq!((pins_in(&live).await, pins_in(&own).await), (0, 0));
    });
}

/// A folder has no store options of its own: those of the parents are used.
#[test]
fn a_clone_in_a_folder_of_a_parent_in_a_bucket() {
    run("folder", async |_| {
        let Some(server) = Server::start() else { return };
        let parent = server.parent(LIVE).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("try").display().to_string();
        let env = server.env(&path, &ALLOWED);
        clone(&env, &parent).await.unwrap();
        let db = open(&env).await.unwrap();
        forget(&db, 0..20);
        assert_eq!(all(&db).await.unwrap(), rows_of([(20..30, 1), (30..ROWS, 1)]));
        db.close().await.unwrap();
        let effects = siltstone::task::tokio_effects(server.runtime.clone());
        let plain = siltstone::store::local::LocalStore::new(path.as_ref(), effects.clone());
        let refused = read(&effects.with_store(plain.unwrap())).await.unwrap_err();
        assert!(text(&refused).contains("`clone_parents`"), "{refused}");
        assert_eq!(read(&parent).await.unwrap().len(), ROWS as usize);
    });
}
