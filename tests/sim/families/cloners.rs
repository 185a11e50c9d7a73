//! The creators of clones, and the collectors.

use super::*;

/// Clones existing places to new ones; each clone gets an owner and collectors.
pub(super) async fn cloner(family: Arc<Family>, mut rng: Rng) {
    while !family.stopped() {
        family.pause(&mut rng, 1500).await;
        let mut dice = rng.split();
        let places: Vec<String> = family.books.lock().places.keys().cloned().collect();
        if places.len() >= PLACES || !family.takes(Action::Clone, &mut dice, 800) {
            continue;
        }
        let source = places[dice.below(places.len() as u64) as usize].clone();
        let place = format!("place{}", family.number());
        let tries = family.tries(&source);
        let (line, acknowledged, _) = family.line(&source);
        let Some(rows) = clones(&family, &source, &place, &mut dice).await else { continue };
        let (now, ..) = family.line(&source);
        let stood = family.stood(&source, tries);
        let n = counted(&rows);
        family.did(Action::Clone);
        let line = [&line, &now].into_iter().find(|line| shows(line, n) == rows);
        match line {
            Some(line) if !stood || n >= acknowledged => {
                family.turns(&place, line.clone(), n);
                tended(&family, &place, &mut rng);
            }
            // Between two turns it may be on a line that was not recorded.
            None if !stood => ends(&family, &place).await,
            _ => {
                let text =
                    format!("{place} of {source}, {acknowledged} acknowledged: {}", text(&rows));
                family.violation(text);
            }
        }
    }
}

/// Ends a clone that no owner takes, with as many attempts as necessary.
async fn ends(family: &Arc<Family>, place: &str) {
    loop {
        let (process, env) = family.process("destroyer", place);
        let ended = async move { siltstone::destroy(&env, false, DEADLINE).await };
        match family.within(process, ended).await {
            Some(Err(error)) if excused(&error) => {}
            Some(Err(error)) if error.kind() != ErrorKind::NotFound => {
                return family.violation(format!("the end of {place}: {error:?}"));
            }
            _ => return,
        }
    }
}

/// Creates one clone, with as many creators as necessary; returns the rows that it shows. `None` if
/// the source was ended meanwhile: the started clone is ended too.
pub(super) async fn clones(
    family: &Arc<Family>,
    source: &str,
    place: &str,
    rng: &mut Rng,
) -> Option<Rows> {
    let tries = family.tries(source);
    loop {
        let (process, env) = family.process("maker", place);
        let parent = family.places.bucket(&family.sim, source, FaultPlan::none()).store(process);
        let parent = Env { store: parent, ..env.clone() };
        let parent = CloneParent { env: parent, checkpoint: None, start: None, end: None };
        let (options, here) = (family.options.clone(), env.clone());
        let made = family.within(process, async move {
            admin::clone(&here, &[parent], &options).await?;
            read(&here, &options).await
        });
        let kills = family.takes(Action::KillMaker, rng, 500);
        let patience = family.sim.sleep(Duration::from_millis(rng.below(800)));
        let made = match futures::future::select(std::pin::pin!(made), patience).await {
            futures::future::Either::Left((made, _)) => made,
            futures::future::Either::Right(_) if kills => {
                family.sim.kill(process);
                family.did(Action::KillMaker);
                continue;
            }
            futures::future::Either::Right((_, made)) => made.await,
        };
        match made {
            Some(Ok(rows)) => return Some(rows),
            Some(Err(error)) if !error.kind().is_transient() => {
                let is_made = !family.line(source).0.is_empty();
                if family.stood(source, tries) && is_made {
                    family.violation(format!("{place}, a clone of {source}: {error:?}"));
                }
                ends(family, place).await;
                return None;
            }
            _ => {}
        }
    }
}

/// Starts collectors without a grace period, and an owner, for a place.
pub(super) fn tended(family: &Arc<Family>, place: &str, rng: &mut Rng) {
    family.start(owner(Arc::clone(family), place.to_owned(), rng.split()));
    collectors(family, place, rng);
}

/// Starts collectors without a grace period for a place.
pub(super) fn collectors(family: &Arc<Family>, place: &str, rng: &mut Rng) {
    for _ in 0..2 {
        let (process, env) = family.process("collector", place);
        let (family, place, mut rng) = (Arc::clone(family), place.to_owned(), rng.split());
        let shared = Arc::clone(&family);
        shared.sim.spawn(process, "collector", async move {
            while !family.stopped() {
                family.pause(&mut rng, 400).await;
                if let Err(error) = gc::round(&env).await
                    && matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Internal)
                {
                    family.violation(format!("a collector of {place}: {error:?}"));
                }
            }
        });
    }
}
