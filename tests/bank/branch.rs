//! The writing processes: tellers, and writers that take over from each other.

use crate::books::{self, Acknowledged, Books, account, ledger, number_in, stored};
use crate::{Bank, as_task, audits, is_excused, open, rows_of};
use futures::FutureExt;
use siltstone::{
    Accept, Commit, Database, Env, ErrorKind, Isolation, Result, ScanRange, Transaction,
};
use siltstone_tests::sim::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Tellers of one writer.
const TELLERS: u64 = 3;

/// Opens all accounts at once.
pub(crate) async fn found(bank: &Bank) -> Result<()> {
    loop {
        let db = match open(&bank.parent("founder")).await {
            Err(error) if is_excused(&error) => continue,
            opened => opened?,
        };
        let mut batch = siltstone::Batch::new();
        for (key, value) in books::opening() {
            batch.put(&key, &value, None)?;
        }
        let written = match db.write(&batch)? {
            Accept::Accepted(commit) => commit.wait(None).await,
            Accept::Pressure(room) => room.await,
        };
        if written.is_ok() && db.close().await.is_ok() {
            return Ok(());
        }
    }
}

/// Consecutive writers; each takes over while the previous one works, or after it was killed. Ends
/// the day.
pub(crate) async fn shifts(
    bank: Arc<Bank>,
    writers: u64,
    shift: Duration,
    mut rng: Rng,
) -> Result<()> {
    let mut working = Vec::new();
    for number in 0..writers {
        let (env, process) = bank.town.process("writer", crate::PARENT);
        let clock = Arc::clone(&env.clock);
        let inside = env.clone();
        working.push(as_task(&env, writer(Arc::clone(&bank), inside, rng.split())));
        clock.sleep(shift.mul_f64(0.5 + rng.below(1000) as f64 / 1000.0)).await;
        if number + 1 < writers && rng.chance(400) {
            bank.town.kill(process);
        }
    }
    bank.stop.store(true, Ordering::Relaxed);
    for ended in futures::future::join_all(working).await.into_iter().flatten() {
        ended?;
    }
    Ok(())
}

/// One writer process: its tellers, and the auditors of its handle.
async fn writer(bank: Arc<Bank>, env: Env, mut rng: Rng) -> Result<()> {
    let before = bank.books.acknowledged();
    let db = loop {
        match open(&env).await {
            Ok(db) => break db,
            Err(error) if error.kind() == ErrorKind::Fenced || bank.stopped() => return Ok(()),
            Err(error) if is_excused(&error) => {}
            Err(error) => return Err(error),
        }
    };
    let worked = work(&bank, &db, &env, (&before, &mut rng)).await;
    if let Err(error) = worked
        && !is_excused(&error)
    {
        return Err(error);
    }
    match db.close().await {
        Err(error) if !is_excused(&error) => Err(error),
        _ => Ok(()),
    }
}

