//! The binary from an operator's view: checks of settings, the log, a standard error without a reader.
#![expect(clippy::disallowed_methods, reason = "tests of a real process touch the real world")]

use std::io::Read as _;
use std::process::{Command, Output};

use crate::harness::{SeriesToSend, Server, now_ms, temp_dir};

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
