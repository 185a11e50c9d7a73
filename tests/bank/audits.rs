//! The auditors of the books, and their views.

use crate::books::{self, Acknowledged, Books};
use crate::branch::Teller;
use crate::{Bank, DEADLINE, Pairs, is_excused, open, options, reader, rows_in, rows_of};
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone::admin::{self, CloneParent};
use siltstone::verify::verify;
use siltstone::{
    CheckpointId, CheckpointOptions, CompactorOptions, CompactorProcess, Database, Env, ErrorKind,
    Isolation, Progress, ReadAt, Reader, ReaderOptions, Result, ScanRange, Snapshot,
};
use siltstone_tests::gc;
use siltstone_tests::sim::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The views that are audited on every day.
pub(crate) const VIEWS: [&str; 15] = [
    "live",
    "transaction",
    "snapshot",
    "old snapshot",
    "checkpoint of the writer",
    "following reader",
    "checkpoint",
    "old checkpoint",
    "clone",
    "written clone",
    "clone of a clone",
    "halves",
    "halves and the whole",
    "compacted half",
    "restored",
];

/// The live handle; returns its rows.
pub(crate) async fn of_handle(
    books: &Books,
    db: &Database,
    before: &Acknowledged,
) -> Result<Pairs> {
    let rows = rows_in(db).await?;
    books.audit("live", &rows, before);
    Ok(rows)
}

/// Audits through the handle of a writer, in every possible way, until the day or the handle ends.
pub(crate) async fn live(
    bank: Arc<Bank>,
    (db, known): (Database, BTreeSet<u64>),
    env: Env,
    mut rng: Rng,
) -> Result<()> {
    let mut held = None;
    while !bank.stopped() {
        let mut before = bank.books.acknowledged();
        // A handle that was taken over continues to show its rows.
        before.retain(|teller, _| known.contains(teller));
        match through_handle(&bank, &db, (&before, &mut held), &mut rng).await {
            Err(error) if !error.kind().is_transient() => return Err(error),
            _ => {}
        }
        env.clock.sleep(Duration::from_millis(rng.below(40))).await;
    }
    Ok(())
}

type Held = Option<(Snapshot, Pairs)>;

async fn through_handle(
    bank: &Bank,
    db: &Database,
    (before, held): (&Acknowledged, &mut Held),
    rng: &mut Rng,
) -> Result<()> {
    let books = &bank.books;
    match rng.below(10) {
        0..3 => of_handle(books, db, before).await.map(drop),
        3..5 => {
            let transaction = db.transaction(Isolation::Serializable)?;
            let rows = rows_of(transaction.scan(ScanRange::all())?).await?;
            books.audit("transaction", &rows, before);
            transaction.commit().map(drop)
        }
        5 => {
            let made = db.checkpoint(&CheckpointOptions::default()).await?;
            let env = bank.parent("auditor");
            let rows = at(&env, made.id).await?;
            books.audit("checkpoint of the writer", &rows, before);
            admin::delete_checkpoint(&env, &made.id.into(), DEADLINE).await
        }
        _ => match held.take() {
            Some((snapshot, rows)) => {
                let later = rows_of(snapshot.scan(ScanRange::all())).await?;
                books.same("old snapshot", &rows, &later);
                Ok(())
            }
            None => {
                let snapshot = db.snapshot()?;
                let rows = rows_of(snapshot.scan(ScanRange::all())).await?;
                books.audit("snapshot", &rows, before);
                *held = Some((snapshot, rows));
                Ok(())
            }
        },
    }
}

/// The rows of a checkpoint.
async fn at(env: &Env, id: CheckpointId) -> Result<Pairs> {
    let reader = reader(env, Some(ReadAt::Checkpoint(id.into()))).await?;
    rows_of(reader.scan(ScanRange::all())?).await
}

/// All auditors outside of the writer, and the compactors and collectors there.
pub(crate) fn outside(bank: &Arc<Bank>, rng: &mut Rng) -> Vec<BoxFuture<'static, Result<()>>> {
    let mut rngs = || rng.split();
    vec![
        follows(Arc::clone(bank), rngs()).boxed(),
        checkpoints(Arc::clone(bank), rngs()).boxed(),
        clones(Arc::clone(bank), rngs()).boxed(),
        clones(Arc::clone(bank), rngs()).boxed(),
        collects(Arc::clone(bank), rngs()).boxed(),
        collects(Arc::clone(bank), rngs()).boxed(),
        compacts(Arc::clone(bank), rngs()).boxed(),
    ]
}

async fn pause(env: &Env, rng: &mut Rng, millis: u64) {
    env.clock.sleep(Duration::from_millis(rng.below(millis))).await;
}

