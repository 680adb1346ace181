//! Times of fetches, by a clock that the test sets.

use super::*;

const KEYS: [&str; 2] = [
    r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#,
    r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"b","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#,
];

fn providers() -> Providers {
    let mut providers = Providers::default();
    providers.set(["https://a"].into_iter());
    providers
}

fn fetched(jwks: &str, max_age_s: Option<u64>) -> Result<FetchedKeys, String> {
    Ok(FetchedKeys { jwks: jwks.as_bytes().to_vec(), max_age_s })
}

/// Makes the fetch that is due at `now_s` with this outcome; returns what it changes.
#[track_caller]
fn run(providers: &Providers, now_s: u64, outcome: Result<FetchedKeys, String>) -> Fetched {
    let mut due = providers.begin_due(now_s * SECOND_NS);
    assert_eq!(due.len(), 1, "no fetch is due at {now_s} s");
    due.remove(0).finish(outcome);
    providers.take(now_s * SECOND_NS, now_s as i64 * 1000)
}

/// Returns the first second from `now_s` at which a fetch is due, and abandons it.
fn next_s(providers: &Providers, now_s: u64) -> u64 {
    (now_s..).find(|second| !providers.begin_due(second * SECOND_NS).is_empty()).expect("unbounded")
}

#[test]
fn keys_are_fetched_again_before_their_time_is_over() {
    for (max_age_s, want) in
        [(None, 600), (Some(0), 300), (Some(1000), 900), (Some(3600), 3240), (Some(u64::MAX), 3600)]
    {
        let providers = providers();
        run(&providers, 10, fetched(KEYS[0], max_age_s));
        assert_eq!(next_s(&providers, 10), 10 + want, "{max_age_s:?}");
    }
}

#[test]
fn failures_are_retried_ever_more_seldom_and_reported_once() {
    let providers = providers();
    let mut now_s = 0;
    for want in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
        let outcome = run(&providers, now_s, Err("refused".to_owned()));
        assert_eq!((outcome.reports.len(), outcome.failure_count), (usize::from(now_s == 0), 1));
        let due_s = (now_s..).find(|second| {
            let state = providers.all[0].state.lock();
            second * SECOND_NS >= state.next_ns
        });
        assert_eq!(due_s, Some(now_s + want));
        now_s += want;
    }
    let recovered = run(&providers, now_s, fetched(KEYS[0], None));
    assert_eq!(recovered.reports, [FetchReport { issuer: "https://a".to_owned(), keys: Ok(1) }]);
    let status = &providers.statuses()[0];
    assert_eq!((status.is_good, status.fetched_ms), (true, now_s as i64 * 1000));
}

#[test]
fn a_failure_leaves_the_keys_in_use_and_an_equal_key_set_changes_nothing() {
    let providers = providers();
    assert!(run(&providers, 0, fetched(KEYS[0], None)).is_changed);
    let same = run(&providers, 600, fetched(KEYS[0], None));
    assert!(!same.is_changed && same.reports.is_empty() && same.success_count == 1);
    for broken in
        [fetched("{}", None), fetched("", None), fetched(r#"{"keys":[]}"#, None), Err("x".to_owned())]
    {
        let now_s = providers.all[0].state.lock().next_ns / SECOND_NS;
        let outcome = run(&providers, now_s, broken);
        assert!(!outcome.is_changed && outcome.failure_count == 1);
        assert!(providers.all[0].keys().has_key(Some("a")) && !providers.statuses()[0].is_good);
    }
    let now_s = providers.all[0].state.lock().next_ns / SECOND_NS;
    assert!(run(&providers, now_s, fetched(KEYS[1], None)).is_changed);
    assert!(providers.all[0].keys().has_key(Some("b")) && !providers.all[0].keys().has_key(Some("a")));
}

/// Covers a fetch whose task ends without an outcome, as at a stop or after a panic: it would have been the
/// last one.
#[test]
fn an_abandoned_fetch_has_failed() {
    let providers = providers();
    let due = providers.begin_due(0);
    assert!(providers.begin_due(SECOND_NS).is_empty(), "one at a time");
    drop(due);
    let outcome = providers.take(0, 0);
    assert_eq!(outcome.reports[0].keys, Err("the fetch was abandoned".to_owned()));
    assert_eq!(next_s(&providers, 0), 1);
}

#[test]
fn a_long_error_is_cut() {
    let providers = providers();
    let outcome = run(&providers, 0, Err("ä".repeat(1 << 20)));
    let error = outcome.reports[0].keys.as_ref().expect_err("failed");
    assert_eq!(error.chars().count(), ERROR_CHARS_MAX);
}

#[test]
fn a_provider_keeps_its_keys_while_the_access_file_names_it() {
    let mut providers = providers();
    run(&providers, 0, fetched(KEYS[0], None));
    providers.set(["https://b", "https://a"].into_iter());
    assert_eq!(providers.get("https://a").map(|provider| provider.keys().key_count()), Some(1));
    providers.set(["https://b"].into_iter());
    providers.set(["https://a"].into_iter());
    assert_eq!(providers.get("https://a").map(|provider| provider.keys().key_count()), Some(0));
}
