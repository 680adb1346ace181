//! Runs the steps of a case on both servers.

use std::io::{Error, Result};

use crate::chooser::Chooser;
use crate::compare::{Difference, Verdict, compare};
use crate::dataset;
use crate::schema::{APART, TIED};
use crate::script;
use crate::server::Pair;
use crate::steps::{Output, Step};

/// Times that InfluxDB is asked again to see if it contradicts itself.
const REPEATS: usize = 6;

/// Difference of a case.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    /// Index of the step.
    pub(crate) step: usize,
    pub(crate) difference: Difference,
    pub(crate) contradicts_itself: bool,
    /// True if a write of the case was refused in part.
    pub(crate) has_refused_write: bool,
    /// True if the answers agree when the series have no points of the same times.
    pub(crate) agrees_apart: bool,
}

/// Both servers and what was counted.
pub(crate) struct Runner {
    pub(crate) pair: Pair,
    pub(crate) statements: usize,
    pub(crate) last_digits: usize,
    /// Statements whose answers differ in last digits only.
    pub(crate) listed: Vec<String>,
}

impl Runner {
    pub(crate) fn new(pair: Pair) -> Runner {
        Runner { pair, statements: 0, last_digits: 0, listed: Vec::new() }
    }

    /// Creates and fills the shared databases.
    pub(crate) fn load(&mut self, chooser: Chooser<'_>) -> Result<()> {
        for (database, _) in dataset::DATABASES {
            self.accept(&statement(format!("DROP DATABASE \"{database}\"")))?;
        }
        for text in dataset::statements() {
            self.accept(&statement(text))?;
        }
        for (database, policies) in dataset::DATABASES {
            for policy in policies {
                self.accept(&Step::write(database, policy, "", dataset::body(chooser)))?;
            }
        }
        Ok(())
    }

    /// Runs a step that both have to accept.
    fn accept(&mut self, step: &Step) -> Result<()> {
        let (ours, theirs) = self.pair.ask(&step.request())?;
        let (ours, theirs) = (ours.text(), theirs.text());
        if ours.contains("error") || theirs.contains("error") {
            return Err(Error::other(format!(
                "{:.300}\n  here: {ours:.600}\n  InfluxDB: {theirs:.600}",
                step.to_string()
            )));
        }
        Ok(())
    }

    /// The first difference of a case.
    pub(crate) fn find(&mut self, steps: &[Step]) -> Result<Option<Finding>> {
        let changes = steps.iter().any(Step::changes);
        if changes {
            for step in script::cleanup() {
                self.pair.ask(&step.request())?;
            }
        }
        let mut has_refused_write = false;
        for (idx, step) in steps.iter().enumerate() {
            let request = step.request();
            let (ours, theirs) = self.pair.ask(&request)?;
            self.statements += usize::from(matches!(step, Step::Query { .. }));
            has_refused_write |= matches!(step, Step::Write { .. }) && ours.status == 400;
            match compare(&ours, &theirs) {
                Verdict::Equal => {}
                Verdict::LastDigits => {
                    self.last_digits += 1;
                    self.listed.push(step.to_string());
                }
                Verdict::Different(difference) => {
                    let mut found = Finding {
                        step: idx,
                        difference,
                        contradicts_itself: false,
                        has_refused_write,
                        agrees_apart: false,
                    };
                    if !changes {
                        for _ in 0..REPEATS {
                            found.contradicts_itself |= self.pair.theirs.connection.ask(&request)? != theirs;
                        }
                        found.agrees_apart = self.agrees_apart(step)?;
                    }
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Returns true if a statement about series with points of the same times has equal answers about series
    /// without.
    fn agrees_apart(&mut self, step: &Step) -> Result<bool> {
        let Step::Query { text, database, output } = step else { return Ok(false) };
        let text = text.to_string();
        let apart = text.replace(TIED, APART);
        if apart == text {
            return Ok(false);
        }
        let step = Step::query(crate::piece::Piece::text(apart), database, output.clone());
        let (ours, theirs) = self.pair.ask(&step.request())?;
        Ok(!matches!(compare(&ours, &theirs), Verdict::Different(_)))
    }
}

pub(crate) fn statement(text: String) -> Step {
    Step::query(crate::piece::Piece::text(text), "", Output::default())
}