/// The work with one handle. It knows the tellers that it recovered, and its own.
async fn work(
    bank: &Arc<Bank>,
    db: &Database,
    env: &Env,
    (before, rng): (&Acknowledged, &mut Rng),
) -> Result<()> {
    let recovered = audits::of_handle(&bank.books, db, before).await?;
    let mut known: BTreeSet<u64> = books::ledgers(&recovered).into_keys().collect();
    let mut tellers = Vec::new();
    for _ in 0..TELLERS {
        let mut teller = Teller::new(bank, db.clone(), rng.split());
        known.insert(teller.number);
        let bank = Arc::clone(bank);
        tellers.push(async move {
            while !bank.stopped() {
                teller.works(&bank.books).await?;
            }
            Ok(())
        });
    }
    let mut working: Vec<_> = tellers.into_iter().map(|one| as_task(env, one.boxed())).collect();
    let auditor = audits::live(Arc::clone(bank), (db.clone(), known), env.clone(), rng.split());
    working.push(as_task(env, auditor.boxed()));
    for ended in futures::future::join_all(working).await.into_iter().flatten() {
        match ended {
            Err(error) if !is_excused(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

pub(crate) struct Teller {
    db: Database,
    rng: Rng,
    number: u64,
    /// Number of accepted transfers.
    transfers: u64,
}

impl Teller {
    pub(crate) fn new(bank: &Bank, db: Database, rng: Rng) -> Teller {
        Teller { db, rng, number: bank.number(), transfers: 0 }
    }

    /// Tries one transfer; returns whether it was acknowledged.
    ///
    /// # Errors
    /// The errors with which the handle ends.
    pub(crate) async fn works(&mut self, books: &Books) -> Result<bool> {
        let done = match self.transfer().await {
            Ok(None) => Ok(false),
            Ok(Some(commit)) => {
                self.transfers += 1;
                match self.rng.chance(400) {
                    true => commit.wait(None).await.map(|()| true),
                    false => Ok(false),
                }
            }
            Err(error) => Err(error),
        };
        match &done {
            Ok(true) => books.acknowledge(self.number, self.transfers),
            Err(error) if error.kind() == ErrorKind::Conflict || error.kind().is_transient() => {
                return Ok(false);
            }
            _ => {}
        }
        done
    }

    /// Works until this many transfers were acknowledged.
    pub(crate) async fn works_on(&mut self, books: &Books, transfers: u64) -> Result<()> {
        let mut left = transfers;
        while left > 0 {
            left -= u64::from(self.works(books).await?);
        }
        Ok(())
    }

    async fn transfer(&mut self) -> Result<Option<Commit>> {
        let snapshot = self.rng.chance(300);
        let isolation = if snapshot { Isolation::Snapshot } else { Isolation::Serializable };
        let transaction = self.db.transaction(isolation)?;
        match self.rng.below(10) {
            0 => self.pool(&transaction).await?,
            1 => self.spread(&transaction).await?,
            _ => self.pay(&transaction).await?,
        }
        transaction.put(&ledger(self.number), &stored(self.transfers + 1), None)?;
        loop {
            match transaction.commit()? {
                None => return Ok(None),
                Some(Accept::Accepted(commit)) => return Ok(Some(commit)),
                Some(Accept::Pressure(room)) => room.await?,
            }
        }
    }

    fn draw(&mut self) -> u64 {
        self.rng.below(books::ACCOUNTS)
    }

    /// Pays from one account to another; an empty one is closed.
    async fn pay(&mut self, transaction: &Transaction) -> Result<()> {
        let (from, to) = (self.draw(), self.draw());
        let there = held(transaction, from).await?;
        let paid = self.rng.below(there + 1);
        if from != to {
            let other = held(transaction, to).await?;
            set(transaction, from, there - paid)?;
            set(transaction, to, other + paid)?;
        }
        Ok(())
    }

    /// Moves the money of a range of accounts to the first of them; one range delete closes the
    /// others.
    async fn pool(&mut self, transaction: &Transaction) -> Result<()> {
        let (start, end) = self.span();
        let range = ScanRange {
            start: Some(account(start)),
            end: Some(account(end)),
            reverse: self.rng.chance(500),
            limit: None,
        };
        let all = books::sum(&rows_of(transaction.scan(range)?).await?);
        transaction.delete_range(&account(start), &account(end))?;
        set(transaction, start, all)
    }

    /// Distributes the money of a range of accounts among them.
    async fn spread(&mut self, transaction: &Transaction) -> Result<()> {
        let (start, end) = self.span();
        let mut all = 0;
        for number in start..end {
            all += held(transaction, number).await?;
        }
        for number in start..end {
            let share = all / (end - number);
            all -= share;
            set(transaction, number, share)?;
        }
        Ok(())
    }

    fn span(&mut self) -> (u64, u64) {
        let start = self.draw();
        (start, (start + 2 + self.rng.below(6)).min(books::ACCOUNTS).max(start + 1))
    }
}

async fn held(transaction: &Transaction, number: u64) -> Result<u64> {
    let value = transaction.get(&account(number))?.wait().await?;
    Ok(value.map_or(0, |value| number_in(&value)))
}

fn set(transaction: &Transaction, number: u64, held: u64) -> Result<()> {
    match held {
        0 => transaction.delete(&account(number)),
        held => transaction.put(&account(number), &stored(held), None),
    }
}
