//! Counts of passed, failed and skipped checks, read from the output of cargo and of the kits.
//! Invariants: a command that failed never counts as all passed, whatever it printed.

/// Result of a step.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed_count: u64,
    pub(super) failed_count: u64,
    pub(super) skipped_count: u64,
    /// Sentences for the end of the report.
    pub(super) notes: Vec<String>,
}

impl Tally {
    /// A step that is one check.
    pub(super) fn of_step(passed: bool) -> Tally {
        let failed_count = u64::from(!passed);
        Tally { passed_count: 1 - failed_count, failed_count, ..Tally::default() }
    }

    /// A step that ended before its checks.
    pub(super) fn failed(why: String) -> Tally {
        println!("{why}");
        Tally { failed_count: 1, notes: vec![why], ..Tally::default() }
    }

    /// A step that cannot run on this machine.
    pub(super) fn not_run(why: &str) -> Tally {
        let note = format!("not run: {why}");
        println!("{note}");
        Tally { skipped_count: 1, notes: vec![note], ..Tally::default() }
    }

    /// Sums of the `test result:` lines of cargo.
    pub(super) fn of_cargo_test(text: &str) -> Tally {
        let mut tally = Tally::default();
        for line in text.lines().filter(|line| line.starts_with("test result:")) {
            tally.passed_count += number_before(line, " passed").unwrap_or(0);
            tally.failed_count += number_before(line, " failed").unwrap_or(0);
            tally.skipped_count += number_before(line, " ignored").unwrap_or(0);
        }
        tally
    }

    /// The closing line of a kit.
    pub(super) fn of_kit(text: &str) -> Option<Tally> {
        let line = text.lines().rev().find(|line| line.contains(" passed, "))?;
        let passed_count = number_before(line, " passed")?;
        let failed_count = number_before(line, " failed")?;
        let skipped_count = number_before(line, " skipped").unwrap_or(0);
        Some(Tally { passed_count, failed_count, skipped_count, ..Tally::default() })
    }

    /// Adds a failure when the command failed and no check did: a build error, a crash of the tester.
    pub(super) fn expect_failure_unless(&mut self, success: bool) {
        if !success && self.failed_count == 0 {
            self.failed_count = 1;
            self.notes.push("failed outside of its checks".to_owned());
        }
    }

    pub(super) fn add(&mut self, other: &Tally) {
        self.passed_count += other.passed_count;
        self.failed_count += other.failed_count;
        self.skipped_count += other.skipped_count;
        self.notes.extend(other.notes.iter().cloned());
    }

    /// One word and the counts.
    pub(super) fn verdict(&self) -> String {
        let word = match (self.failed_count, self.passed_count) {
            (0, 0) => "NOT RUN",
            (0, _) => "ok",
            _ => "FAILED",
        };
        format!("{word} ({})", self.closing_line())
    }

    pub(super) fn closing_line(&self) -> String {
        let mut line = format!("{} passed, {} failed", self.passed_count, self.failed_count);
        if self.skipped_count > 0 {
            line.push_str(&format!(", {} skipped", self.skipped_count));
        }
        line
    }
}

/// The number that stands before `word`.
fn number_before(line: &str, word: &str) -> Option<u64> {
    let before = line.get(..line.find(word)?)?;
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::Tally;

    fn counts(tally: &Tally) -> (u64, u64, u64) {
        (tally.passed_count, tally.failed_count, tally.skipped_count)
    }

    #[test]
    fn cargo_results_are_summed() {
        let text = "running 2 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\n\
                    test result: FAILED. 10 passed; 3 failed; 0 ignored; 0 measured\nnote: 7 passed\n";
        assert_eq!(counts(&Tally::of_cargo_test(text)), (12, 3, 1));
    }

    #[test]
    fn the_last_summary_of_a_kit_counts() {
        let text = "round 1 passed, 1 failed\n74 passed, 2 failed\nbye\n";
        assert_eq!(Tally::of_kit(text).map(|t| counts(&t)), Some((74, 2, 0)));
        assert_eq!(Tally::of_kit("Traceback"), None);
        assert_eq!(Tally::of_kit("2 passed, 0 failed, 1 skipped").map(|t| counts(&t)), Some((2, 0, 1)));
    }

    /// A test binary that does not link prints no result; the step must not pass.
    #[test]
    fn a_failed_command_is_a_failure_even_without_failed_checks() {
        let mut tally = Tally::of_cargo_test("test result: ok. 5 passed; 0 failed; 0 ignored\n");
        tally.expect_failure_unless(false);
        assert_eq!(counts(&tally), (5, 1, 0));
        tally.expect_failure_unless(true);
        assert_eq!(counts(&tally), (5, 1, 0));
    }

    #[test]
    fn the_closing_line_names_what_was_skipped_only_when_something_was() {
        assert_eq!(Tally::of_step(true).closing_line(), "1 passed, 0 failed");
        assert_eq!(Tally::not_run("no tool").closing_line(), "0 passed, 0 failed, 1 skipped");
        assert!(Tally::not_run("no tool").verdict().starts_with("NOT RUN"));
    }
}
