//! The clock of the server, and times as S3 writes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 by a clock that differs from the machine's by `offset` milliseconds.
pub(crate) fn now_millis(offset: i64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    now.saturating_add_signed(offset)
}

/// As in a listing: `2023-11-14T22:13:20.000Z`.
pub(crate) fn iso(millis: u64) -> String {
    let (days, rest) = (millis / 86_400_000, millis % 86_400_000);
    let (year, month, day) = civil(days);
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// As in a header: `Tue, 14 Nov 2023 22:13:20 GMT`.
pub(crate) fn http(millis: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(millis))
}

/// The milliseconds of an `x-amz-date`: `20231114T221320Z`.
pub(crate) fn parse_amz(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let is_form = text.len() == 16 && text.get(8..9) == Some("T") && text.ends_with('Z');
    if !is_form {
        return None;
    }
    let days = days_of(number(0, 4)?, number(4, 6)?, number(6, 8)?)?;
    let seconds = number(9, 11)? * 3600 + number(11, 13)? * 60 + number(13, 15)?;
    Some((days * 86_400 + seconds) * 1000)
}

/// Year, month and day of a day since 1970 (H. Hinnant, *chrono-compatible low-level date
/// algorithms*).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

/// The inverse of [`civil`]; `None` before 1970 or for a month that does not exist.
fn days_of(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = year.checked_sub(u64::from(month <= 2))?;
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_s3_writes_them() {
        assert_eq!(iso(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(iso(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(http(1_700_000_000_000), "Tue, 14 Nov 2023 22:13:20 GMT");
        assert_eq!(parse_amz("20231114T221320Z"), Some(1_700_000_000_000));
        assert_eq!(parse_amz("20000229T000000Z"), Some(951_782_400_000));
        assert_eq!(parse_amz("2023-11-14T22:13"), None);
        assert_eq!(parse_amz("20231314T221320Z"), None);
    }
}
