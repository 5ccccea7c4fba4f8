// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dates in UTC, without a time zone database.

use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;

/// Year, month and day, in UTC.
pub(crate) fn date(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH);
    of_day(since.unwrap_or_default().as_secs() / SECONDS_PER_DAY)
}

/// The date of a day, counted from the first of 1970. Years begin in March here, so that a leap
/// day is their last one ("chrono-Compatible Low-Level Date Algorithms", Howard Hinnant).
fn of_day(day: u64) -> String {
    // A clock that is far off gives the last day of 9999.
    let day = day.min(2_932_896) + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        let days = [0, 58, 59, 364, 365, 789, 19_782, 20_453, u64::MAX];
        let dates = [
            "1970-01-01",
            "1970-02-28",
            "1970-03-01",
            "1970-12-31",
            "1971-01-01",
            "1972-02-29",
            "2024-02-29",
            "2025-12-31",
            "9999-12-31",
        ];
        assert_eq!(days.map(of_day), dates);
    }
}
