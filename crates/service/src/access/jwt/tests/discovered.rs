//! Tokens of an issuer whose keys are fetched.

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::ManualClock;

use super::*;
use crate::access::jwt::providers::{FetchReport, FetchedKeys};

/// Access control with an issuer whose keys the test provides.
struct Discovered {
    control: AccessControl,
    env: Env,
    clock: Arc<ManualClock>,
}

impl Discovered {
    fn new() -> Discovered {
        let text = format!(
            "jwt:\n- issuer: {ISSUER}\n  audience: chronolith\nprincipals:\n\
             - name: ops\n  jwt: {{issuer: '{ISSUER}', claims: {{groups: ops}}}}\n  scopes: [read]\n"
        );
        let (env, clock, _) = Env::fake(NOW_S * 1000, 1);
        env.disk.create_dir_all(Path::new("conf")).expect("a folder");
        env.disk.write_atomic(Path::new(FILE), text.as_bytes()).expect("written");
        let options = AccessOptions { file: Some(FILE.into()) };
        let control = AccessControl::new(options, false, &env.rng);
        assert_eq!(
            control.read(&env),
            Ok(true),
            "an issuer that cannot be reached is no reason to refuse a start"
        );
        Discovered { control, env, clock }
    }

    /// Makes the fetches that are due with this outcome; returns their number and the reports.
    fn fetch(&self, jwks: Result<&str, &str>) -> (usize, Vec<FetchReport>) {
        let due = self.control.begin_key_fetches(self.env.clock.mono_ns());
        let count = due.len();
        for fetch in due {
            assert_eq!(fetch.document_url(), format!("{ISSUER}/.well-known/openid-configuration"));
            let keys = |jwks: &str| FetchedKeys { jwks: jwks.as_bytes().to_vec(), max_age_s: None };
            fetch.finish(jwks.map(keys).map_err(str::to_owned));
        }
        (count, self.control.take_fetched_keys(&self.env))
    }

    fn after(&self, seconds: u64) -> &Discovered {
        self.clock.advance(Duration::from_secs(seconds));
        self
    }

    #[track_caller]
    fn check(&self, token: &str, want: Result<&str, LoginError>) {
        // The token outlives the clock of the test.
        let found = self.control.find_jwt(token, NOW_S * 1000);
        let found = found.map(|principal| principal.map(|principal| principal.name().to_owned()));
        assert_eq!(found, want.map(|name| Some(name.to_owned())));
    }
}

fn token(signer: &Signer, id: &str) -> String {
    let algorithm = if id == "p256" { "ES256" } else { "EdDSA" };
    signer.token(algorithm, id, &claims(&[]))
}

#[test]
fn a_token_waits_for_the_first_keys_and_then_logs_in() {
    let signer = Signer::new();
    let server = Discovered::new();
    let valid = token(&signer, "ed");
    server.check(&valid, Err(LoginError::KeysPending));
    let (count, reports) = server.fetch(Err("connection refused"));
    assert_eq!((count, reports.len()), (1, 1));
    server.check(&valid, Err(LoginError::KeysPending));
    let (count, reports) = server.after(1).fetch(Ok(&signer.jwks()));
    assert_eq!((count, &reports[0].keys), (1, &Ok(5)));
    server.check(&valid, Ok("ops"));
    assert_eq!(server.control.jwt_key_count(), 5);
    let metrics = &server.control.metrics;
    assert_eq!((metrics.key_fetches.get(), metrics.key_fetches_failed.get()), (1, 1));
    // A provider that fails later does not end logins.
    let (count, reports) = server.after(600).fetch(Err("connection refused"));
    assert_eq!((count, reports.len()), (1, 1));
    server.check(&valid, Ok("ops"));
    server.check(&token(&signer, "p256"), Ok("ops"));
}

#[test]
fn rotated_keys_are_fetched_at_the_first_token_with_an_unknown_key() {
    let first = Signer::new();
    let server = Discovered::new();
    server.fetch(Ok(&first.jwks()));
    let second = Signer::new();
    let rotated = second.jwks().replace("\"kid\":\"ed\"", "\"kid\":\"ed2\"");
    let valid = second.token("EdDSA", "ed2", &claims(&[]));
    assert_eq!(server.after(29).fetch(Ok(&rotated)).0, 0, "fetched a moment ago");
    server.check(&valid, Err(LoginError::Jwt(Refusal::Key)));
    assert_eq!(server.after(1).fetch(Ok(&rotated)).0, 0, "no token has asked for it");
    server.check(&valid, Err(LoginError::KeysPending));
    let old = token(&first, "ed");
    server.check(&old, Ok("ops"));
    assert_eq!(server.fetch(Ok(&rotated)).0, 1);
    server.check(&valid, Ok("ops"));
    // A remembered token ends with its key.
    server.check(&old, Err(LoginError::Jwt(Refusal::Key)));
}

#[test]
fn a_flood_of_unknown_keys_causes_a_fetch_per_30_s() {
    let signer = Signer::new();
    let server = Discovered::new();
    let jwks = signer.jwks();
    server.fetch(Ok(&jwks));
    let mut fetch_count = 0;
    for second in 0..120 {
        for number in 0..20 {
            let unknown = signer.token(
                "EdDSA",
                &format!("x{second}-{number}"),
                "{\"iss\":\"https://login.example.com\"}",
            );
            assert!(server.control.find_jwt(&unknown, NOW_S * 1000).is_err());
        }
        fetch_count += server.after(1).fetch(Ok(&jwks)).0;
    }
    assert!((3..=4).contains(&fetch_count), "{fetch_count}");
    server.check(&token(&signer, "ed"), Ok("ops"));
}

/// A known key that is named with another algorithm is a forgery, not a rotation.
#[test]
fn a_known_key_with_another_algorithm_causes_no_fetch() {
    let signer = Signer::new();
    let server = Discovered::new();
    server.fetch(Ok(&signer.jwks()));
    assert_eq!(server.after(60).fetch(Err("unused")).0, 0);
    server.check(&signer.token("EdDSA", "rsa", &claims(&[])), Err(LoginError::Jwt(Refusal::Key)));
    assert_eq!(server.fetch(Err("unused")).0, 0);
}
