//! The slow query log: one line of JSON for a query that took longer than `query.log-slow`, with what
//! `explain` shows.
//! Invariants: a line is no longer than [`SLOW_LINE_BYTES_MAX`], and there are at most
//! [`SLOW_LINES_PER_SECOND_MAX`] a second, so that a flood of slow queries does not become a flood of lines;
//! queries left out are counted.
//! Not here: where lines go (ADR 0024: the process's own log, target `slow_query`).

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

/// Bytes of one line; a larger plan is left out of it.
pub const SLOW_LINE_BYTES_MAX: usize = 64 << 10;
/// Lines in one second.
pub const SLOW_LINES_PER_SECOND_MAX: u64 = 10;

/// Rate limiter of the log: lines of the current second, and counts since the start.
#[derive(Default)]
pub struct SlowLog {
    second: AtomicU64,
    line_count: AtomicU64,
    left_out: AtomicU64,
    written: AtomicU64,
}

impl SlowLog {
    /// Returns true if another line may be written in this second; counts the query as written or left out.
    fn admit(&self, now_mono_ns: u64) -> bool {
        let second = now_mono_ns / 1_000_000_000;
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.line_count.store(0, Ordering::Relaxed);
        }
        let admitted = self.line_count.fetch_add(1, Ordering::Relaxed) < SLOW_LINES_PER_SECOND_MAX;
        let counter = if admitted { &self.written } else { &self.left_out };
        counter.fetch_add(1, Ordering::Relaxed);
        admitted
    }

    /// Lines since the start, and queries that were slow and have none.
    pub fn counts(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.left_out.load(Ordering::Relaxed))
    }

    /// Writes what `line` makes, if it is time for another.
    pub fn write(&self, now_mono_ns: u64, line: impl FnOnce() -> String) {
        if self.admit(now_mono_ns) {
            let line = line();
            tracing::warn!(target: "slow_query", "{line}");
        }
    }
}

/// One line: `about` with the plan in it, unless that makes it too long.
pub fn line(mut about: Value, plan: Value) -> String {
    about["plan"] = plan;
    let text = about.to_string();
    if text.len() <= SLOW_LINE_BYTES_MAX {
        return text;
    }
    about["plan"] = json!("left out: too long");
    let text = about.to_string();
    if text.len() <= SLOW_LINE_BYTES_MAX {
        return text;
    }
    about["query"] = json!("left out: too long");
    about.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded() {
        let long = "x".repeat(SLOW_LINE_BYTES_MAX);
        let whole = line(json!({ "query": "up", "seconds": 1 }), json!({ "op": "query" }));
        assert_eq!(whole, r#"{"plan":{"op":"query"},"query":"up","seconds":1}"#);
        let no_plan = line(json!({ "query": "up" }), json!(long));
        assert_eq!(no_plan, r#"{"plan":"left out: too long","query":"up"}"#);
        assert!(line(json!({ "query": long }), Value::Null).len() < 200);
    }

    #[test]
    fn a_flood_is_counted_and_not_written() {
        let log = SlowLog::default();
        let mut made = 0;
        for _ in 0..25 {
            log.write(5_000_000_000, || {
                made += 1;
                String::new()
            });
        }
        assert_eq!((made, log.counts()), (10, (10, 15)));
        log.write(6_000_000_000, String::new);
        assert_eq!(log.counts(), (11, 15));
    }
}
