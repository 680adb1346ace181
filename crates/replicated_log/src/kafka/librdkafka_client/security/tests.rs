//! Tests of credentials and certificates.

use std::path::PathBuf;

use super::*;

fn env() -> Env {
    let (env, ..) = Env::fake(1_795_132_800_000, 1);
    env.disk.create_dir_all(Path::new("/s")).unwrap();
    env
}

fn file(env: &Env, name: &str, bytes: &[u8]) -> PathBuf {
    let path = PathBuf::from("/s").join(name);
    env.disk.write_atomic(&path, bytes).unwrap();
    path
}

#[test]
fn passwords_reach_the_client_without_a_line_end() {
    let env = env();
    let mut config = ClientConfig::new();
    let password_file = file(&env, "password", b"hunter2\r\n");
    let login = Some(Login::ScramSha256 { user: "alice".to_owned(), password_file });
    let security = Security { tls: Some(TlsFiles::default()), login };
    assert!(apply(&mut config, &env, &security, "gateway").unwrap().is_none());
    assert_eq!(config.get("security.protocol"), Some("sasl_ssl"));
    assert_eq!(config.get("sasl.mechanism"), Some("SCRAM-SHA-256"));
    assert_eq!(config.get("sasl.password"), Some("hunter2"));
}

#[test]
fn tokens_are_read_again() {
    let env = env();
    let mut config = ClientConfig::new();
    let token_file = file(&env, "token", b"first\n");
    let login = Some(Login::OAuthBearer { token_file });
    let security = Security { tls: None, login };
    let token = apply(&mut config, &env, &security, "gateway").unwrap().expect("a file");
    file(&env, "token", b"second\n");
    let read = token.read().unwrap();
    assert_eq!(
        (&*read.token, &*read.principal_name, read.lifetime_ms),
        ("second", "gateway", 1_795_132_860_000)
    );
    file(&env, "token", b"\n");
    assert!(matches!(token.read().map(drop), Err(LogError::File { .. })));
}

/// A name that is not compared would let any certificate of the authority pass.
#[test]
fn a_name_of_servers_is_refused() {
    let tls = TlsFiles { server_name: Some("kafka.example".to_owned()), ..TlsFiles::default() };
    let security = Security { tls: Some(tls), login: None };
    let error = apply(&mut ClientConfig::new(), &env(), &security, "gateway").map(drop).unwrap_err();
    assert!(error.to_string().contains("server_name: expected none"), "{error}");
}

#[test]
fn certificates_that_are_missing_are_found_at_the_start() {
    let tls = TlsFiles { ca_file: Some(PathBuf::from("/s/absent")), ..TlsFiles::default() };
    let security = Security { tls: Some(tls), login: None };
    let error = apply(&mut ClientConfig::new(), &env(), &security, "gateway").map(drop).unwrap_err();
    assert!(matches!(error, LogError::File { .. }), "{error}");
}
