//! Parts of a date in UTC. Invariants: works for every time that fits the calendar arithmetic of 64 bits;
//! values are cut to whole seconds first.

/// A part of a date or of a time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CalendarField {
    /// 0 to 59.
    Minute,
    /// 0 to 23.
    Hour,
    /// 0 (Sunday) to 6.
    DayOfWeek,
    /// 1 to 31.
    DayOfMonth,
    /// 1 to 366.
    DayOfYear,
    /// 28 to 31.
    DaysInMonth,
    /// 1 to 12.
    Month,
    /// Such as 1970.
    Year,
}

/// Days from the earliest date that Go's calendar knows to 1970-01-01. Its seconds wrap around below.
const EPOCH_DAY: i64 = 292_277_022_400 / 400 * 146_097 + 306 + 719_162;

impl CalendarField {
    /// The function of this name: a field of seconds since 1970.
    pub(crate) fn function(name: &str) -> Option<fn(f64) -> f64> {
        Some(match name {
            "minute" => |seconds| CalendarField::Minute.of(seconds),
            "hour" => |seconds| CalendarField::Hour.of(seconds),
            "day_of_week" => |seconds| CalendarField::DayOfWeek.of(seconds),
            "day_of_month" => |seconds| CalendarField::DayOfMonth.of(seconds),
            "day_of_year" => |seconds| CalendarField::DayOfYear.of(seconds),
            "days_in_month" => |seconds| CalendarField::DaysInMonth.of(seconds),
            "month" => |seconds| CalendarField::Month.of(seconds),
            "year" => |seconds| CalendarField::Year.of(seconds),
            _ => return None,
        })
    }

    /// The field at `seconds` since 1970. NaN and what does not fit 64 bits count as the least number of 64
    /// bits, as in Prometheus on x86.
    fn of(self, seconds: f64) -> f64 {
        let fits = (-(2.0_f64.powi(63))..2.0_f64.powi(63)).contains(&seconds);
        let seconds = if fits { seconds as i64 } else { i64::MIN };
        let wrapped = (seconds as u64).wrapping_add((EPOCH_DAY as u64).wrapping_mul(86_400));
        let day = (wrapped / 86_400) as i64 - EPOCH_DAY;
        let second_of_day = (wrapped % 86_400) as i64;
        let (year, month, day_of_month) = civil(day);
        let field = match self {
            CalendarField::Minute => second_of_day / 60 % 60,
            CalendarField::Hour => second_of_day / 3600,
            // 1970 began on a Thursday.
            CalendarField::DayOfWeek => (day + 4).rem_euclid(7),
            CalendarField::DayOfMonth => day_of_month,
            CalendarField::DayOfYear => day - day_number(year, 1, 1) + 1,
            CalendarField::DaysInMonth => {
                let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
                day_number(next_year, next, 1) - day_number(year, month, 1)
            }
            CalendarField::Month => month,
            CalendarField::Year => year,
        };
        field as f64
    }
}

/// A time as RFC 3339 writes it, in UTC, seconds cut towards 1970.
pub(crate) fn rfc3339(time_ms: i64) -> String {
    let seconds = time_ms / 1000;
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

/// Year, month and day of the month of a day counted from 1970-01-01. Years are taken to begin in March, so
/// that the leap day is the last of its year.
fn civil(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let day_of_era = day.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day_of_month)
}

/// The inverse of [`civil`].
fn day_number(year: i64, month: i64, day_of_month: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted_month = (month + 9) % 12;
    let day_of_year = (153 * shifted_month + 2) / 5 + day_of_month - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_some_centuries_goes_there_and_back() {
        let mut before = (0, 0, 0);
        for day in -300_000..300_000 {
            let (year, month, day_of_month) = civil(day);
            assert_eq!(day_number(year, month, day_of_month), day);
            assert!((year, month, day_of_month) > before || day == -300_000, "{day}");
            before = (year, month, day_of_month);
        }
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(16_860), (2016, 2, 29));
        assert_eq!(civil(-1), (1969, 12, 31));
    }
}
