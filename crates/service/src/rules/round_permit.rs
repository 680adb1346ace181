//! Right of this process to evaluate rounds of rules: without a limit on a server of its own, within a term
//! of the lease in a cluster (ADR 0144).
//!
//! Invariant: a round has one permit from its begin to its end, and has no effect once that is over.
//! Not here: the lease (`cluster::rule_lease`), rounds (`evaluation::rules`).

use std::sync::Arc;

use chronolith_cluster::rule_lease::{RuleLease, Term};
use chronolith_model::TenantId;
use chronolith_model::min_offsets::ReadConsistency;

use crate::access::Identity;
use crate::lifecycle::Lifecycle;

/// Right to evaluate a round.
#[derive(Clone)]
pub enum RoundPermit {
    /// The process has the only store.
    Unlimited,
    /// Another process may evaluate the round after the end of the term.
    Term {
        /// The lease.
        lease: Arc<RuleLease>,
        /// The term in which the round has begun.
        term: Term,
    },
}

/// The term of a round is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease of rules is over, and another process may evaluate this round")]
pub struct TermOver;

impl RoundPermit {
    /// Returns a permit for rounds that begin; `None` while the process cannot write results, or another one
    /// evaluates rules.
    #[must_use]
    pub fn new(lifecycle: &Lifecycle) -> Option<RoundPermit> {
        lifecycle.destination().ok()?;
        match lifecycle.roles.rule_lease() {
            Some(lease) => Some(RoundPermit::Term { lease: lease.clone(), term: lease.term()? }),
            None => lifecycle.roles.roles().is_all().then_some(RoundPermit::Unlimited),
        }
    }

    /// Checks that the round may still have an effect. Sends no request.
    ///
    /// # Errors
    /// [`TermOver`].
    pub(crate) fn check(&self) -> Result<(), TermOver> {
        match self {
            RoundPermit::Unlimited => Ok(()),
            RoundPermit::Term { lease, term } if lease.term() == Some(*term) => Ok(()),
            RoundPermit::Term { .. } => Err(TermOver),
        }
    }

    /// Counts a round that ended without an effect.
    pub(crate) fn note_given_up(&self) {
        if let RoundPermit::Term { lease, .. } = self {
            lease.note_given_up_round();
        }
    }

    /// Identity of the reads and writes of a round: in a cluster, reads see all that was written before.
    pub(crate) fn identity(&self, tenant: &TenantId) -> Identity {
        let identity = Identity::internal(tenant);
        match self {
            RoundPermit::Unlimited => identity,
            RoundPermit::Term { .. } => {
                identity.with_consistency(ReadConsistency { is_strong: true, offsets: None })
            }
        }
    }
}
