//! Issuers whose keys are fetched from an OpenID Connect provider: when to fetch, and what a fetch changes.
//!
//! Invariants: one fetch per provider at a time; a fetch that fails leaves the keys in use as they are;
//! tokens with unknown keys cause one fetch per [`UNKNOWN_KEY_PAUSE_NS`], however many there are. The lock
//! of a provider is never held during a request or while a key set is parsed.
//! Not here: requests (`server`), the form of documents (`discovery`).

use std::sync::Arc;

use parking_lot::Mutex;

use super::discovery;
use super::keys::KeySet;

const SECOND_NS: u64 = 1_000_000_000;
/// Shortest, longest and usual time between two fetches that succeed. `max-age` of the key set chooses
/// between the bounds.
const REFRESH_S_MIN: u64 = 300;
const REFRESH_S_MAX: u64 = 3600;
const REFRESH_S_DEFAULT: u64 = 600;
/// Pause after the first failure; it doubles with each further one.
const RETRY_S_MIN: u64 = 1;
const RETRY_S_MAX: u64 = 60;
/// Pause between two fetches because of tokens with unknown keys.
const UNKNOWN_KEY_PAUSE_NS: u64 = 30 * SECOND_NS;
/// Characters of an error, which may quote the answer of a provider.
const ERROR_CHARS_MAX: usize = 500;

const _: () = assert!(REFRESH_S_MIN <= REFRESH_S_DEFAULT && REFRESH_S_DEFAULT <= REFRESH_S_MAX);

/// Key set as a provider has sent it.
pub struct FetchedKeys {
    /// JWK set in JSON.
    pub jwks: Vec<u8>,
    /// Time for which it may be kept, by `Cache-Control`.
    pub max_age_s: Option<u64>,
}

/// A fetch of an issuer's keys that is due. Without a call of [`KeyFetch::finish`] it has failed.
pub struct KeyFetch {
    provider: Arc<Provider>,
    is_finished: bool,
}

impl KeyFetch {
    /// Name of the issuer.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.provider.issuer
    }

    /// Address of the document that names the key set.
    #[must_use]
    pub fn document_url(&self) -> String {
        discovery::document_url(&self.provider.issuer)
    }

    /// Returns the address of the key set that `document` names.
    ///
    /// # Errors
    /// The document is none, is of another issuer, or names an address that is not allowed.
    pub fn keys_url(&self, document: &[u8]) -> Result<String, String> {
        discovery::keys_url(&self.provider.issuer, document)
    }

    /// Ends the fetch. Its outcome counts from the next call of `AccessControl::take_fetched_keys`.
    pub fn finish(mut self, fetched: Result<FetchedKeys, String>) {
        self.is_finished = true;
        let parsed = fetched.and_then(|fetched| {
            let keys = Arc::new(KeySet::parse(&fetched.jwks)?);
            Ok(ParsedKeys { keys, fetched })
        });
        self.provider.finish(parsed);
    }
}

impl Drop for KeyFetch {
    fn drop(&mut self) {
        if !self.is_finished {
            self.provider.finish(Err("the fetch was abandoned".to_owned()));
        }
    }
}

/// Outcome of a fetch that differs from the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchReport {
    /// Name of the issuer.
    pub issuer: String,
    /// Number of keys that verify signatures, or the reason why the keys before them stay in use.
    pub keys: Result<usize, String>,
}

/// State of a provider, for metrics.
pub struct ProviderStatus {
    /// Name of the issuer.
    pub issuer: String,
    /// True if the last fetch succeeded.
    pub is_good: bool,
    /// Time of the last fetch that succeeded, ms since 1970; 0 before the first.
    pub fetched_ms: i64,
}

/// Outcomes of fetches.
#[derive(Default)]
pub(in crate::access) struct Fetched {
    /// Outcomes to be logged.
    pub(in crate::access) reports: Vec<FetchReport>,
    /// True if other keys are in use.
    pub(in crate::access) is_changed: bool,
    pub(in crate::access) success_count: u64,
    pub(in crate::access) failure_count: u64,
}

