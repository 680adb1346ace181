//! Result of a migration: refused points, and differing counts. The report for people.

use std::fmt::Write as _;

/// Messages that are shown of each kind.
const SHOWN_COUNT: usize = 20;
/// Bytes of a message that are shown.
const SHOWN_BYTES: usize = 500;

/// A count of events, and the messages of the first ones.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(super) count: u64,
    pub(super) first: Vec<String>,
}

impl Findings {
    /// Counts `count` events with one message.
    pub(crate) fn add(&mut self, count: u64, message: impl FnOnce() -> String) {
        self.count += count;
        if count > 0 && self.first.len() < SHOWN_COUNT {
            let mut text = message().replace('\n', "\n    ");
            if let Some((at, _)) = text.char_indices().find(|(at, _)| *at >= SHOWN_BYTES) {
                text.truncate(at);
                text.push_str("...");
            }
            self.first.push(text);
        }
    }

    /// Adds the events of others.
    pub(crate) fn merge(&mut self, others: &Findings) {
        let room = SHOWN_COUNT.saturating_sub(self.first.len());
        self.first.extend(others.first.iter().take(room).cloned());
        self.count += others.count;
    }

    fn show(&self, what: &str, out: &mut String) {
        if self.count > 0 {
            let _ = writeln!(out, "{what}: {}", self.count);
            self.first.iter().for_each(|text| {
                let _ = writeln!(out, "  {text}");
            });
        }
    }
}

/// Report of a migration.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Points (lines) that the target stored, those that were written again included.
    pub(super) stored_points: u64,
    /// Points that were not stored.
    pub(super) refused: Findings,
    /// Points that the retention policy of the target does not keep.
    pub(super) expired_points: u64,
    /// Statements that the target refused.
    pub(super) statements: Findings,
    /// Damage of the source.
    pub(super) damage: Findings,
    /// Counts of points per field of a series that were compared; `None` without a comparison.
    pub(super) compared: Option<u64>,
    pub(super) differences: Findings,
    /// Facts that are no failure.
    pub(super) notes: Vec<String>,
}

impl Report {
    /// Returns true if all of the source is in the target.
    pub(crate) fn is_complete(&self) -> bool {
        let failures = [&self.refused, &self.statements, &self.damage, &self.differences];
        failures.iter().all(|findings| findings.count == 0)
    }

    /// The report for people.
    pub(crate) fn show(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "wrote {} points", self.stored_points);
        self.refused.show("refused points", &mut out);
        if self.expired_points > 0 {
            let _ =
                writeln!(out, "left out: {} points older than their retention policy", self.expired_points);
        }
        self.statements.show("refused statements", &mut out);
        self.damage.show("damage of the source", &mut out);
        match self.compared {
            None => out.push_str("counts were not compared\n"),
            Some(count) if self.differences.count == 0 => {
                let _ = writeln!(out, "compared {count} counts of points per field of a series: all equal");
            }
            Some(count) => {
                let _ = writeln!(out, "compared {count} counts of points per field of a series");
                self.differences.show("differing counts", &mut out);
            }
        }
        self.notes.iter().for_each(|note| {
            let _ = writeln!(out, "note: {note}");
        });
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_failures() {
        let mut report = Report { compared: Some(3), ..Report::default() };
        assert!(report.is_complete());
        assert!(
            report.show().contains("compared 3 counts of points per field of a series: all equal"),
            "{}",
            report.show()
        );
        report.refused.add(2, || "bad".to_owned());
        report.refused.add(0, || "nothing".to_owned());
        report.differences.add(1, || "m f: 1 here, 2 there".to_owned());
        let text = report.show();
        assert!(!report.is_complete() && text.contains("refused points: 2\n  bad\n"), "{text}");
        assert!(!text.contains("nothing") && text.contains("m f: 1 here, 2 there"), "{text}");
    }

    #[test]
    fn only_the_first_messages_are_kept() {
        let mut findings = Findings::default();
        (0..100).for_each(|_| findings.add(1, || "ü".repeat(1000)));
        assert_eq!((findings.count, findings.first.len()), (100, SHOWN_COUNT));
        assert!(findings.first[0].len() < SHOWN_BYTES + 10);
    }
}