/// A reader of another process, under leases.
async fn follows(bank: Arc<Bank>, mut rng: Rng) -> Result<()> {
    let env = bank.parent("reader");
    while !bank.stopped() {
        let how = ReaderOptions { options: options(), ..ReaderOptions::default() };
        let reader = match Reader::open(env.clone(), how).await {
            Err(error) if is_excused(&error) => continue,
            opened => opened?,
        };
        for _ in 0..20 {
            if bank.stopped() {
                break;
            }
            match through_reader(&bank.books, &reader).await {
                Err(error) if !is_excused(&error) => return Err(error),
                _ => {}
            }
            pause(&env, &mut rng, 60).await;
        }
        reader.close().await?;
    }
    Ok(())
}

async fn through_reader(books: &Books, reader: &Reader) -> Result<()> {
    let before = books.acknowledged();
    reader.refresh().await?;
    let rows = rows_of(reader.scan(ScanRange::all())?).await?;
    books.audit("following reader", &rows, &before);
    Ok(())
}

async fn checkpoints(bank: Arc<Bank>, mut rng: Rng) -> Result<()> {
    let (env, mut kept) = (bank.parent("checkpoints"), None);
    while !bank.stopped() {
        match through_checkpoint(&bank.books, &env, &mut kept).await {
            Err(error) if !is_excused(&error) => return Err(error),
            _ => {}
        }
        pause(&env, &mut rng, 400).await;
    }
    Ok(())
}

/// Creates a checkpoint from outside, or audits the previous one again, and deletes it.
async fn through_checkpoint(
    books: &Books,
    env: &Env,
    kept: &mut Option<(CheckpointId, Pairs)>,
) -> Result<()> {
    let Some((id, rows)) = kept.take() else {
        let before = books.acknowledged();
        let how = CheckpointOptions::default();
        let made = admin::create_checkpoint(env, &how, DEADLINE).await?;
        let rows = at(env, made.id).await?;
        books.audit("checkpoint", &rows, &before);
        *kept = Some((made.id, rows));
        return Ok(());
    };
    books.same("old checkpoint", &rows, &at(env, id).await?);
    admin::delete_checkpoint(env, &id.into(), DEADLINE).await
}

async fn clones(bank: Arc<Bank>, mut rng: Rng) -> Result<()> {
    let env = bank.parent("clones");
    while !bank.stopped() {
        let made = match rng.chance(600) {
            true => through_clone(&bank, &mut rng).await,
            false => through_halves(&bank, &mut rng).await,
        };
        match made {
            Err(error) if !is_excused(&error) => return Err(error),
            _ => {}
        }
        pause(&env, &mut rng, 200).await;
    }
    Ok(())
}

fn of(env: &Env) -> CloneParent {
    CloneParent { env: env.clone(), checkpoint: None, start: None, end: None }
}

async fn shown(env: &Env) -> Result<Pairs> {
    rows_of(reader(env, None).await?.scan(ScanRange::all())?).await
}

/// Creates a clone while the parent continues, works there, rewrites and collects it, clones that
/// clone, and destroys both.
async fn through_clone(bank: &Bank, rng: &mut Rng) -> Result<()> {
    let books = &bank.books;
    let env = bank.env("clone", &format!("clone{}", bank.number()));
    let before = books.acknowledged();
    admin::clone(&env, &[of(&bank.parent("clone maker"))], &options()).await?;
    books.audit("clone", &shown(&env).await?, &before);

    let (own, db) = (Books::default(), open(&env).await?);
    let mut teller = Teller::new(bank, db.clone(), rng.split());
    for _ in 0..rng.below(20) {
        teller.works(&own).await?;
    }
    db.flush_memtable().await?;
    let mut before = before;
    before.extend(own.acknowledged());
    if rng.chance(600) {
        db.compact().await?;
        gc::round(&env).await?;
    }
    books.audit("written clone", &rows_in(&db).await?, &before);
    db.close().await?;

    let below = bank.env("clone", &format!("clone{}", bank.number()));
    admin::clone(&below, &[of(&env)], &options()).await?;
    books.audit("clone of a clone", &shown(&below).await?, &before);
    siltstone::destroy(&below, false, DEADLINE).await?;
    siltstone::destroy(&env, false, DEADLINE).await
}

