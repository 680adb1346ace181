//! Times and durations in UTC, as Go's package `time` prints and computes them.

use chronolith_base::utc::UtcTime;

pub(in crate::template) const SECOND_NANOS: i64 = 1_000_000_000;
const MS_NANOS: i128 = 1_000_000;
/// Seconds from the year 1 to 1970.
pub(in crate::template) const YEAR_ONE_SECONDS: i64 = 62_135_596_800;

/// Returns `value` as Go converts a float to an integer: beyond the range it is the least integer.
pub(in crate::template) fn go_int(value: f64) -> i64 {
    let fits = (-(2f64.powi(63))..2f64.powi(63)).contains(&value);
    if fits { value as i64 } else { i64::MIN }
}

/// A point in time: nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::template) struct Time {
    pub(in crate::template) unix_nanos: i128,
}

/// Longest and shortest names of months and days, in order.
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
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Returns the name of a month, 1 to 12.
pub(in crate::template) fn month_name(month: i64) -> String {
    name_of(&MONTHS, month - 1).map_or_else(|| format!("%!Month({month})"), str::to_owned)
}

/// Returns the name of a day of the week, from 0, which is Sunday.
pub(in crate::template) fn weekday_name(weekday: i64) -> String {
    name_of(&WEEKDAYS, weekday).map_or_else(|| format!("%!Weekday({weekday})"), str::to_owned)
}

