//! Lease of the rules of a cluster: taken, renewed and given back, with the states of groups in the bucket.
//!
//! Invariants: rounds of a term begin after the states of the term before have been read; a process without
//! the lease shows its groups without state.
//! Not here: the lease itself (`cluster::rule_lease`), its thread (`server`), permits of rounds
//! (`rules::round_permit`).

use chronolith_cluster::rule_lease::{RuleLease, StatesError, StoreStatesError, Term};

use super::environment::now_ns;
use crate::rules::leased_states::LeasedStates;
use crate::service::Service;

/// Takes or renews the lease, takes the states of the term before over, and stores changed ones. To be called
/// every [`RuleLease::refresh_pause`] by one thread; blocks it. Without effect on a server without a lease.
///
/// # Errors
/// The text for the log; the next call repeats the work.
pub fn keep(service: &Service) -> Result<(), String> {
    let rules = &service.rules;
    let Some((lease, states)) = service.lifecycle.roles.rule_lease().zip(rules.leased_states.as_ref()) else {
        return Ok(());
    };
    let had_term = states.has_term();
    let refreshed = lease.refresh();
    match (&refreshed, lease.term()) {
        (_, Some(term)) => store_changed(service, lease, states, term, Due::AfterPause)?,
        (Ok(Some(term)), None) => take_over(service, lease, states, *term)?,
        (_, None) if had_term => {
            tracing::warn!("the lease of rules is over, another process may evaluate them");
            states.end_term();
            rules.engine.begin_again(now_ns(service));
        }
        (_, None) => {}
    }
    refreshed.map(drop).map_err(|error| format!("renewing the lease of rules failed: {error}"))
}

/// Stores states and gives the lease back, once rounds have ended. Blocks the thread.
pub fn end(service: &Service) {
    let Some((lease, states)) =
        service.lifecycle.roles.rule_lease().zip(service.rules.leased_states.as_ref())
    else {
        return;
    };
    let stored = lease.term().map_or(Ok(()), |term| store_changed(service, lease, states, term, Due::AtOnce));
    let released = lease.release().map_err(|error| format!("giving the lease of rules back failed: {error}"));
    for error in [stored, released].into_iter().filter_map(Result::err) {
        tracing::warn!(error, "another process takes rules over once the lease is over");
    }
}

/// Begins a term with the states that the one before has left.
fn take_over(service: &Service, lease: &RuleLease, states: &LeasedStates, term: Term) -> Result<(), String> {
    let engine = &service.rules.engine;
    let files = match lease.read_states() {
        Ok(files) => files,
        Err(StatesError::Damaged { key, error }) => {
            engine.counters.damaged_states.add(1);
            tracing::error!(key, %error, "states of rule groups not used, all groups start without state");
            Vec::new()
        }
        Err(error) => return Err(format!("reading the states of rule groups failed: {error}")),
    };
    tracing::info!(term = term.number(), groups = files.len(), "this process evaluates rules");
    states.replace(files);
    engine.begin_again(now_ns(service));
    lease.begin(term);
    engine.wake();
    Ok(())
}

/// Time of a store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    AtOnce,
    AfterPause,
}

fn store_changed(
    service: &Service,
    lease: &RuleLease,
    states: &LeasedStates,
    term: Term,
    due: Due,
) -> Result<(), String> {
    let pause_ns = match due {
        Due::AtOnce => 0,
        Due::AfterPause => u64::try_from(lease.store_pause().as_nanos()).unwrap_or(u64::MAX),
    };
    let Some(files) = states.take_changed(service.env.clock.mono_ns(), pause_ns) else { return Ok(()) };
    let stored = lease.store_states(term, files.iter());
    stored.map_err(|error: StoreStatesError| {
        states.note_not_stored();
        service.rules.engine.counters.state_write_failures.add(1);
        format!("storing the states of rule groups failed: {error}")
    })
}
