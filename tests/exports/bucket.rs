//! In an object store: within one bucket the store copies.

use super::*;
use siltstone::store::counting::CountingStore;
use siltstone::task::tokio_effects;
use siltstone_tests::moto::Moto;

const BUCKET: &str = "exports";

#[test]
fn one_bucket_copies_by_itself() {
    let Some(moto) = Moto::start_or_skip(BUCKET) else { return };
    run("bucket", async |places| {
        let memory = places.parent("memory").await;
        let env = |path: &str| {
            let effects = tokio_effects(places.runtime.clone());
            let (store, counts) = CountingStore::wrap(moto.store(BUCKET, path, &effects));
            (Env { store, ..memory.clone() }, counts)
        };
        let ((source, _), (mirror, written)) = (env("source"), env("mirror"));
        let streamed = export(&memory, &source).await.unwrap();
        assert!(streamed.bytes > 0);
        assert_eq!(read(&source).await.unwrap(), parents_rows());
        let copied = export(&source, &mirror).await.unwrap();
        assert_eq!((copied.tables_moved, copied.bytes), (streamed.tables_moved, streamed.bytes));
        assert_eq!(read(&mirror).await.unwrap(), parents_rows());
        let totals = written.totals();
        let chunks = totals.upload_chunks;
        assert_eq!(chunks, 0, "not a byte of a table passed through this process");
        assert!(totals.puts >= copied.tables_moved);
        check_whole(&mirror).await;
        lose(&source).await;
        // And out of the bucket again.
        let back = places.env("back");
        export(&mirror, &back).await.unwrap();
        assert_eq!(read(&back).await.unwrap(), parents_rows());
    });
}

/// A store that copies by itself copies a damaged table without an error: the copies are read, and
/// so are those of an earlier export.
#[test]
fn damage_is_not_copied_by_the_store() {
    let Some(moto) = Moto::start_or_skip(BUCKET) else { return };
    run("damaged bucket", async |places| {
        let memory = places.parent("memory").await;
        let effects = tokio_effects(places.runtime.clone());
        let env = |path: &str| Env { store: moto.store(BUCKET, path, &effects), ..memory.clone() };
        let (source, mirror) = (env("harmed"), env("mirror of it"));
        export(&memory, &source).await.unwrap();
        let table = manifest(&source).await.tables().next().unwrap().clone();
        let bytes = source.store.get(table.name(), None).await.unwrap().unwrap();
        // At several places, in particular behind the envelope and before the tail.
        for at in [0, 80, table.tail_offset as usize - 1, bytes.len() - 1] {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            source.store.delete(table.name()).await.unwrap();
            source.store.put_if_absent(table.name(), damaged.into()).await;
            for _ in 0..2 {
                let error = export(&source, &mirror).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption, "byte {at}: {error}");
                assert!(text(&error).contains(&table.id.to_string()), "{error}");
            }
        }
        source.store.delete(table.name()).await.unwrap();
        source.store.put_if_absent(table.name(), bytes).await;
        export(&source, &mirror).await.unwrap();
        assert_eq!(read(&mirror).await.unwrap(), parents_rows());
        check_whole(&mirror).await;
    });
}
