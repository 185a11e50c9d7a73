//! The owners of a place: writers, one after the other, which also restore and end it.

use super::*;

pub(super) async fn opens(env: &Env, options: &Options) -> Result<Database> {
    let how = OpenOptions { options: options.clone(), ..OpenOptions::default() };
    Database::open(env.clone(), OpenOptions { take_over: Some(true), ..how }).await
}

pub(super) async fn read(env: &Env, options: &Options) -> Result<Rows> {
    let options = Options { reader_lease: false, ..options.clone() };
    let how = ReaderOptions { options, ..ReaderOptions::default() };
    rows_of(Reader::open(env.clone(), how).await?.scan(ScanRange::all())?).await
}

/// An owner of a place: opens it, writes, is killed or paused, and has it restored, or destroyed
/// and created again.
pub(super) async fn owner(family: Arc<Family>, place: String, mut rng: Rng) {
    let mut asleep: Vec<ProcessId> = Vec::new();
    while !family.stopped() {
        let (process, env) = family.process("writer", &place);
        let opened = Arc::new(AtomicBool::new(false));
        let shift = Shift {
            family: Arc::clone(&family),
            place: place.clone(),
            rng: rng.split(),
            opened: Arc::clone(&opened),
        };
        let ends = family.within(process, shift.run(env));
        let zombie = family.takes(Action::Zombie, &mut rng, 250);
        let patience = family.sim.sleep(Duration::from_millis(300 + rng.below(3000)));
        let ended = match futures::future::select(std::pin::pin!(ends), patience).await {
            futures::future::Either::Left((ended, _)) => ended,
            // Not while it opens: it would take over from its successor.
            futures::future::Either::Right(_) if zombie && opened.load(Ordering::Relaxed) => {
                family.sim.pause(process);
                family.did(Action::Zombie);
                asleep.push(process);
                None
            }
            futures::future::Either::Right(_) => {
                family.sim.kill(process);
                None
            }
        };
        if let Some(Err(error)) = ended
            && !excused(&error)
        {
            family.violation(format!("a writer of {place}: {error:?}"));
        }
        if rng.chance(400)
            && let Some(zombie) = asleep.pop()
        {
            family.sim.resume(zombie);
        }
        let mut dice = rng.split();
        family.tries_to_turn(&place);
        if family.takes(Action::Restore, &mut dice, 300) {
            restores(&family, &place).await;
        } else if family.takes(Action::Destroy, &mut dice, 250) {
            destroys(&family, &place).await;
        }
        family.tries_to_turn(&place);
    }
    for zombie in asleep {
        family.sim.resume(zombie);
    }
}

/// One writer process.
pub(super) struct Shift {
    pub(super) family: Arc<Family>,
    pub(super) place: String,
    pub(super) rng: Rng,
    pub(super) opened: Arc<AtomicBool>,
}

impl Shift {
    pub(super) async fn run(mut self, env: Env) -> Result<()> {
        let (family, place) = (Arc::clone(&self.family), self.place.clone());
        let db = loop {
            match opens(&env, &family.options).await {
                Err(error) if error.kind().is_transient() => {}
                opened => break opened?,
            }
        };
        let rows = loop {
            match rows_of(db.scan(ScanRange::all())?).await {
                Err(error) if error.kind().is_transient() => {}
                read => break read?,
            }
        };
        let epoch = db.stats().epoch;
        let Some(mut reign) = family.opened(&place, epoch, &rows) else { return Ok(()) };
        self.opened.store(true, Ordering::Relaxed);
        while !family.stopped() {
            match self.rng.below(100) {
                0..70 => {
                    self.writes(&db, &mut reign).await?;
                }
                70..78 => tolerated(db.flush_memtable().await)?,
                78..82 => {
                    let mut dice = self.rng.split();
                    if family.takes(Action::Detach, &mut dice, 500) {
                        // Another compactor may be in charge.
                        drop(db.compact().await);
                        family.did(Action::Detach);
                    }
                }
                82..86 => self.keeps(&db, &reign).await?,
                86..92 => {
                    if let Ok(rows) = rows_of(db.scan(ScanRange::all())?).await {
                        self.judges(&reign, &rows);
                    }
                }
                _ => family.pause(&mut self.rng, 60).await,
            }
        }
        tolerated(db.close().await)
    }

