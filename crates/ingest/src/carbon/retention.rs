//! Retentions: `precision:points` or `precision:duration` lists to archives, with whisper's rules for a list.
//!
//! Invariants: archives ascend by step; each step divides the next one, each archive covers a longer time
//! than the one before and has enough points to make one of the next. Not here: rules and paths (`schemas`).

use std::fmt;

/// Archives of a rule at most.
const ARCHIVE_COUNT_MAX: usize = 16;
/// Units by their full names: any prefix of one is that unit, the first that fits.
const UNITS: [(&str, u64); 6] = [
    ("seconds", 1),
    ("minutes", 60),
    ("hours", 3600),
    ("days", 86_400),
    ("weeks", 604_800),
    ("years", 31_536_000),
];

/// One archive of a rule. Printed as `60s:1d (1440 points)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Archive {
    /// Seconds per point, at least 1.
    pub step_s: u32,
    /// Number of points that are kept, at least 1.
    pub point_count: u32,
}

impl Archive {
    /// Returns the time that the archive covers, in seconds.
    #[must_use]
    pub fn retention_s(&self) -> u64 {
        u64::from(self.step_s) * u64::from(self.point_count)
    }

    /// Returns the archive as storage-schemas.conf has it: `1m:30d`.
    #[must_use]
    pub fn definition(&self) -> String {
        let step = duration_text(u64::from(self.step_s));
        format!("{step}:{}", duration_text(self.retention_s()))
    }
}

impl fmt::Display for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} points)", self.definition(), self.point_count)
    }
}

/// Returns a duration in the largest unit that divides it.
fn duration_text(seconds: u64) -> String {
    let unit = UNITS.iter().rev().find(|(_, unit_s)| seconds >= *unit_s && seconds.is_multiple_of(*unit_s));
    let (name, unit_s) = unit.copied().unwrap_or(("seconds", 1));
    format!("{}{}", seconds / unit_s, name.get(..1).unwrap_or("s"))
}

/// A list of archives, and whether a definition has fields of Metrictank after precision and retention.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Retentions {
    pub(super) archives: Vec<Archive>,
    pub(super) has_chunk_fields: bool,
}

/// Reads a list separated by commas, in any order; the error is a sentence for the operator.
pub(super) fn parse_retentions(text: &str) -> Result<Retentions, String> {
    let mut found = Retentions { archives: Vec::new(), has_chunk_fields: false };
    for definition in text.split(',') {
        let mut fields = definition.trim().split(':');
        let precision = fields.next().unwrap_or("");
        let Some(retention) = fields.next() else {
            return Err(format!("expected precision:retention, found {:?}", definition.trim()));
        };
        found.has_chunk_fields |= fields.next().is_some();
        found.archives.push(archive(precision.trim(), retention.trim())?);
        if found.archives.len() > ARCHIVE_COUNT_MAX {
            return Err(format!("more than {ARCHIVE_COUNT_MAX} archives"));
        }
    }
    found.archives.sort_by_key(|archive| archive.step_s);
    Ok(found)
}

fn archive(precision: &str, retention: &str) -> Result<Archive, String> {
    let expected = |what: &str, found: &str| {
        format!("expected a {what} of digits and a unit (s, m, h, d, w, y), found {found:?}")
    };
    let (step_s, _) = duration(precision).ok_or_else(|| expected("precision", precision))?;
    let (amount, is_points) = duration(retention).ok_or_else(|| expected("retention", retention))?;
    let step_s = u32::try_from(step_s).ok().filter(|step_s| *step_s > 0);
    let step_s = step_s.ok_or_else(|| format!("precision {precision:?} is out of range"))?;
    let points = if is_points { amount } else { amount / u64::from(step_s) };
    let point_count = u32::try_from(points).ok().filter(|count| *count > 0);
    let point_count = point_count.ok_or_else(|| format!("{precision}:{retention} keeps {points} points"))?;
    Ok(Archive { step_s, point_count })
}

/// Returns the seconds of a duration; true for digits without a unit.
fn duration(text: &str) -> Option<(u64, bool)> {
    let digits_end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let count: u64 = digits.parse().ok()?;
    if unit.is_empty() {
        return Some((count, true));
    }
    let (_, unit_s) = UNITS.iter().find(|(name, _)| name.starts_with(unit))?;
    Some((count.checked_mul(*unit_s)?, false))
}

