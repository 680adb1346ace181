//! Parts of a date in UTC, as Go computes them. Invariants: every float has a date; values are cut to whole
//! seconds first. Not here: the calendar (`base::utc`).

use chronolith_base::utc::UtcTime;

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
    /// Year of the calendar, for example 1970.
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
        let time = UtcTime::of_day(day, (wrapped % 86_400) as i64);
        let field = match self {
            CalendarField::Minute => time.minute(),
            CalendarField::Hour => time.hour(),
            CalendarField::DayOfWeek => time.day_of_week(),
            CalendarField::DayOfMonth => time.day_of_month(),
            CalendarField::DayOfYear => time.day_of_year(),
            CalendarField::DaysInMonth => time.days_in_month(),
            CalendarField::Month => time.month(),
            CalendarField::Year => time.year(),
        };
        field as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 8] =
        ["minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month", "month", "year"];

    #[track_caller]
    fn check(seconds: f64, want: [i64; 8]) {
        let fields = NAMES.map(|name| CalendarField::function(name).map(|field| field(seconds)));
        assert_eq!(fields, want.map(|field| Some(field as f64)), "{seconds}");
    }

    #[test]
    fn fields_of_a_time() {
        check(0.0, [0, 0, 4, 1, 1, 31, 1, 1970]);
        check(-0.9, [0, 0, 4, 1, 1, 31, 1, 1970]);
        check(-1.0, [59, 23, 3, 31, 365, 31, 12, 1969]);
        check(951_782_400.5, [0, 0, 2, 29, 60, 29, 2, 2000]);
    }

    /// Years that neither jiff nor RFC 3339 has; what does not fit 64 bits is Go's earliest time, whose
    /// seconds wrap around to a late one.
    #[test]
    fn fields_of_extreme_times() {
        check(-62_135_596_800.0, [0, 0, 1, 1, 1, 31, 1, 1]);
        check(-62_167_219_201.0, [59, 23, 5, 31, 365, 31, 12, -1]);
        check(253_402_300_799.0, [59, 23, 5, 31, 365, 31, 12, 9999]);
        check(253_402_300_800.0, [0, 0, 6, 1, 1, 31, 1, 10_000]);
        check(-377_705_116_801.0, [59, 23, 0, 31, 366, 31, 12, -10_000]);
        check(1e15, [46, 1, 0, 5, 187, 31, 7, 31_690_708]);
        check(-1e15, [13, 22, 0, 29, 180, 30, 6, -31_686_769]);
        check(2.0_f64.powi(63) - 1024.0, [13, 15, 0, 4, 339, 31, 12, 292_277_026_596]);
        let earliest = [30, 15, 0, 4, 339, 31, 12, 292_277_026_596];
        for seconds in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300, 2.0_f64.powi(63)] {
            check(seconds, earliest);
        }
        check(-(2.0_f64.powi(63)), earliest);
    }
}