    /// Checks the rows of the handle, as long as no other process has opened since.
    pub(super) fn judges(&self, reign: &Reign, rows: &Rows) {
        let (line, _, turns) = self.family.line(&self.place);
        let newest = line.last().is_some_and(|(_, tag)| *tag == reign.tag);
        if newest && turns == reign.turns && *rows != shows(&line, reign.n) {
            let (place, n) = (&self.place, reign.n);
            self.family.violation(format!("{place}: {n} on {line:?}, it shows {}", text(rows)));
        }
    }

    pub(super) async fn writes(&mut self, db: &Database, reign: &mut Reign) -> Result<()> {
        match db.write(&write(reign.n + 1, reign.tag)?)? {
            Accept::Pressure(room) => tolerated(room.await),
            Accept::Accepted(commit) => {
                reign.n += 1;
                if self.rng.chance(300) && commit.wait(None).await.is_ok() {
                    self.family.acknowledged(&self.place, reign, reign.n);
                }
                Ok(())
            }
        }
    }

    /// A checkpoint for a later restore, with its expected rows in its name.
    pub(super) async fn keeps(&mut self, db: &Database, reign: &Reign) -> Result<()> {
        let name = format!("{}.{}", reign.n, reign.tag);
        let how = CheckpointOptions { name: Some(name), ..CheckpointOptions::default() };
        match db.checkpoint(&how).await {
            Ok(_) => {
                self.family.acknowledged(&self.place, reign, reign.n);
                Ok(())
            }
            // It exists already, at this number.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            Err(error) => tolerated(Err(error)),
        }
    }
}

/// The n-th write.
pub(super) fn write(n: u64, tag: u64) -> Result<Batch> {
    let mut batch = Batch::new();
    let value = format!("{n}/{tag}").into_bytes();
    batch.put(&key(n), &value, None)?;
    batch.put(COUNTER, &value, None)?;
    Ok(batch)
}

pub(super) fn tolerated(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind().is_transient() => Ok(()),
        other => other,
    }
}

/// Restores one of the checkpoints that writers have created, if there is one.
pub(super) async fn restores(family: &Arc<Family>, place: &str) {
    let (process, env) = family.process("restorer", place);
    let options = family.options.clone();
    let work = async move {
        let mut made = match admin::list_checkpoints(&env, DEADLINE).await {
            // Its first writer was killed too early.
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            made => made?,
        };
        made.retain(|one| one.name.is_some());
        let Some(one) = made.first() else { return Ok::<_, Error>(None) };
        loop {
            match admin::restore(&env, &one.id.into(), &options).await {
                // It may have taken effect: a repetition does no harm.
                Err(error) if error.kind().is_transient() || error.kind() == ErrorKind::Fenced => {}
                restored => break restored?,
            }
        }
        // It is not needed again; whether it is deleted does not matter.
        drop(admin::delete_checkpoint(&env, &one.id.into(), DEADLINE).await);
        Ok(one.name.clone())
    };
    match family.within(process, work).await {
        Some(Ok(Some(name))) => {
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let (n, tag) = name.split_once('.').expect("what it holds");
            let (n, tag) = (number(n), number(tag));
            let line = family.books.lock().places[place].lines[&tag].clone();
            family.turns(place, line, n);
            family.did(Action::Restore);
        }
        Some(Err(error)) if !error.kind().is_transient() => {
            family.violation(format!("a restore of {place}: {error:?}"));
        }
        _ => {}
    }
}

/// Ends the place, if no clone needs it; the next writer finds nothing.
pub(super) async fn destroys(family: &Arc<Family>, place: &str) {
    let (process, env) = family.process("destroyer", place);
    let sim = family.sim.clone();
    let work = async move {
        for checkpoint in admin::list_checkpoints(&env, DEADLINE).await? {
            if checkpoint.name.is_some() {
                admin::delete_checkpoint(&env, &checkpoint.id.into(), DEADLINE).await?;
            }
        }
        loop {
            match siltstone::destroy(&env, false, DEADLINE).await {
                Err(error) if error.kind().is_transient() || error.kind() == ErrorKind::Fenced => {
                    sim.sleep(Duration::from_millis(50)).await;
                }
                // Clones need it; or an attempt with a lost answer has destroyed it.
                Err(error) if error.kind() == ErrorKind::Conflict => return Ok(false),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
                ended => return ended.map(|()| true),
            }
        }
    };
    match family.within(process, work).await {
        Some(Ok(true)) => {
            family.turns(place, Line::new(), 0);
            family.did(Action::Destroy);
        }
        Some(Err(error))
            if !excused(&error)
                && !matches!(error.kind(), ErrorKind::Expired | ErrorKind::NotFound) =>
        {
            family.violation(format!("a destroy of {place}: {error:?}"));
        }
        _ => {}
    }
}
