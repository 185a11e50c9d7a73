//! Searching from an estimated position.

/// The straight line through the first and the last of ascending numbers: the position of a number
/// if they are evenly spread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line {
    first: u64,
    /// Positions per unit.
    slope: f64,
}

impl Line {
    /// For `count` numbers from `first` to `last`.
    #[must_use]
    pub fn between(first: u64, last: u64, count: usize) -> Line {
        let span = last.saturating_sub(first);
        let slope = if span > 0 { count.saturating_sub(1) as f64 / span as f64 } else { 0.0 };
        Line { first, slope }
    }

    /// The probable position of `number`. May be past the end.
    #[must_use]
    #[inline]
    pub fn position(&self, number: u64) -> usize {
        (number.saturating_sub(self.first) as f64 * self.slope) as usize
    }
}

/// The first of `len` positions for which `is_before` is false; `len` if there is none. All
/// positions for which it is true must come first.
///
/// Starts at `guess` and gallops from there (Bentley and Yao, 1976): a guess that is off by d costs
/// about 2 log2(d) steps, at most twice the steps of a binary search.
#[must_use]
#[inline]
pub fn partition_near(len: usize, guess: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let Some(last) = len.checked_sub(1) else { return 0 };
    let guess = guess.min(last);
    // `is_before` is true for all below `low` and false for all from `high` on.
    let (mut low, mut high);
    let mut step = 1;
    if is_before(guess) {
        low = guess + 1;
        high = len;
        while low < high {
            let probe = (low + step - 1).min(last);
            if !is_before(probe) {
                high = probe;
                break;
            }
            low = probe + 1;
            step *= 2;
        }
    } else {
        low = 0;
        high = guess;
        while low < high {
            let probe = high.saturating_sub(step);
            if is_before(probe) {
                low = probe + 1;
                break;
            }
            high = probe;
            step *= 2;
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::partition_near;

    #[test]
    fn every_guess_finds_every_border() {
        for len in 0..20 {
            for border in 0..=len {
                for guess in 0..25 {
                    assert_eq!(partition_near(len, guess, |n| n < border), border);
                }
            }
        }
    }
}
