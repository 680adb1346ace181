//! Times and durations of InfluxDB as text.

use anyhow::{Context as _, bail};
use chronolith_base::utc;

/// Earliest time that InfluxDB stores, in nanoseconds.
pub(crate) const TIME_MIN_NS: i64 = chronolith_ingest::line_protocol::TIME_MIN_NS;
/// Latest time that InfluxDB stores.
pub(crate) const TIME_MAX_NS: i64 = chronolith_ingest::line_protocol::TIME_MAX_NS;

/// Times of a migration in nanoseconds, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Period {
    pub(crate) first_ns: i64,
    pub(crate) last_ns: i64,
}

impl Period {
    /// All times.
    pub(crate) const ALL: Period = Period { first_ns: TIME_MIN_NS, last_ns: TIME_MAX_NS };

    /// Returns the times of both; `None` if there are none.
    pub(crate) fn intersection(self, other: Period) -> Option<Period> {
        let first_ns = self.first_ns.max(other.first_ns);
        let last_ns = self.last_ns.min(other.last_ns);
        (first_ns <= last_ns).then_some(Period { first_ns, last_ns })
    }
}

/// Returns a time in RFC 3339 to the second.
pub(crate) fn rfc3339(time_ns: i64) -> String {
    utc::rfc3339_seconds(time_ns.div_euclid(1_000_000))
}

/// Parses a time: RFC 3339 with up to nine digits of a fraction, or nanoseconds since 1970. Times outside of
/// those that InfluxDB stores become the nearest one.
pub(crate) fn parse_time(text: &str) -> anyhow::Result<i64> {
    let clamped = |time_ns: i64| time_ns.clamp(TIME_MIN_NS, TIME_MAX_NS);
    if let Ok(time_ns) = text.parse::<i64>() {
        return Ok(clamped(time_ns));
    }
    let time_ms = utc::parse_rfc3339_ms(text);
    let time_ms = time_ms.with_context(|| format!("not a time in RFC 3339 or nanoseconds: {text:?}"))?;
    let fraction = text.split_once('.').map_or("", |(_, rest)| rest);
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).take(9).skip(3);
    let mut unit_ns = 100_000;
    let mut below_ms_ns = 0;
    for digit in digits {
        below_ms_ns += i64::from(digit - b'0') * unit_ns;
        unit_ns /= 10;
    }
    Ok(clamped(time_ms.saturating_mul(1_000_000).saturating_add(below_ms_ns)))
}

/// Parses a duration as Go prints it, such as `168h0m0s`; 0 is infinite.
pub(crate) fn parse_duration(text: &str) -> anyhow::Result<i64> {
    let mut rest = text;
    let mut total_ns = 0i64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let unit_ns = match unit {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" | "µs" => 1_000,
            "ns" => 1,
            _ => bail!("not a duration: {text:?}"),
        };
        let number: i64 = number.parse().with_context(|| format!("not a duration: {text:?}"))?;
        total_ns = total_ns.saturating_add(number.saturating_mul(unit_ns));
        rest = after;
    }
    Ok(total_ns)
}

/// Returns a duration as InfluxQL reads it.
pub(crate) fn duration_literal(duration_ns: i64) -> String {
    let units = [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000)];
    let unit = units.into_iter().find(|(_, unit_ns)| duration_ns % unit_ns == 0);
    let (unit, unit_ns) = unit.unwrap_or(("ns", 1));
    format!("{}{unit}", duration_ns / unit_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_nanoseconds() {
        let check = |text: &str, want: i64| assert_eq!(parse_time(text).expect(text), want);
        check("1970-01-01T00:00:01Z", 1_000_000_000);
        check("1970-01-01T00:00:00.000000001Z", 1);
        check("1970-01-01T00:00:00.1234567899Z", 123_456_789);
        check("-5", -5);
        check("9223372036854775807", TIME_MAX_NS);
        check("1677-01-01T00:00:00Z", TIME_MIN_NS);
        assert!(parse_time("yesterday").is_err());
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59Z");
    }

    #[test]
    fn durations_of_go() {
        assert_eq!(parse_duration("168h0m0s").expect("a duration"), 168 * 3_600_000_000_000);
        assert_eq!(parse_duration("0s").expect("a duration"), 0);
        assert_eq!(parse_duration("1h30m0s").expect("a duration"), 5_400_000_000_000);
        assert!(parse_duration("1w2").is_err() && parse_duration("h").is_err());
        assert_eq!(duration_literal(5_400_000_000_000), "90m");
        assert_eq!(duration_literal(7), "7ns");
    }
}
