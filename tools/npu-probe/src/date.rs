// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dates.

use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;

/// Year, month and day of today, in UTC.
pub(crate) fn today() -> String {
    date(SystemTime::now())
}

/// Year, month and day, in UTC.
pub(crate) fn date(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH);
    of_day(since.unwrap_or_default().as_secs() / SECONDS_PER_DAY)
}

/// The date of a day, counted from the first of 1970.
fn of_day(mut day: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    // A clock that is far off is no reason to count for long.
    while year < 9999 && day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        let days = [0, 58, 59, 364, 365, 789, 19_782, 20_453];
        let dates = [
            "1970-01-01",
            "1970-02-28",
            "1970-03-01",
            "1970-12-31",
            "1971-01-01",
            "1972-02-29",
            "2024-02-29",
            "2025-12-31",
        ];
        assert_eq!(days.map(of_day), dates);
    }
}