/// Two clones of one checkpoint, each with its part of the keys.
async fn through_halves(bank: &Bank, rng: &mut Rng) -> Result<()> {
    let (books, parent) = (&bank.books, bank.parent("clone maker"));
    let before = books.acknowledged();
    let made = admin::create_checkpoint(&parent, &CheckpointOptions::default(), DEADLINE).await?;
    let whole = at(&parent, made.id).await?;
    let cut = books::account(rng.below(books::ACCOUNTS));
    let (mut halves, mut places) = (Pairs::new(), Vec::new());
    let rewrites = [rng.chance(500), true];
    let parts = [(None, Some(cut.clone())), (Some(cut), None)];
    for ((start, end), rewrite) in parts.into_iter().zip(rewrites) {
        let env = bank.env("half", &format!("half{}", bank.number()));
        let part = CloneParent { checkpoint: Some(made.id.into()), start, end, ..of(&parent) };
        admin::clone(&env, &[part], &options()).await?;
        let rows = shown(&env).await?;
        if rewrite {
            rewritten(&env).await?;
            books.same("compacted half", &rows, &shown(&env).await?);
        }
        halves.extend(rows);
        places.push(env);
    }
    books.audit("halves", &halves, &before);
    books.same("halves and the whole", &whole, &halves);
    for env in &places {
        siltstone::destroy(env, false, DEADLINE).await?;
    }
    admin::delete_checkpoint(&parent, &made.id.into(), DEADLINE).await
}

/// Merges everything in a separate process, and collects.
async fn rewritten(env: &Env) -> Result<()> {
    let how = CompactorOptions { options: options(), workers: 0, merge_operator: None };
    CompactorProcess::open(env.clone(), how, |_| {}).await?.compact().await?;
    gc::round(env).await.map(drop)
}

/// Collects without a grace period.
async fn collects(bank: Arc<Bank>, mut rng: Rng) -> Result<()> {
    let env = bank.parent("collector");
    while !bank.stopped() {
        pause(&env, &mut rng, 120).await;
        match gc::round(&env).await {
            Err(error) if !is_excused(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Takes the compactor's epoch from the writer's own compactor now and then.
async fn compacts(bank: Arc<Bank>, mut rng: Rng) -> Result<()> {
    let env = bank.parent("compactor");
    while !bank.stopped() {
        pause(&env, &mut rng, 1000).await;
        match rewritten(&env).await {
            // The other compactors take it back.
            Err(error) if !is_excused(&error) && error.kind() != ErrorKind::Conflict => {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(())
}

/// With a healthy store every view shows the required rows, and a restore returns to a moment and
/// continues from there.
pub(crate) async fn at_the_end(bank: &Bank, rng: &mut Rng) -> Result<()> {
    let (books, env) = (&bank.books, bank.parent("last"));
    let before = books.acknowledged();
    let db = open(&env).await?;
    of_handle(books, &db, &before).await?;
    let mut teller = Teller::new(bank, db.clone(), rng.split());
    teller.works_on(books, 10).await?;
    let (mut held, mut kept) = (None, None);
    for _ in 0..40 {
        let before = books.acknowledged();
        through_handle(bank, &db, (&before, &mut held), rng).await?;
        teller.works(books).await?;
    }
    let how = ReaderOptions { options: options(), ..ReaderOptions::default() };
    let following = Reader::open(bank.parent("reader"), how).await?;
    teller.works_on(books, 3).await?;
    through_reader(books, &following).await?;
    following.close().await?;
    for _ in 0..4 {
        through_checkpoint(books, &env, &mut kept).await?;
        teller.works_on(books, 3).await?;
    }
    through_clone(bank, rng).await?;
    for _ in 0..3 {
        through_halves(bank, rng).await?;
    }

    let how = CheckpointOptions { name: Some("kept".to_owned()), ..Default::default() };
    let made = db.checkpoint(&how).await?;
    let then = at(&env, made.id).await?;
    teller.works_on(books, 10).await?;
    let restorer = bank.parent("restorer");
    admin::restore(&restorer, &"kept".parse().expect("a name"), &options()).await?;
    books.go_back_to(&then);
    let fenced = teller.works_on(&Books::default(), 1000).await;
    if !fenced.as_ref().is_err_and(|error| error.kind() == ErrorKind::Fenced) {
        books.trouble(format!("the writer before a restore: {fenced:?}"));
    }
    after_a_restore(bank, &then, rng).await
}

async fn after_a_restore(bank: &Bank, then: &Pairs, rng: &mut Rng) -> Result<()> {
    let (books, env) = (&bank.books, bank.parent("next"));
    let db = open(&env).await?;
    books.same("restored", then, &rows_in(&db).await?);
    Teller::new(bank, db.clone(), rng.split()).works_on(books, 10).await?;
    db.compact().await?;
    gc::round(&env).await?;
    let before = books.acknowledged();
    of_handle(books, &db, &before).await?;
    db.close().await?;
    books.audit("restored", &shown(&env).await?, &before);
    let report = verify(&env, DEADLINE, &Progress::default()).await?;
    if report.problem_count > 0 {
        books.trouble(format!("verify: {:?}", report.problems));
    }
    Ok(())
}