/// Checks whisper's rules for neighbouring archives; the error is a sentence for the operator.
pub(super) fn check_archives(archives: &[Archive]) -> Result<(), String> {
    for pair in archives.windows(2) {
        let [fine, coarse] = pair else { continue };
        if fine.step_s == coarse.step_s {
            return Err(format!("two archives of the same precision: {fine} and {coarse}"));
        }
        if !coarse.step_s.is_multiple_of(fine.step_s) {
            return Err(format!("the precision of {fine} does not divide that of {coarse}"));
        }
        if coarse.retention_s() <= fine.retention_s() {
            return Err(format!("{coarse} does not cover a longer time than {fine}"));
        }
        let needed = coarse.step_s / fine.step_s;
        if fine.point_count < needed {
            return Err(format!("{fine} has fewer than the {needed} points that one of {coarse} is made of"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: &str) {
        let found = parse_retentions(text).and_then(|found| {
            check_archives(&found.archives)?;
            Ok(found.archives.iter().map(Archive::to_string).collect::<Vec<_>>().join(", "))
        });
        assert_eq!(found.unwrap_or_else(|error| format!("error: {error}")), want, "{text}");
    }

    #[test]
    fn retentions_are_points_or_durations() {
        check("60:1440", "1m:1d (1440 points)");
        check("10s:6h,1min:7d,10m:5y", "10s:6h (2160 points), 1m:1w (10080 points), 10m:5y (262800 points)");
        check(" 1h:1y , 60s : 90d", "1m:90d (129600 points), 1h:1y (8760 points)");
        check("1:1", "1s:1s (1 points)");
        check("1sec:1week", "1s:1w (604800 points)");
        check("7s:1m", "7s:56s (8 points)");
        check("10s:1d:20min:5:true", "10s:1d (8640 points)");
        assert!(parse_retentions("10s:1d:20min:5:true").is_ok_and(|found| found.has_chunk_fields));
        assert!(parse_retentions("10s:1d").is_ok_and(|found| !found.has_chunk_fields));
    }

    #[test]
    fn bad_retentions_are_errors() {
        check("60", "error: expected precision:retention, found \"60\"");
        check("", "error: expected precision:retention, found \"\"");
        check("60:", "error: expected a retention of digits and a unit (s, m, h, d, w, y), found \"\"");
        check("1mo:1y", "error: expected a precision of digits and a unit (s, m, h, d, w, y), found \"1mo\"");
        check("1M:1y", "error: expected a precision of digits and a unit (s, m, h, d, w, y), found \"1M\"");
        check("-1:1", "error: expected a precision of digits and a unit (s, m, h, d, w, y), found \"-1\"");
        check(
            "1.5s:1",
            "error: expected a precision of digits and a unit (s, m, h, d, w, y), found \"1.5s\"",
        );
        check("0:5", "error: precision \"0\" is out of range");
        check("200y:9999y", "error: precision \"200y\" is out of range");
        check("10s:5s", "error: 10s:5s keeps 0 points");
        check("1s:0", "error: 1s:0 keeps 0 points");
        check("1s:200y", "error: 1s:200y keeps 6307200000 points");
        let many = "9999999999999999999y:1d";
        check(
            many,
            "error: expected a precision of digits and a unit (s, m, h, d, w, y), found \"9999999999999999999y\"",
        );
        check(&["1s:1d"; 17].join(","), "error: more than 16 archives");
    }

    #[test]
    fn lists_have_the_rules_of_whisper() {
        check(
            "60:10,60:20",
            "error: two archives of the same precision: 1m:10m (10 points) and 1m:20m (20 points)",
        );
        check(
            "60s:1d,90s:2d",
            "error: the precision of 1m:1d (1440 points) does not divide that of 90s:2d (1920 points)",
        );
        check(
            "60s:1d,120s:1d",
            "error: 2m:1d (720 points) does not cover a longer time than 1m:1d (1440 points)",
        );
        check(
            "1s:30,1m:1d",
            "error: 1s:30s (30 points) has fewer than the 60 points that one of 1m:1d (1440 points) is made of",
        );
    }
}
