//! Dates of builds, for the build script and tests: it cannot use other crates of the workspace.

/// Time since 1970 in the form that Prometheus has for dates of builds: `20060102-15:04:05`.
pub(crate) fn utc(seconds: u64) -> String {
    let (mut day, second) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    while day >= 365 + leap_day(year) {
        day -= 365 + leap_day(year);
        year += 1;
    }
    let lengths = [31, 28 + leap_day(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}{month:02}{:02}-{hour:02}:{minute:02}:{:02}", day + 1, second % 60)
}

fn leap_day(year: u64) -> u64 {
    u64::from(year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)))
}
