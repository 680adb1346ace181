//! `chronolith tenants delete`: deletes a tenant of a running server with all of its data, and waits for the
//! end.
//!
//! Invariants: nothing is asked of the server without `--yes`; 0 means that the deletion is done (with
//! `--no-wait`, that it is durable and goes on), 1 that it failed or was refused, 2 that `--yes` is missing.
//! Not here: the deletion (`tsdb`), HTTP (`client`).

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_model::TenantId;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;

use crate::args::value;
use crate::progress::{Bar, WithoutTerminal};
use crate::query::print;
use crate::{client, credentials, log};

/// Time between two questions for the state.
const POLL_PAUSE: Duration = Duration::from_millis(500);

pub(super) fn command() -> Command {
    let delete = Command::new("delete")
        .about("Delete a tenant with its samples, blocks, databases, rules and metadata; needs --web.enable-admin-api")
        .arg(Arg::new("url").required(true).value_name("URL").help("Such as http://127.0.0.1:9595"))
        .arg(Arg::new("tenant").required(true).value_name("TENANT").help("Id of the tenant"))
        .arg(Arg::new("yes").long("yes").action(ArgAction::SetTrue).help("Delete; without it nothing is"))
        .arg(
            Arg::new("no-wait")
                .long("no-wait")
                .action(ArgAction::SetTrue)
                .help("Return once the deletion has begun; the server ends it, also after a crash"),
        );
    credentials::add_arguments(delete)
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let url = value(matches, "url").unwrap_or_default();
    let tenant = TenantId::new(value(matches, "tenant").unwrap_or_default()).context("TENANT")?;
    if !matches.get_flag("yes") {
        log::print(&format!(
            "chronolith: nothing is deleted: --yes deletes all data of tenant {:?} for ever",
            tenant.as_str()
        ));
        return Ok(ExitCode::from(2));
    }
    let authorization = credentials::authorization(matches)?;
    let deletion = Deletion { url, tenant, authorization: authorization.as_deref() };
    let begun = deletion.begin()?;
    if matches.get_flag("no-wait") {
        print(&format!("the deletion of tenant {:?} has begun\n", deletion.tenant.as_str()));
        return Ok(ExitCode::SUCCESS);
    }
    let done = deletion.wait(&Env::real(), begun)?;
    print(&format!("tenant {:?} is deleted: {}\n", deletion.tenant.as_str(), counts(&done)));
    Ok(ExitCode::SUCCESS)
}

/// Request to a path below a URL, with headers.
type Request = fn(&str, &str, &[(&str, &str)]) -> anyhow::Result<client::Answer>;

/// Deletion of one tenant of a server.
struct Deletion<'a> {
    url: &'a str,
    tenant: TenantId,
    authorization: Option<&'a str>,
}

impl Deletion<'_> {
    /// Begins the deletion; returns its state.
    fn begin(&self) -> anyhow::Result<Value> {
        self.exchange(client::delete)
    }

    /// Asks for the state until the deletion is over; returns the last state.
    fn wait(&self, env: &Env, begun: Value) -> anyhow::Result<Value> {
        let mut bar = Bar::new(env, WithoutTerminal::Log);
        let mut state = begun;
        while state["state"] == "deleting" {
            let progress = &state["progress"];
            if let Some(error) = progress["error"].as_str() {
                bar.clear();
                anyhow::bail!("the last attempt failed, the server tries again: {error}");
            }
            let step = progress["step"].as_str().unwrap_or("").to_owned();
            bar.draw(|seconds| format!("{step}: {}, {seconds} s", counts(&state)));
            env.clock.sleep(POLL_PAUSE);
            state = self.exchange(client::get)?;
        }
        bar.clear();
        Ok(state)
    }

    fn exchange(&self, send: Request) -> anyhow::Result<Value> {
        let path = format!("/api/v1/admin/tenants/{}", self.tenant.as_str());
        let headers: Vec<_> = self.authorization.iter().map(|value| ("Authorization", *value)).collect();
        send(self.url, &path, &headers)?.data()
    }
}

/// Removed parts as text.
fn counts(state: &Value) -> String {
    let count = |name: &str| state["progress"][name].as_u64().unwrap_or(0);
    format!(
        "{} samples of the head, {} blocks, {} objects of the bucket",
        count("headSamples"),
        count("blocks"),
        count("bucketObjects")
    )
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Serves `answers` in turn; returns the outcome of the deletion, and the requests.
    fn exchange(answers: &[(&str, &str)]) -> (anyhow::Result<Value>, Vec<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = listener.local_addr().unwrap().to_string();
        let serve = || {
            answers
                .iter()
                .map(|(status, body)| {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut request = Vec::new();
                    let mut byte = [0];
                    while !request.ends_with(b"\r\n\r\n") {
                        stream.read_exact(&mut byte).unwrap();
                        request.push(byte[0]);
                    }
                    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
                    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
                    String::from_utf8(request).unwrap()
                })
                .collect()
        };
        std::thread::scope(|scope| {
            let requests = scope.spawn(serve);
            let tenant = TenantId::new("team-a").unwrap();
            let deletion = Deletion { url: &url, tenant, authorization: Some("Bearer secret-1") };
            let (env, _clock, _disk) = Env::fake(0, 1);
            let outcome = deletion.begin().and_then(|begun| deletion.wait(&env, begun));
            (outcome, requests.join().unwrap())
        })
    }

    fn state(state: &str, error: &str) -> String {
        let progress =
            format!(r#"{{"step":"blocks","blocks":2,"headSamples":9,"bucketObjects":0,"error":{error}}}"#);
        format!(r#"{{"status":"success","data":{{"state":"{state}","stored":true,"progress":{progress}}}}}"#)
    }

    #[test]
    fn the_state_is_asked_for_until_the_tenant_is_deleted() {
        let (deleting, deleted) = (state("deleting", "null"), state("deleted", "null"));
        let (outcome, requests) =
            exchange(&[("202 Accepted", deleting.as_str()), ("200 OK", &deleting), ("200 OK", &deleted)]);
        assert_eq!(counts(&outcome.unwrap()), "9 samples of the head, 2 blocks, 0 objects of the bucket");
        let lines: Vec<&str> = requests.iter().filter_map(|request| request.lines().next()).collect();
        let path = "/api/v1/admin/tenants/team-a HTTP/1.1";
        assert_eq!(lines, [format!("DELETE {path}"), format!("GET {path}"), format!("GET {path}")]);
        assert!(requests.iter().all(|request| request.contains("uthorization: Bearer secret-1\r\n")));
    }

    #[test]
    fn a_refusal_and_a_failed_attempt_are_errors() {
        let refused = r#"{"status":"error","errorType":"forbidden","error":"not yours"}"#;
        let (outcome, _) = exchange(&[("403 Forbidden", refused)]);
        assert_eq!(outcome.unwrap_err().to_string(), "the server answered 403: not yours");
        let failed = state("deleting", r#""disk full""#);
        let (outcome, _) = exchange(&[("202 Accepted", failed.as_str())]);
        assert!(outcome.unwrap_err().to_string().contains("tries again: disk full"));
        let (outcome, _) = exchange(&[("404 Not Found", "no such page")]);
        assert!(outcome.unwrap_err().to_string().contains("404"));
    }
}