fn name_of(names: &[&'static str], idx: i64) -> Option<&'static str> {
    names.get(usize::try_from(idx).ok()?).copied()
}

impl Time {
    pub(in crate::template) fn of_ms(ms: i64) -> Time {
        Time { unix_nanos: i128::from(ms) * MS_NANOS }
    }

    pub(in crate::template) fn calendar(self) -> UtcTime {
        let ms = self.unix_nanos.div_euclid(MS_NANOS);
        UtcTime::of_ms(i64::try_from(ms).unwrap_or(i64::MAX))
    }

    /// Nanoseconds within the second.
    pub(in crate::template) fn nanosecond(self) -> i64 {
        self.unix_nanos.rem_euclid(i128::from(SECOND_NANOS)) as i64
    }

    /// Whole `unit_nanos` since 1970, as Go counts them.
    pub(in crate::template) fn unix(self, unit_nanos: i64) -> i64 {
        self.unix_nanos.div_euclid(i128::from(unit_nanos)) as i64
    }

    pub(in crate::template) fn plus(self, nanos: i64) -> Time {
        Time { unix_nanos: self.unix_nanos + i128::from(nanos) }
    }

    /// Returns the time years, months and days later; days beyond a month are days of the next one.
    pub(in crate::template) fn plus_date(self, parts: &[i64]) -> Time {
        /// Years, months or days that are far beyond the calendar.
        const PART_MAX: i64 = 1 << 24;
        let part = |idx: usize| parts.get(idx).map_or(0, |part| *part).clamp(-PART_MAX, PART_MAX);
        let time = self.calendar();
        let months = 12 * (time.year() + part(0)) + time.month() - 1 + part(1);
        let day = first_day_of_month(months) + time.day_of_month() - 1 + part(2);
        let day_nanos = i128::from(24 * 3600 * SECOND_NANOS);
        Time { unix_nanos: i128::from(day) * day_nanos + self.unix_nanos.rem_euclid(day_nanos) }
    }

    /// Returns true for the first moment of the year 1, Go's zero time.
    pub(in crate::template) fn is_year_one(self) -> bool {
        self.unix_nanos == -i128::from(YEAR_ONE_SECONDS) * i128::from(SECOND_NANOS)
    }

    /// Returns the duration since `earlier`, the nearest one if it is too long.
    pub(in crate::template) fn since(self, earlier: Time) -> i64 {
        let nanos = self.unix_nanos - earlier.unix_nanos;
        nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// Returns the time rounded down to a multiple of `unit_nanos` since the year 1, or to the nearest one.
    pub(in crate::template) fn rounded(self, unit_nanos: i64, to_nearest: bool) -> Time {
        if unit_nanos <= 0 {
            return self;
        }
        let since_year_one = self.unix_nanos + i128::from(YEAR_ONE_SECONDS) * i128::from(SECOND_NANOS);
        let rest = since_year_one.rem_euclid(i128::from(unit_nanos));
        let is_up = to_nearest && rest * 2 >= i128::from(unit_nanos);
        let added = if is_up { i128::from(unit_nanos) } else { 0 };
        Time { unix_nanos: self.unix_nanos - rest + added }
    }

    /// Returns the time as Go prints it: `2015-06-23 13:19:44.128 +0000 UTC`.
    pub(in crate::template) fn text(self) -> String {
        self.format("2006-01-02 15:04:05.999999999 -0700 MST")
    }

    /// Returns the time in a layout of Go's reference time, `Mon Jan 2 15:04:05 MST 2006`.
    pub(in crate::template) fn format(self, layout: &str) -> String {
        let mut out = String::with_capacity(layout.len() + 8);
        let calendar = self.calendar();
        let mut rest = layout;
        while let Some(c) = rest.chars().next() {
            match layout_token(rest) {
                Some(token) => {
                    self.push(&mut out, calendar, token);
                    rest = rest.get(token.len()..).unwrap_or("");
                }
                None => {
                    out.push(c);
                    rest = rest.get(c.len_utf8()..).unwrap_or("");
                }
            }
        }
        out
    }

    /// Appends the part of the time that `token` stands for.
    fn push(self, out: &mut String, time: UtcTime, token: &str) {
        let hour12 = match time.hour() % 12 {
            0 => 12,
            hour => hour,
        };
        let half = if time.hour() >= 12 { ["PM", "pm"] } else { ["AM", "am"] };
        let text = match token {
            "January" => month_name(time.month()),
            "Jan" => short(&month_name(time.month())),
            "1" => time.month().to_string(),
            "01" => format!("{:02}", time.month()),
            "Monday" => weekday_name(time.day_of_week()),
            "Mon" => short(&weekday_name(time.day_of_week())),
            "2" => time.day_of_month().to_string(),
            "_2" => format!("{:2}", time.day_of_month()),
            "02" => format!("{:02}", time.day_of_month()),
            "__2" => format!("{:3}", time.day_of_year()),
            "002" => format!("{:03}", time.day_of_year()),
            "15" => format!("{:02}", time.hour()),
            "3" => hour12.to_string(),
            "03" => format!("{hour12:02}"),
            "4" => time.minute().to_string(),
            "04" => format!("{:02}", time.minute()),
            "5" => time.second().to_string(),
            "05" => format!("{:02}", time.second()),
            "2006" => format!("{:04}", time.year()),
            "06" => format!("{:02}", time.year().rem_euclid(100)),
            "PM" => half[0].to_owned(),
            "pm" => half[1].to_owned(),
            "MST" => "UTC".to_owned(),
            "-0700" => "+0000".to_owned(),
            "-07:00" => "+00:00".to_owned(),
            "-07" => "+00".to_owned(),
            "-070000" => "+000000".to_owned(),
            "-07:00:00" => "+00:00:00".to_owned(),
            zone if zone.starts_with('Z') => "Z".to_owned(),
            fraction => self.fraction(fraction),
        };
        out.push_str(&text);
    }

    /// `.000` has all digits, `.999` those up to the last one that is not zero.
    fn fraction(self, token: &str) -> String {
        let digits = format!("{:09}", self.nanosecond());
        let kept = digits.get(..(token.len() - 1).min(digits.len())).unwrap_or("");
        let separator = token.get(..1).unwrap_or(".");
        if token.ends_with('0') {
            let zeros = "0".repeat((token.len() - 1).saturating_sub(digits.len()));
            return format!("{separator}{kept}{zeros}");
        }
        let kept = kept.trim_end_matches('0');
        if kept.is_empty() { String::new() } else { format!("{separator}{kept}") }
    }

    /// Returns the Go expression of the time.
    pub(in crate::template) fn go_text(self) -> String {
        let time = self.calendar();
        format!(
            "time.Date({}, time.{}, {}, {}, {}, {}, {}, time.UTC)",
            time.year(),
            month_name(time.month()),
            time.day_of_month(),
            time.hour(),
            time.minute(),
            time.second(),
            self.nanosecond(),
        )
    }
}

/// Days from 1970-01-01 to the first day of a month, counted from January of the year 0.
fn first_day_of_month(months: i64) -> i64 {
    /// Days of 400 years.
    const CYCLE_DAYS: i64 = 146_097;
    /// Days from March of the year 0 to 1970.
    const EPOCH_DAYS: i64 = 719_468;
    // Years that begin in March end with the day that only some years have.
    let from_march = months - 2;
    let year = from_march.div_euclid(12);
    let year_of_cycle = year.rem_euclid(400);
    let day_of_year = (153 * from_march.rem_euclid(12) + 2) / 5;
    let day_of_cycle = year_of_cycle * 365 + year_of_cycle / 4 - year_of_cycle / 100 + day_of_year;
    year.div_euclid(400) * CYCLE_DAYS + day_of_cycle - EPOCH_DAYS
}

fn short(name: &str) -> String {
    name.get(..3).unwrap_or(name).to_owned()
}

/// Returns the part of a layout at the start of `text` that stands for a part of the time.
fn layout_token(text: &str) -> Option<&str> {
    /// Longer ones first.
    const TOKENS: [&str; 37] = [
        "January",
        "Monday",
        "MST",
        "002",
        "01",
        "02",
        "03",
        "04",
        "05",
        "06",
        "15",
        "1",
        "2006",
        "2",
        "__2",
        "_2",
        "3",
        "4",
        "5",
        "PM",
        "pm",
        "-07:00:00",
        "-070000",
        "-07:00",
        "-0700",
        "-07",
        "Z07:00:00",
        "Z070000",
        "Z07:00",
        "Z0700",
        "Z07",
        "Jan",
        "Mon",
        ".0",
        ".9",
        ",0",
        ",9",
    ];
    let token = TOKENS.into_iter().find(|token| text.starts_with(token))?;
    let after = text.get(token.len()..).unwrap_or("");
    match token {
        "Jan" | "Mon" if after.starts_with(|c: char| c.is_ascii_lowercase()) => None,
        // An underscore before a year is text.
        "_2" if after.starts_with("006") => None,
        ".0" | ".9" | ",0" | ",9" => {
            let digit = token.chars().nth(1)?;
            let end = text.len() - after.trim_start_matches(digit).len();
            let is_last = !text.get(end..).unwrap_or("").starts_with(|c: char| c.is_ascii_digit());
            is_last.then(|| text.get(..end)).flatten()
        }
        token => text.get(..token.len()),
    }
}

/// Returns a duration as Go prints it: `1h2m3.5s`, `150ms`.
pub(in crate::template) fn duration_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = nanos.unsigned_abs();
    match magnitude {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{magnitude}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", with_fraction(magnitude, 1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", with_fraction(magnitude, 1_000_000)),
        _ => {
            let second = SECOND_NANOS.unsigned_abs();
            let seconds = with_fraction(magnitude % (60 * second), second);
            let minutes = magnitude / (60 * second);
            match minutes {
                0 => format!("{sign}{seconds}s"),
                1..60 => format!("{sign}{minutes}m{seconds}s"),
                _ => format!("{sign}{}h{}m{seconds}s", minutes / 60, minutes % 60),
            }
        }
    }
}

/// Returns `value / unit` without trailing zeros; `unit` is a power of ten.
fn with_fraction(value: u64, unit: u64) -> String {
    let whole = value / unit;
    let width = unit.ilog10() as usize;
    let fraction = format!("{:0width$}", value % unit);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() { whole.to_string() } else { format!("{whole}.{fraction}") }
}
