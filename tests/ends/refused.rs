//! A reader meets an object of the log that it must refuse.

use crate::{put, quiet, tell};
use siltstone::ErrorKind;
use siltstone::store::PutAnswer;
use siltstone_base::envelope::{Envelope, ObjectKind};
use siltstone_base::name::prefix;
use siltstone_base::{AttemptId, Batch, Epoch, ObjectId, ObjectName, Seq, WalId};
use siltstone_sst::wal::{CutInfo, WalBuilder};
use siltstone_tests::places::manifest;

/// Before, the next refresh began behind the object: it succeeded, and the reader served old rows
/// as if they were fresh.
#[test]
fn a_reader_does_not_pass_an_object_that_it_refused() {
    tell(async |world| {
        let db = world.open(quiet()).await;
        put(&db, "a").wait(None).await.expect("a healthy store");
        let reader = world.open_reader(quiet()).await;
        let log = world.env.store.list(prefix::WAL, None).await.expect("a healthy store");
        let ObjectName::Wal(last) = log.last().expect("a row").name else { panic!("{log:?}") };
        std::mem::forget(db);

        let database = manifest(&world.env).await.database;
        let mut batch = Batch::new();
        batch.put(b"b", b"b", None).expect("a small row");
        let mut builder = WalBuilder::new();
        // The number before it is missing.
        builder.push_batch(Seq(9), batch.ops(), batch.as_bytes());
        let envelope = Envelope::new(ObjectKind::Wal, database, ObjectId(1), AttemptId(2));
        let next = WalId(last.0 + 1);
        let sent = CutInfo { durable: last, at: world.env.clock.now() };
        let bytes = builder.finish(envelope, Epoch(1), next, sent);
        let put = world.env.store.put_if_absent(ObjectName::Wal(next), bytes).await;
        assert!(matches!(put, PutAnswer::Created));

        for look in 1..=2 {
            let looked = reader.refresh().await;
            let error = looked.expect_err(&format!("look {look}: a number is missing"));
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        }
        assert!(reader.ended().is_some_and(|why| why.kind() == ErrorKind::Corruption));
    });
}
