//! Spreads the retries of a handle, so that requests that fail together are not sent again
//! together.

use parking_lot::Mutex;
use std::time::Duration;

/// Retries that wait for no turn, if none began shortly before.
const BURST: u32 = 50;
/// Time between the turns of later ones: 200 retries a second.
const SPACING: Duration = Duration::from_millis(5);
/// The longest wait for a turn. Once a store answers again, it serves every waiting request within
/// this time.
const LONGEST_TURN: Duration = Duration::from_secs(5);

/// Gives the retries of a handle their turns. Without it, each of a thousand requests that fail
/// together would be sent again six times in the first second, to a store that is overloaded
/// already. A retry may wait, and is never refused.
///
/// The turns are those of the generic cell rate algorithm (ITU-T Recommendation I.371): a token
/// bucket whose state is the time at which it is full again.
#[derive(Debug, Default)]
pub struct RetryBudget {
    full_at: Mutex<Duration>,
}

impl RetryBudget {
    /// How long a retry waits that asks at `now`, by a monotonic clock.
    pub(crate) fn turn(&self, now: Duration) -> Duration {
        let burst = SPACING * (BURST - 1);
        let mut full_at = self.full_at.lock();
        let missing = full_at.saturating_sub(now).min(burst + LONGEST_TURN);
        *full_at = now + missing + SPACING;
        missing.saturating_sub(burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(7);

    #[test]
    fn a_burst_is_free_and_the_rest_is_spread() {
        let budget = RetryBudget::default();
        let turns: Vec<Duration> = (0..BURST + 100).map(|_| budget.turn(NOW)).collect();
        let (free, spread) = turns.split_at(BURST as usize);
        assert!(free.iter().all(Duration::is_zero));
        let expected: Vec<Duration> = (1..=100).map(|place| SPACING * place).collect();
        assert_eq!(spread, expected);
        // The places that were given are taken until their time, and then the bucket fills.
        let later = NOW + SPACING * 100;
        assert_eq!(budget.turn(later), SPACING);
        let full = NOW + SPACING * (100 + 2 * BURST);
        assert!((0..BURST).all(|_| budget.turn(full).is_zero()));
        assert_eq!(budget.turn(full), SPACING);
    }

    #[test]
    fn no_turn_is_later_than_the_longest() {
        let budget = RetryBudget::default();
        let latest = (0..100_000).map(|_| budget.turn(NOW)).max();
        assert_eq!(latest, Some(LONGEST_TURN));
        assert!(budget.turn(NOW + LONGEST_TURN + SPACING * BURST).is_zero());
    }
}