struct ParsedKeys {
    keys: Arc<KeySet>,
    fetched: FetchedKeys,
}

enum Phase {
    /// `may_refetch`: the pause after the last fetch is over, so a token with an unknown key may cause one.
    Idle { may_refetch: bool },
    /// A token names an unknown key.
    Wanted,
    /// Until the outcome is taken.
    Running,
}

struct State {
    phase: Phase,
    /// Outcome of a fetch that has ended.
    outcome: Option<Result<ParsedKeys, String>>,
    /// Keys in use; `None` before the first.
    keys: Option<Arc<KeySet>>,
    /// Text of `keys`.
    jwks: Vec<u8>,
    /// Monotonic times of the last start and of the next one.
    started_ns: u64,
    next_ns: u64,
    /// Failures since the last success.
    failures: u32,
    /// Reason of the last failure, unless a fetch has succeeded since.
    error: Option<String>,
    fetched_ms: i64,
}

/// An issuer whose keys are fetched.
pub(super) struct Provider {
    issuer: String,
    state: Mutex<State>,
}

impl Provider {
    fn new(issuer: &str) -> Provider {
        let state = State {
            phase: Phase::Idle { may_refetch: false },
            outcome: None,
            keys: None,
            jwks: Vec::new(),
            started_ns: 0,
            next_ns: 0,
            failures: 0,
            error: None,
            fetched_ms: 0,
        };
        Provider { issuer: issuer.to_owned(), state: Mutex::new(state) }
    }

    /// Asks for a fetch because of a token whose key is unknown. Returns true if a token may be verified
    /// after the fetch that is due or running, false if the key has to count as wrong.
    pub(super) fn want_keys(&self) -> bool {
        let mut state = self.state.lock();
        if let Phase::Idle { may_refetch: true } = state.phase {
            state.phase = Phase::Wanted;
        }
        state.keys.is_none() || !matches!(state.phase, Phase::Idle { .. })
    }

    /// Begins a fetch if one is due.
    fn begin(self: &Arc<Self>, now_ns: u64) -> Option<KeyFetch> {
        let mut state = self.state.lock();
        let is_due = match state.phase {
            Phase::Idle { .. } => now_ns >= state.next_ns,
            Phase::Wanted => true,
            Phase::Running => return None,
        };
        if !is_due {
            let may_refetch = now_ns >= state.started_ns.saturating_add(UNKNOWN_KEY_PAUSE_NS);
            state.phase = Phase::Idle { may_refetch };
            return None;
        }
        assert!(state.outcome.is_none(), "a fetch begins after the outcome of the one before was taken");
        state.phase = Phase::Running;
        state.started_ns = now_ns;
        Some(KeyFetch { provider: self.clone(), is_finished: false })
    }

    fn finish(&self, outcome: Result<ParsedKeys, String>) {
        let short = |error: String| error.chars().take(ERROR_CHARS_MAX).collect();
        let mut state = self.state.lock();
        debug_assert!(matches!(state.phase, Phase::Running), "a fetch ends once");
        state.outcome = Some(outcome.map_err(short));
    }

    /// Takes the outcome of a fetch, if one has ended.
    fn take(&self, now_ns: u64, now_ms: i64, all: &mut Fetched) {
        let mut state = self.state.lock();
        let Some(outcome) = state.outcome.take() else { return };
        state.phase = Phase::Idle { may_refetch: false };
        let is_news = match &outcome {
            Ok(parsed) => state.error.is_some() || state.jwks != parsed.fetched.jwks,
            Err(error) => state.error.as_ref() != Some(error),
        };
        let keys = outcome.as_ref().map(|parsed| parsed.keys.key_count()).map_err(Clone::clone);
        if is_news {
            all.reports.push(FetchReport { issuer: self.issuer.clone(), keys });
        }
        let pause_s = match outcome {
            Ok(parsed) => {
                all.success_count += 1;
                state.succeed(parsed, now_ms, &mut all.is_changed)
            }
            Err(error) => {
                all.failure_count += 1;
                state.fail(error)
            }
        };
        state.next_ns = now_ns.saturating_add(pause_s * SECOND_NS);
    }

