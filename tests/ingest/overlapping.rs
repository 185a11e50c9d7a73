//! Jobs of many overlapping parts: merged before the job is closed, some tables and layers at a
//! time.

use super::*;
use siltstone::admin;

/// Stages a part for each of these lists of keys, with the number of the part as value; returns the
/// expected rows. Later parts win.
async fn load(env: &Env, parts: impl Iterator<Item = Vec<u32>>) -> Result<usize> {
    open(env, options()).await?.close().await?;
    let job = begin(env).await?;
    let (mut staged, mut model) = (Vec::new(), BTreeMap::new());
    for (number, keys) in parts.enumerate() {
        let value = number.to_string().into_bytes();
        model.extend(keys.iter().map(|key| (*key, value.clone())));
        let rows = keys.into_iter().map(|key| (key, Some(value.clone())));
        staged.push(stage(env, &job, rows).await?);
    }
    let request = job.commit(env, &staged, LIMIT).await?;
    let db = open(env, options()).await?;
    db.ingest(&request).await?.wait(None).await?;
    db.flush_memtable().await?;
    assert_eq!(all_of(db.scan(everything())?).await?, pairs(&model));
    let state = admin::manifest(env, None, LIMIT).await?;
    db.close().await?;
    Ok(state.l0.len())
}

/// One merge reads 256 layers at most.
#[test]
fn more_layers_than_one_merge_reads() {
    let place = Place::new();
    let parts = (0..600).map(|n| vec![0, 1 + n, 999]);
    let layers = place.run("driver", move |env| async move { load(&env, parts).await });
    assert!(layers <= 4, "{layers} layers");
}

/// A merge opens the tables of a range of keys, 512 at most, and goes on with the next range.
#[test]
fn more_tables_than_one_merge_opens() {
    let place = Place::new();
    let parts = (0..950).map(|n| vec![n, n + 20, n + 40]);
    let layers = place.run("driver", move |env| async move { load(&env, parts).await });
    assert!(layers <= 4, "{layers} layers");
}
