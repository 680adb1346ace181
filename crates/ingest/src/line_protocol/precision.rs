//! Unit of the times of a request: parameter `precision` of the write endpoints.
//!
//! Invariant: times in nanoseconds are in [`TIME_MIN_NS`], [`TIME_MAX_NS`]; `i64::MIN`, the value after it
//! and `i64::MAX` are sentinels of InfluxDB.

/// Earliest time of a line.
pub const TIME_MIN_NS: i64 = i64::MIN + 2;
/// Latest time of a line.
pub const TIME_MAX_NS: i64 = i64::MAX - 1;

/// Unit of the times of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// Nanoseconds, also if the request names no precision.
    #[default]
    Nano,
    /// Microseconds.
    Micro,
    /// Milliseconds.
    Milli,
    /// Seconds.
    Second,
    /// Minutes.
    Minute,
    /// Hours.
    Hour,
}

impl Precision {
    /// Returns the precision that `/write` calls `name`.
    ///
    /// # Errors
    /// The message for the client.
    pub fn of_write(name: &str) -> Result<Precision, String> {
        match name {
            "" | "n" | "ns" => Ok(Precision::Nano),
            "u" => Ok(Precision::Micro),
            "ms" => Ok(Precision::Milli),
            "s" => Ok(Precision::Second),
            "m" => Ok(Precision::Minute),
            "h" => Ok(Precision::Hour),
            _ => Err(format!("invalid precision {name:?} (use n, u, ms, s, m or h)")),
        }
    }

    /// Returns the precision that `/api/v2/write` calls `name`.
    ///
    /// # Errors
    /// The message for the client.
    pub fn of_write_v2(name: &str) -> Result<Precision, String> {
        match name {
            "" | "ns" => Ok(Precision::Nano),
            "us" => Ok(Precision::Micro),
            "ms" => Ok(Precision::Milli),
            "s" => Ok(Precision::Second),
            _ => Err(format!("invalid precision {name:?} (use ns, us, ms or s)")),
        }
    }

    /// Nanoseconds per unit.
    #[must_use]
    pub const fn unit_ns(self) -> i64 {
        match self {
            Precision::Nano => 1,
            Precision::Micro => 1_000,
            Precision::Milli => 1_000_000,
            Precision::Second => 1_000_000_000,
            Precision::Minute => 60 * 1_000_000_000,
            Precision::Hour => 3600 * 1_000_000_000,
        }
    }

    /// Returns a time of the request in nanoseconds, or `None` if it is outside of the valid times.
    #[must_use]
    pub fn to_ns(self, time: i64) -> Option<i64> {
        let time_ns = time.checked_mul(self.unit_ns())?;
        (TIME_MIN_NS..=TIME_MAX_NS).contains(&time_ns).then_some(time_ns)
    }

    /// Rounds a time down to a multiple of the unit.
    #[must_use]
    pub fn truncate(self, time_ns: i64) -> i64 {
        time_ns.saturating_sub(time_ns.rem_euclid(self.unit_ns()))
    }
}
