//! `strftime_now`: the date in the format a template asks for.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A moment in UTC, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moment {
    year: i64,
    /// 1 to 12.
    month: u8,
    /// 1 to 31.
    day: u8,
    /// 1 to 366.
    day_of_year: u16,
    /// 0 is Sunday.
    weekday: u8,
    /// Since midnight.
    seconds: u32,
}

impl Moment {
    fn new(time: SystemTime) -> Self {
        let seconds = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_secs() as i64,
            Err(before) => -(before.duration().as_secs() as i64),
        };
        let (days, seconds) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (mut year, mut rest) = (1970 + days / 366 - i64::from(days < 0), days);
        rest -= days_before(year);
        while rest >= length(year) {
            rest -= length(year);
            year += 1;
        }
        while rest < 0 {
            year -= 1;
            rest += length(year);
        }
        let day_of_year = rest as u16 + 1;
        let mut month = 0;
        while rest >= month_length(year, month) {
            rest -= month_length(year, month);
            month += 1;
        }
        Self {
            year,
            month: month as u8 + 1,
            day: rest as u8 + 1,
            day_of_year,
            weekday: (days + 4).rem_euclid(7) as u8,
            seconds: seconds as u32,
        }
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn length(year: i64) -> i64 {
    365 + i64::from(is_leap(year))
}

fn month_length(year: i64, month: usize) -> i64 {
    const LENGTHS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    LENGTHS[month] + i64::from(month == 1 && is_leap(year))
}

/// Days from 1970-01-01 to the first of January.
fn days_before(year: i64) -> i64 {
    let leaps = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
}

/// Python's `strftime` in the C locale and UTC. Directives that templates have no use for stay
/// as they are.
pub(crate) fn strftime(time: SystemTime, format: &str) -> String {
    let now = Moment::new(time);
    let (hour, minute, second) = (now.seconds / 3600, now.seconds / 60 % 60, now.seconds % 60);
    let twelve = (hour + 11) % 12 + 1;
    let month = MONTHS[usize::from(now.month) - 1];
    let day = DAYS[usize::from(now.weekday)];
    let mut out = String::new();
    let mut characters = format.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let bare = characters.next_if_eq(&'-').is_some();
        let two = |value: u32| {
            if bare {
                value.to_string()
            } else {
                format!("{value:02}")
            }
        };
        match characters.next() {
            Some('Y') => out += &now.year.to_string(),
            Some('y') => out += &two(now.year.rem_euclid(100) as u32),
            Some('m') => out += &two(now.month.into()),
            Some('d') => out += &two(now.day.into()),
            Some('e') => out += &format!("{:>1$}", now.day, if bare { 1 } else { 2 }),
            Some('j') => out += &format!("{:01$}", now.day_of_year, if bare { 1 } else { 3 }),
            Some('H') => out += &two(hour),
            Some('I') => out += &two(twelve),
            Some('M') => out += &two(minute),
            Some('S') => out += &two(second),
            Some('p') => out += if hour < 12 { "AM" } else { "PM" },
            Some('B') => out += month,
            Some('b' | 'h') => out += &month[..3],
            Some('A') => out += day,
            Some('a') => out += &day[..3],
            Some('w') => out += &now.weekday.to_string(),
            Some('F') => out += &strftime(time, "%Y-%m-%d"),
            Some('T') => out += &strftime(time, "%H:%M:%S"),
            Some('D') => out += &strftime(time, "%m/%d/%y"),
            Some('z') => out += "+0000",
            Some('Z') => out += "UTC",
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates() {
        let at = |seconds: i64| match u64::try_from(seconds) {
            Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds),
            Err(_) => UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()),
        };
        let cases = [
            (0, "1970-01-01 Thu 001"),
            (951_782_400, "2000-02-29 Tue 060"),
            (978_220_800, "2000-12-31 Sun 366"),
            (1_768_469_400, "2026-01-15 Thu 015"),
            (4_107_542_400, "2100-03-01 Mon 060"),
            (253_402_300_799, "9999-12-31 Fri 365"),
            (-1, "1969-12-31 Wed 365"),
            (-2_203_977_600, "1900-02-28 Wed 059"),
        ];
        for (seconds, text) in cases {
            assert_eq!(strftime(at(seconds), "%Y-%m-%d %a %j"), text, "{seconds}");
        }
    }

    #[test]
    fn directives() {
        let time = UNIX_EPOCH + Duration::from_secs(1_768_469_400);
        assert_eq!(
            strftime(time, "%d %B %Y, %H:%M:%S"),
            "15 January 2026, 09:30:00"
        );
        assert_eq!(
            strftime(time, "%-m/%-d %I:%M %p %A %b %y %% %Q %"),
            "1/15 09:30 AM Thursday Jan 26 % %Q %"
        );
        assert_eq!(strftime(time, "%F %T"), "2026-01-15 09:30:00");
        assert_eq!(strftime(UNIX_EPOCH, "%I %e %-e"), "12  1 1");
    }
}
