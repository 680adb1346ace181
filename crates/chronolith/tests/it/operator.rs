//! The binary from an operator's view: checks of settings, the log, a standard error without a reader.
#![expect(clippy::disallowed_methods, reason = "tests of a real process touch the real world")]

use std::io::Read as _;
use std::process::{Command, Output};

use crate::harness::{SeriesToSend, Server, encode_request, now_ms, temp_dir};

const NO_SCRAPE: [&str; 2] = ["--self-scrape", "off"];

fn check_config(yaml: &str, variable: (&str, &str)) -> Output {
    let dir = temp_dir();
    let path = dir.path().join("chronolith.yml");
    std::fs::write(&path, yaml).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronolith"));
    command.args(["serve", "--check-config", "--config"]).arg(&path).env(variable.0, variable.1);
    command.output().expect("chronolith runs")
}

#[test]
fn check_config_says_what_a_start_would_say() {
    let good = check_config("limits:\n  series_max: 5\n", ("CHRONOLITH_RETENTOIN", "5d"));
    let said = String::from_utf8_lossy(&good.stderr).into_owned();
    assert_eq!(
        (good.status.code(), good.stdout.as_slice()),
        (Some(0), b"configuration is valid\n".as_slice())
    );
    assert!(said.contains("CHRONOLITH_RETENTOIN") && said.contains("\"series-limit\""), "{said}");
    let bad = check_config("query.timeout: 1m\nquery.timeout: 2m\n", ("CHRONOLITH_RETENTION", "5d"));
    let said = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert_eq!(bad.status.code(), Some(1));
    assert!(said.contains("chronolith.yml:2: \"query.timeout\" is set twice"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// A start read these files, and `--check-config` called a configuration valid that could not start.
#[test]
fn check_config_reads_the_files_of_access_control() {
    let dir = temp_dir();
    let access = dir.path().join("access.yml");
    let web = dir.path().join("web.yml");
    let config = format!("access.file: {}\nweb.config.file: {}\n", access.display(), web.display());
    let hash = "0".repeat(64);
    let principal = format!("principals:\n- {{name: a, token_sha256: '{hash}', scopes: [read]}}\n");
    let bad = principal.replace("[read]", "[reed]");
    for (access_text, web_text, want) in [
        (&principal, "", None),
        (&bad, "", Some("access.yml: line 2, column 3: principal \"a\": `scopes`: \"reed\"")),
        (&principal, "tls: {}\n", Some("web.yml")),
    ] {
        std::fs::write(&access, access_text).expect("a file");
        std::fs::write(&web, web_text).expect("a file");
        let output = check_config(&config, ("CHRONOLITH_RETENTION", "5d"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(i32::from(want.is_some())), "{said}");
        assert!(want.is_none_or(|want| said.contains(want)), "{said}");
    }
}

/// Sends a sample a day ahead, which is refused.
fn send_refused(server: &Server) {
    let samples = [(now_ms() + 86_400_000, 1.0)];
    let answer = server.write(&[SeriesToSend { labels: &[("__name__", "refused")], samples: &samples }]);
    assert_eq!(answer.status, 400, "{}", answer.text());
}

/// The first line for a closed standard error was a panic: exit code 101.
#[test]
fn a_closed_standard_error_ends_nothing() {
    let dir = temp_dir();
    let mut server = Server::start(dir.path(), &["--self-scrape", "off", "--log.level", "debug"]);
    drop(server.child.stderr.take());
    send_refused(&server);
    assert_eq!(server.request("GET", "/-/healthy", &[], b"").status, 200);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_log_of_json_has_the_address_of_a_refused_sender() {
    let dir = temp_dir();
    let mut server =
        Server::start(dir.path(), &[NO_SCRAPE[0], NO_SCRAPE[1], "--log-format=json", "--log.access"]);
    send_refused(&server);
    let mut stderr = server.child.stderr.take().expect("stderr");
    assert_eq!(server.stop(), Some(0));
    let mut text = String::new();
    stderr.read_to_string(&mut text).expect("text");
    for line in text.lines() {
        assert!(line.starts_with("{\"time\":\"") && line.ends_with('}'), "{line}");
    }
    let line = text.lines().find(|line| line.contains("\"msg\":\"samples rejected\"")).expect("a line");
    for part in [
        "\"reason\":\"out_of_bounds\"",
        "\"series\":\"refused\"",
        "\"remote\":\"127.0.0.1:",
        "\"level\":\"WARN\"",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    let access = text.lines().find(|line| line.contains("\"path\":\"/api/v1/write\"")).expect("a line");
    assert!(access.contains("\"source\":\"access\"") && access.contains("\"status\":400"), "{access}");
}

fn delete_tenant(server: &Server, flags: &[&str]) -> Output {
    let url = format!("http://127.0.0.1:{}", server.port);
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronolith"));
    command.args(["tenants", "delete", &url, "a"]).args(flags).output().expect("chronolith runs")
}

#[test]
fn the_tool_deletes_one_tenant_once_that_is_confirmed() {
    let dir = temp_dir();
    let access = dir.path().join("access.yml");
    let token = dir.path().join("token");
    let hash: String =
        chronolith_server::hash_of_token("ops-token").iter().map(|byte| format!("{byte:02x}")).collect();
    let principal =
        format!("{{name: ops, token_sha256: '{hash}', tenants: '*', scopes: [read, write, admin]}}");
    std::fs::write(&access, format!("principals:\n- {principal}\n")).expect("a file");
    std::fs::write(&token, "ops-token\n").expect("a file");
    let (access, token) = (access.to_str().expect("UTF-8"), token.to_str().expect("UTF-8"));
    let flags = ["--multitenancy", "--self-scrape", "off", "--web.enable-admin-api", "--access.file", access];
    let server = Server::start(&dir.path().join("data"), &flags);
    let now = now_ms();
    for tenant in ["a", "b"] {
        let samples = [(now, 1.0)];
        let body = encode_request(&[SeriesToSend { labels: &[("__name__", "m")], samples: &samples }]);
        let id = format!("X-Scope-OrgID: {tenant}");
        let login = "Authorization: Bearer ops-token";
        let headers = ["Content-Type: application/x-protobuf", "Content-Encoding: snappy", login, &*id];
        assert_eq!(server.request("POST", "/api/v1/push", &headers, &body).status, 204);
    }
    let has_sample = |tenant: &str| {
        let path = format!("/api/v1/query?query=m&time={}", now as f64 / 1000.0);
        let headers = ["Authorization: Bearer ops-token", &*format!("X-Scope-OrgID: {tenant}")];
        server.request("GET", &path, &headers, b"").text().contains("__name__")
    };
    for (flags, code, want) in [
        (&["--token-file", token][..], 2, "--yes"),
        (&["--yes"], 1, "the server answered 401"),
        (&["--yes", "--token", "other"], 1, "the server answered 401"),
    ] {
        let output = delete_tenant(&server, flags);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(want) && has_sample("a"), "{said}");
    }
    let output = delete_tenant(&server, &["--yes", "--token-file", token]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.starts_with("tenant \"a\" is deleted: 1 samples of the head"), "{said}");
    assert!(!has_sample("a") && has_sample("b"));
}
