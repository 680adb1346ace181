//! Counters of TLS handshakes.

use chronolith_service::counter::Counter;

/// Counters of handshakes, failed ones by reason.
#[derive(Default)]
pub(crate) struct Handshakes {
    done: Counter,
    failed: [Counter; HandshakeFailure::ALL.len()],
}

/// Reason why a connection did not get through its handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeFailure {
    /// The deadline has passed.
    Timeout,
    /// The client does not speak TLS.
    NotTls,
    /// The client has left.
    Closed,
    /// No version, suite, curve or protocol that both have.
    NothingInCommon,
    /// The client's certificate is missing or not accepted.
    ClientCertificate,
    /// The client does not accept the server's certificate or something else, and says so.
    RefusedByClient,
    /// The connection was closed in favour of others.
    Evicted,
    /// Any other violation of the protocol.
    Malformed,
}

impl HandshakeFailure {
    /// All reasons, in order of their numbers.
    const ALL: [HandshakeFailure; 8] = [
        HandshakeFailure::Timeout,
        HandshakeFailure::NotTls,
        HandshakeFailure::Closed,
        HandshakeFailure::NothingInCommon,
        HandshakeFailure::ClientCertificate,
        HandshakeFailure::RefusedByClient,
        HandshakeFailure::Evicted,
        HandshakeFailure::Malformed,
    ];

    /// Value of the label `reason`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            HandshakeFailure::Timeout => "timeout",
            HandshakeFailure::NotTls => "not_tls",
            HandshakeFailure::Closed => "closed",
            HandshakeFailure::NothingInCommon => "nothing_in_common",
            HandshakeFailure::ClientCertificate => "client_certificate",
            HandshakeFailure::RefusedByClient => "refused_by_client",
            HandshakeFailure::Evicted => "evicted",
            HandshakeFailure::Malformed => "malformed",
        }
    }
}

impl Handshakes {
    pub(crate) fn count_done(&self) {
        self.done.add(1);
    }

    pub(crate) fn count_failed(&self, failure: HandshakeFailure) {
        self.failed[failure as usize].add(1);
    }

    pub(crate) fn done_count(&self) -> f64 {
        self.done.as_f64()
    }

    /// Failed handshakes by the name of their reason.
    pub(crate) fn failed_counts(&self) -> impl Iterator<Item = (&'static str, f64)> {
        HandshakeFailure::ALL
            .iter()
            .zip(&self.failed)
            .map(|(reason, counter)| (reason.name(), counter.as_f64()))
    }
}
