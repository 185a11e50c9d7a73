//! Judges one round of racing creates. Pure: the answers and the object that is left decide.

use crate::PutAnswer;

/// The object under the name after a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RaceSlot {
    /// No object.
    Empty,
    /// The bytes of this racer.
    Of(usize),
    /// Bytes of no racer.
    Foreign,
}

/// The outcome of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RaceOutcome {
    /// One create succeeded.
    OneWinner,
    /// No create succeeded and nothing was stored. S3 may answer so; a writer tries again.
    NoWinner,
    /// The store broke its promise, in this way.
    Broken(&'static str),
}

/// Judges a round from the answer to each racer and the object that is left. An ambiguous answer
/// counts as neither a success nor a refusal.
pub(super) fn judge(answers: &[PutAnswer], slot: RaceSlot) -> RaceOutcome {
    let won = |answer: &PutAnswer| matches!(answer, PutAnswer::Created);
    let winners = answers.iter().filter(|answer| won(answer)).count();
    if winners > 1 {
        return RaceOutcome::Broken("more than one create of the name succeeded");
    }
    match slot {
        RaceSlot::Empty if winners == 1 => {
            RaceOutcome::Broken("a create succeeded, and the object does not exist")
        }
        RaceSlot::Empty => RaceOutcome::NoWinner,
        RaceSlot::Foreign => RaceOutcome::Broken("the object has the bytes of neither create"),
        RaceSlot::Of(at) if winners == 1 && !answers.get(at).is_some_and(won) => {
            RaceOutcome::Broken("one create succeeded, and the object has the bytes of the other")
        }
        RaceSlot::Of(_) => RaceOutcome::OneWinner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_base::Error;

    #[test]
    fn every_combination_is_judged() {
        let lost = || PutAnswer::Ambiguous(Error::unavailable("reset"));
        let (yes, no) = (|| PutAnswer::Created, || PutAnswer::Exists);
        let broken =
            |answers: [PutAnswer; 2], slot| matches!(judge(&answers, slot), RaceOutcome::Broken(_));
        assert_eq!(judge(&[yes(), no()], RaceSlot::Of(0)), RaceOutcome::OneWinner);
        assert_eq!(judge(&[lost(), no()], RaceSlot::Of(0)), RaceOutcome::OneWinner);
        assert_eq!(judge(&[lost(), lost()], RaceSlot::Of(1)), RaceOutcome::OneWinner);
        assert_eq!(judge(&[no(), no()], RaceSlot::Of(1)), RaceOutcome::OneWinner);
        assert_eq!(judge(&[no(), no()], RaceSlot::Empty), RaceOutcome::NoWinner);
        assert_eq!(judge(&[lost(), no()], RaceSlot::Empty), RaceOutcome::NoWinner);
        assert!(broken([yes(), yes()], RaceSlot::Of(0)));
        assert!(broken([yes(), no()], RaceSlot::Of(1)));
        assert!(broken([yes(), lost()], RaceSlot::Of(1)));
        assert!(broken([no(), yes()], RaceSlot::Empty));
        assert!(broken([no(), yes()], RaceSlot::Foreign));
        assert!(broken([no(), no()], RaceSlot::Foreign));
    }
}
