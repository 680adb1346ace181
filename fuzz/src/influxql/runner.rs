//! Runs the steps of a case on both servers.

use std::io::{Error, Result};
use std::time::Duration;

use crate::cells;
use crate::chooser::Chooser;
use crate::compare::{Difference, ORDER_OF_TIES, Verdict, compare};
use crate::dataset;
use crate::http::Reply;
use crate::json::Json;
use crate::schema::{APART, MEASUREMENTS, TIED};
use crate::script;
use crate::server::Pair;
use crate::steps::{Output, Step};

/// Times that InfluxDB is asked again to see if it contradicts itself.
const REPEATS: usize = 20;
/// Times that a variant is asked before the servers disagree about it.
const AGREEMENT_ATTEMPTS: usize = 10;

/// Time in which InfluxDB stores the other points of a write of which it has refused some.
const REST_OF_WRITE: Duration = Duration::from_millis(20);

/// Difference of a case.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    /// Index of the step.
    pub(crate) step: usize,
    pub(crate) difference: Difference,
    /// Answers of the step, or to the same statement as JSON.
    pub(crate) answers: Answers,
    pub(crate) contradicts_itself: bool,
}

/// Answers of both servers to one step.
#[derive(Debug, Clone)]
pub(crate) struct Answers {
    pub(crate) ours: Json,
    pub(crate) theirs: Json,
    pub(crate) difference: Option<Difference>,
}

impl Answers {
    fn of(ours: &Reply, theirs: &Reply) -> Answers {
        let json = |reply: &Reply| Json::parse_documents(&reply.text()).unwrap_or(Json::Null);
        let difference = match compare(ours, theirs) {
            Verdict::Different(difference) => Some(difference),
            Verdict::Equal | Verdict::LastDigits => None,
        };
        Answers { ours: json(ours), theirs: json(theirs), difference }
    }

    /// Returns true if both have the same rows, one at least; rows of one time may be in another order.
    pub(crate) fn agree(&self) -> bool {
        let same = self.difference.as_ref().is_none_or(|difference| difference.kind == ORDER_OF_TIES);
        same && !cells::all_rows(&self.ours).is_empty()
    }
}

/// Both servers and the counts of cases.
pub(crate) struct Runner {
    pub(crate) pair: Pair,
    /// True if InfluxDB has the index tsi1.
    pub(crate) has_tsi: bool,
    pub(crate) statements: usize,
    pub(crate) last_digits: usize,
    /// Statements whose answers differ in last digits only.
    pub(crate) listed: Vec<String>,
}

impl Runner {
    pub(crate) fn new(pair: Pair, has_tsi: bool) -> Runner {
        Runner { pair, has_tsi, statements: 0, last_digits: 0, listed: Vec::new() }
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
        let changes = self.prepare(steps)?;
        for (idx, step) in steps.iter().enumerate() {
            let request = step.request();
            let (ours, theirs) = self.pair.ask(&request)?;
            if matches!(step, Step::Write { .. }) && theirs.status == 400 {
                // InfluxDB answers with the error of one shard before the others have stored their points.
                std::thread::sleep(REST_OF_WRITE);
            }
            self.statements += usize::from(matches!(step, Step::Query { .. }));
            match compare(&ours, &theirs) {
                Verdict::Equal => {}
                Verdict::LastDigits => {
                    self.last_digits += 1;
                    self.listed.push(step.to_string());
                }
                Verdict::Different(difference) => {
                    let answers = Answers::of(&ours, &theirs);
                    let mut found = Finding { step: idx, difference, answers, contradicts_itself: false };
                    if !changes {
                        for _ in 0..REPEATS {
                            found.contradicts_itself |= self.pair.theirs.ask(&request)? != theirs;
                        }
                        self.look_at_json(step, &mut found)?;
                    }
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Takes the difference of the answers as JSON instead, if there is one: the form is not its cause then.
    fn look_at_json(&mut self, step: &Step, found: &mut Finding) -> Result<()> {
        let plain = step.plain();
        if plain.request() != step.request() {
            let (ours, theirs) = self.pair.ask(&plain.request())?;
            let answers = Answers::of(&ours, &theirs);
            if let Some(difference) = &answers.difference {
                (found.difference, found.answers) = (difference.clone(), answers);
            }
        }
        Ok(())
    }

    /// Brings both servers to the state before a case; true if its steps change something.
    fn prepare(&mut self, steps: &[Step]) -> Result<bool> {
        let changes = steps.iter().any(Step::changes);
        if changes {
            for step in script::cleanup() {
                self.pair.ask(&step.request())?;
            }
        }
        Ok(changes)
    }

    /// Runs a case and returns the answers to its last step, as JSON.
    pub(crate) fn answers(&mut self, steps: &[Step]) -> Result<Answers> {
        self.prepare(steps)?;
        let (last, before) = steps.split_last().ok_or_else(|| Error::other("a case without steps"))?;
        for step in before {
            self.pair.ask(&step.request())?;
        }
        let (ours, theirs) = self.pair.ask(&last.plain().request())?;
        Ok(Answers::of(&ours, &theirs))
    }

    /// Returns true if both agree about the rows of a case; series with points of the same times may be
    /// replaced by those without.
    pub(crate) fn agree(&mut self, steps: &[Step]) -> Result<bool> {
        // InfluxDB loses rows of streams at times.
        for _ in 0..AGREEMENT_ATTEMPTS {
            if self.answers(steps)?.agree() {
                return Ok(true);
            }
        }
        match apart(steps) {
            Some(steps) => Ok(self.answers(&steps)?.agree()),
            None => Ok(false),
        }
    }

    /// Returns true if each step of a case is answered in the same way.
    pub(crate) fn agree_throughout(&mut self, steps: &[Step]) -> Result<bool> {
        Ok(self.find_uncounted(steps)?.is_none())
    }

    /// The first difference of a variant, whose statements do not count.
    pub(crate) fn find_uncounted(&mut self, steps: &[Step]) -> Result<Option<Finding>> {
        let counted = (self.statements, self.last_digits, self.listed.len());
        let found = self.find(steps)?;
        (self.statements, self.last_digits) = (counted.0, counted.1);
        self.listed.truncate(counted.2);
        Ok(found)
    }

    /// Returns the steps whose writes are refused here, if each line is written by itself.
    pub(crate) fn refused(&mut self, steps: &[Step]) -> Result<Vec<bool>> {
        self.prepare(steps)?;
        let mut out = Vec::with_capacity(steps.len());
        for step in steps {
            let (ours, _) = self.pair.ask(&step.request())?;
            out.push(matches!(step, Step::Write { .. }) && ours.status != 204);
        }
        Ok(out)
    }
}

/// The case with its last statement about series without points of the same times, if it is about others.
pub(crate) fn apart(steps: &[Step]) -> Option<Vec<Step>> {
    let (Step::Query { text, .. }, before) = steps.split_last()? else { return None };
    let text = text.to_string();
    let all: Vec<&str> = MEASUREMENTS.iter().map(|measurement| measurement.name).collect();
    let other = text
        .replace(" FROM /./", &format!(" FROM {}", all.join(", ")))
        .replace(&format!(" /^{}/", &TIED[..1]), &format!(" {APART}"))
        .replace(TIED, APART);
    let step = steps.last()?.with_text(&other);
    (other != text).then(|| before.iter().cloned().chain([step]).collect())
}

pub(crate) fn statement(text: String) -> Step {
    Step::query(crate::piece::Piece::text(text), "", Output::default())
}