    /// Keys in use; none before the first.
    pub(super) fn keys(&self) -> Arc<KeySet> {
        self.state.lock().keys.clone().unwrap_or_default()
    }

    fn status(&self) -> ProviderStatus {
        let state = self.state.lock();
        let is_good = state.keys.is_some() && state.error.is_none();
        ProviderStatus { issuer: self.issuer.clone(), is_good, fetched_ms: state.fetched_ms }
    }
}

impl State {
    /// Takes keys into use; returns the pause before the next fetch in seconds.
    fn succeed(&mut self, parsed: ParsedKeys, now_ms: i64, is_changed: &mut bool) -> u64 {
        self.failures = 0;
        self.error = None;
        self.fetched_ms = now_ms;
        // The same keys must not make the server forget the tokens that were right.
        if self.keys.is_none() || self.jwks != parsed.fetched.jwks {
            self.keys = Some(parsed.keys);
            self.jwks = parsed.fetched.jwks;
            *is_changed = true;
        }
        refresh_s(parsed.fetched.max_age_s)
    }

    fn fail(&mut self, error: String) -> u64 {
        self.error = Some(error);
        self.failures = self.failures.saturating_add(1);
        let doublings = (self.failures - 1).min(RETRY_S_MAX.ilog2() + 1);
        (RETRY_S_MIN << doublings).min(RETRY_S_MAX)
    }
}

/// Seconds to the next fetch of keys that may be kept for `max_age_s`: a tenth less, so that they are
/// replaced before their time is over.
fn refresh_s(max_age_s: Option<u64>) -> u64 {
    let refresh_s = max_age_s.map_or(REFRESH_S_DEFAULT, |max_age_s| max_age_s - max_age_s / 10);
    refresh_s.clamp(REFRESH_S_MIN, REFRESH_S_MAX)
}

/// All issuers whose keys are fetched, in the order of the access file.
#[derive(Default)]
pub(in crate::access) struct Providers {
    all: Vec<Arc<Provider>>,
}

impl Providers {
    /// Forgets issuers that are not in `issuers` with their keys, and adds those that are new.
    pub(in crate::access) fn set<'a>(&mut self, issuers: impl Iterator<Item = &'a str>) {
        let known = |issuer: &str| self.all.iter().find(|provider| provider.issuer == issuer).cloned();
        let all = issuers.map(|issuer| known(issuer).unwrap_or_else(|| Arc::new(Provider::new(issuer))));
        self.all = all.collect();
    }

    /// Begins the fetches that are due at a monotonic time.
    pub(in crate::access) fn begin_due(&self, now_ns: u64) -> Vec<KeyFetch> {
        self.all.iter().filter_map(|provider| provider.begin(now_ns)).collect()
    }

    /// Takes the outcomes of fetches that have ended.
    pub(in crate::access) fn take(&self, now_ns: u64, now_ms: i64) -> Fetched {
        let mut fetched = Fetched::default();
        self.all.iter().for_each(|provider| provider.take(now_ns, now_ms, &mut fetched));
        fetched
    }

    /// State of each provider.
    pub(in crate::access) fn statuses(&self) -> Vec<ProviderStatus> {
        self.all.iter().map(|provider| provider.status()).collect()
    }

    pub(super) fn get(&self, issuer: &str) -> Option<Arc<Provider>> {
        self.all.iter().find(|provider| provider.issuer == issuer).cloned()
    }
}

#[cfg(test)]
mod tests;
