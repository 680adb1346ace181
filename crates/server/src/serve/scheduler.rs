//! Scheduler of rounds of rules and of continuous queries: one thread starts due work, threads of the pool
//! evaluate it.
//!
//! Invariants: work that panics ends alone, and the schedule goes on; a stop interrupts all work before the
//! store is closed.
//! Not here: which work is due (`service::rules::engine`), evaluation (`service::evaluation`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chronolith_rules::notifier::Alert;
use chronolith_rules::round::RoundSettings;
use chronolith_rules::schedule::NS_PER_MS;
use chronolith_service::Service;
use chronolith_service::evaluation::influxql::continuous::{self, DueQueries};
use chronolith_service::evaluation::rules::due_round::DueRound;
use chronolith_service::evaluation::rules::files::load_rule_files;
use chronolith_service::evaluation::rules::{take_due, wait};

use super::error::RunError;
use super::rounds::guarded;
use super::stop::Stop;
use crate::options::ExternalUrl;
use crate::web::Web;

/// Longest wait before the stop and the store are looked at again.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Reads the rule files at the start.
pub(super) fn read_rule_files(web: &Web) -> Result<(), RunError> {
    let limits = web.service.limits_of(&web.service.options.rules.tenant).queries.rules;
    load_rule_files(&web.service, &limits).map_err(RunError::Rules)
}

/// Settings of rounds. Without `--web.external-url`, links have the address that the server listens on.
pub(super) fn settings(web: &Web, address: SocketAddr) -> RoundSettings {
    let labels = web.options.notifier.external_labels.iter();
    let external_labels: BTreeMap<String, String> =
        labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let external_url = web.options.web.external_url.as_ref().map(ExternalUrl::as_str);
    RoundSettings {
        resend_delay_ns: web.service.options.rules.resend_delay_ms.saturating_mul(NS_PER_MS),
        external_labels,
        external_url: external_url.map_or_else(|| format!("http://{address}"), str::to_owned),
    }
}

/// Starts due work until the stop.
pub(super) fn run(web: &Arc<Web>, settings: &RoundSettings, stop: &Stop) {
    let engine = &web.service.rules.engine;
    while !engine.is_stopping() && !stop.wait(Duration::ZERO) {
        guarded(web, "scheduler", || {
            let rounds = take_due(&web.service).into_iter().map(DueWork::Round);
            let queries = continuous::take_due(&web.service).map(DueWork::Queries);
            for due in rounds.chain(queries) {
                start(web, settings, due);
            }
        });
        wait(&web.service, WAIT_MAX);
    }
}

/// Work that has been taken from the schedule.
enum DueWork {
    Round(DueRound),
    Queries(DueQueries),
}

impl DueWork {
    fn run(self, web: &Web, settings: &RoundSettings) {
        match self {
            DueWork::Round(due) => {
                due.run(&web.service, settings, &|alerts: &[Arc<Alert>]| web.notifier().send(alerts));
            }
            DueWork::Queries(due) => due.run(&web.service),
        }
    }

    fn give_up(self, service: &Service) {
        match self {
            DueWork::Round(due) => due.give_up(service),
            DueWork::Queries(due) => due.give_up(service),
        }
    }

    /// Name in the log.
    fn name(&self) -> &'static str {
        match self {
            DueWork::Round(_) => "rules",
            DueWork::Queries(_) => "continuous-queries",
        }
    }
}

/// Work for a thread of the pool. The pool drops it if it cannot start one.
struct Handed {
    web: Arc<Web>,
    due: Option<DueWork>,
}

impl Drop for Handed {
    fn drop(&mut self) {
        if let Some(due) = self.due.take() {
            due.give_up(&self.web.service);
        }
    }
}

/// Runs work on a thread of the pool. Without a thread, the schedule goes on with the next round or run.
fn start(web: &Arc<Web>, settings: &RoundSettings, due: DueWork) {
    let name = due.name();
    let mut handed = Handed { web: web.clone(), due: Some(due) };
    let settings = settings.clone();
    let job = move || {
        let Some(due) = handed.due.take() else { return };
        let web = &handed.web;
        guarded(web, name, || due.run(web, &settings));
    };
    if let Err(error) = web.service.threads.start(Box::new(job)) {
        tracing::error!(%error, work = name, "no thread for due work, it goes on with the next round or run");
    }
}

#[cfg(test)]
mod tests;
