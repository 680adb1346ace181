//! `chronolith import graphite-events`: sends the events of graphite-web, as its `/events/get_data` lists
//! them, to a running server.
//!
//! Invariants: an event that the server has is not sent again: equal events of the list are compared with
//! the server's events by their number; every event that was sent is looked up at the end. Several requests
//! are sent at a time; events of one second are sent one after the other, as a list has them by their id.
//! Not here: the list and its flags (`graphite_json`).

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, ensure};
use chronolith_base::Env;
use chronolith_base::hash::HashMap;
use clap::{Arg, ArgMatches, Command};
use serde::Serialize;
use serde_json::Value;

use super::graphite_json::{self, LeftOut};
use super::server::{Body, Repeat, TargetServer};
use crate::client;
use crate::progress::{Bar, WithoutTerminal, cells};
use crate::query::print;

/// Latest time of an event in seconds: the end of the year 9999.
const WHEN_MAX_S: f64 = 253_402_300_799.0;
/// End of a range that has all events that a server may have; times of fewer digits may be read as dates.
const UNTIL: &str = "253402300799";

/// Requests at a time unless the flags say otherwise.
const CONCURRENCY_DEFAULT: u64 = 8;
/// Seconds with events between two looks at the progress.
const PART_SECONDS: usize = 500;

pub(super) fn command() -> Command {
    graphite_json::command(
        "graphite-events",
        "Send the events of graphite-web, as /events/get_data lists them, to a running server",
    )
    .arg(
        Arg::new("concurrency")
            .long("concurrency")
            .value_name("COUNT")
            .value_parser(clap::value_parser!(u64).range(1..=64))
            .help("Requests at a time, default 8"),
    )
}

/// An event without its number, which servers give.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
struct Event {
    #[serde(rename = "when")]
    when_s: i64,
    what: String,
    tags: Vec<String>,
    data: String,
}

impl Event {
    /// Reads an entry of a list.
    ///
    /// # Errors
    /// The reason why the entry is no event.
    fn parse(entry: &Value) -> Result<Event, String> {
        let fields = entry.as_object().ok_or("the entry is not an object")?;
        let when = fields.get("when").filter(|when| !when.is_null()).ok_or("\"when\" is missing")?;
        let when = when.as_f64().ok_or_else(|| format!("\"when\" is not a number of seconds: {when}"))?;
        if !(0.0..=WHEN_MAX_S).contains(&when) {
            return Err(format!("\"when\" is not a time from 1970 to 9999: {when}"));
        }
        let text = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => Some(other.to_string()),
        };
        let what = text("what").ok_or("\"what\" is missing")?;
        let tags = match fields.get("tags") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(text)) => words(text).collect(),
            Some(Value::Array(list)) => {
                let texts: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
                let texts = texts.ok_or("\"tags\" is not a list of strings")?;
                texts.into_iter().flat_map(words).collect()
            }
            Some(_) => return Err("\"tags\" is neither a list nor a string".to_owned()),
        };
        Ok(Event { when_s: when.floor() as i64, what, tags, data: text("data").unwrap_or_default() })
    }
}

/// Tags of a text, as the server divides it.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_whitespace().map(str::to_owned)
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let env = Env::real();
    let entries = graphite_json::entries(&env, matches)?;
    let mut left_out = LeftOut::default();
    let mut events = Vec::new();
    for (idx, entry) in entries.iter().enumerate() {
        match Event::parse(entry) {
            Ok(event) => events.push((idx, event)),
            Err(reason) => left_out.push(idx, &reason),
        }
    }
    drop(entries);
    if matches.get_flag("dry-run") {
        print(&format!("{} events\n{}", events.len(), left_out.show()));
        return Ok(left_out.exit_code());
    }
    let target = graphite_json::target(&env, matches)?;
    let concurrency = matches.get_one::<u64>("concurrency").copied().unwrap_or(CONCURRENCY_DEFAULT);
    let counts = send(&target, &events, usize::try_from(concurrency)?, &mut left_out)?;
    print(&format!("{} events imported, {} were there already\n", counts.sent, counts.present));
    print(&left_out.show());
    Ok(left_out.exit_code())
}

/// Events by outcome.
struct Counts {
    sent: u64,
    present: u64,
}

/// An event with its index in the list.
type Entry = (usize, Event);

fn send(
    target: &TargetServer,
    events: &[Entry],
    concurrency: usize,
    left_out: &mut LeftOut,
) -> anyhow::Result<Counts> {
    let mut stored = stored(target)?;
    let mut counts = Counts { sent: 0, present: 0 };
    let mut missing: BTreeMap<i64, Vec<&Entry>> = BTreeMap::new();
    for entry in events {
        let event = &entry.1;
        match stored.get_mut(event).filter(|count| **count > 0) {
            Some(count) => {
                *count -= 1;
                counts.present += 1;
            }
            None => missing.entry(event.when_s).or_default().push(entry),
        }
    }
    let seconds: Vec<Vec<&Entry>> = missing.into_values().collect();
    let sent = send_missing(target, &seconds, concurrency, left_out)?;
    // A tenant has a limited number of events; the earliest ones go.
    let mut stored = self::stored(target)?;
    for (idx, event) in sent {
        match stored.get_mut(event).filter(|count| **count > 0) {
            Some(count) => {
                *count -= 1;
                counts.sent += 1;
            }
            None => left_out.push(*idx, "the server has removed it: too many events, or too long ones"),
        }
    }
    Ok(counts)
}

/// Sends events, in order within a second. Returns the events that the server has accepted.
fn send_missing<'a>(
    target: &TargetServer,
    seconds: &[Vec<&'a Entry>],
    concurrency: usize,
    left_out: &mut LeftOut,
) -> anyhow::Result<Vec<&'a Entry>> {
    let count: usize = seconds.iter().map(Vec::len).sum();
    let mut accepted = Vec::new();
    let mut refused: Vec<(usize, String)> = Vec::new();
    let mut bar = Bar::new(&target.env, WithoutTerminal::Log);
    // A part at a time, so that the progress moves.
    for part in seconds.chunks(PART_SECONDS) {
        for sent in send_part(target, part, concurrency)? {
            match sent.refusal {
                None => accepted.push(sent.entry),
                Some(reason) => refused.push((sent.entry.0, reason)),
            }
        }
        let done = accepted.len() + refused.len();
        bar.draw(|seconds| {
            let cells = cells(done as u64, count as u64);
            format!("{cells}  {done} of {count} events, {seconds} s")
        });
    }
    bar.clear();
    refused.sort_unstable();
    refused.iter().for_each(|(idx, reason)| left_out.push(*idx, reason));
    Ok(accepted)
}

/// An event that was sent, and the reason why the server has refused it.
struct Sent<'a> {
    entry: &'a Entry,
    refusal: Option<String>,
}

fn send_part<'a>(
    target: &TargetServer,
    part: &[Vec<&'a Entry>],
    concurrency: usize,
) -> anyhow::Result<Vec<Sent<'a>>> {
    let next = AtomicUsize::new(0);
    let work = || -> anyhow::Result<Vec<Sent<'a>>> {
        let mut sent = Vec::new();
        while let Some(second) = part.get(next.fetch_add(1, Ordering::Relaxed)) {
            for entry in second {
                let refusal = post(target, &entry.1).inspect_err(|_| {
                    // The others end with the request that they are at.
                    next.store(part.len(), Ordering::Relaxed);
                })?;
                sent.push(Sent { entry, refusal });
            }
        }
        Ok(sent)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..concurrency.min(part.len())).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().unwrap_or_else(|_| anyhow::bail!("a worker panicked"))?);
        }
        Ok(all)
    })
}

/// Sends one event. Returns the reason if the server refuses it.
fn post(target: &TargetServer, event: &Event) -> anyhow::Result<Option<String>> {
    let body = serde_json::to_string(event)?;
    let response = target.post("/events/", Body::Json(&body), Repeat::WhenOverloaded)?;
    Ok(match response.status {
        200 => None,
        status => Some(format!("status {status}: {}", response.text)),
    })
}

/// The events of the server, and how many there are of each.
fn stored(target: &TargetServer) -> anyhow::Result<HashMap<Event, u64>> {
    let headers: Vec<(&str, &str)> =
        target.tenant.as_deref().map(|tenant| ("X-Scope-OrgID", tenant)).into_iter().collect();
    let answer = client::post_form(&target.url, "/events/get_data", &[("until", UNTIL)], &headers)?;
    let text = || String::from_utf8_lossy(&answer.body).into_owned();
    ensure!(answer.status == 200, "events of {}: status {}: {}", target.url, answer.status, text());
    let list: Vec<Value> = serde_json::from_slice(&answer.body)
        .with_context(|| format!("events of {}: the response is no list", target.url))?;
    let mut counts: HashMap<Event, u64> = HashMap::default();
    for event in list.iter().filter_map(|entry| Event::parse(entry).ok()) {
        *counts.entry(event).or_default() += 1;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(entry: &str, want: Result<&str, &str>) {
        let parsed = Event::parse(&serde_json::from_str(entry).expect("JSON"));
        let found = parsed.map(|event| serde_json::to_string(&event).expect("text"));
        assert_eq!(found.as_deref().map_err(String::as_str), want, "{entry}");
    }

    #[test]
    fn events_have_one_form_however_they_are_listed() {
        let want = r#"{"when":1700000000,"what":"release 7","tags":["deploy","web"],"data":"by hand"}"#;
        check(
            r#"{"id":3,"what":"release 7","when":1700000000,"tags":["deploy","web"],"data":"by hand"}"#,
            Ok(want),
        );
        check(r#"{"what":"release 7","when":1700000000.9,"tags":" deploy  web","data":"by hand"}"#, Ok(want));
        check(
            r#"{"what":7,"when":0,"tags":null,"data":null}"#,
            Ok(r#"{"when":0,"what":"7","tags":[],"data":""}"#),
        );
    }

    #[test]
    fn entries_that_are_no_events_have_a_reason() {
        check("[]", Err("the entry is not an object"));
        check(r#"{"when":1}"#, Err("\"what\" is missing"));
        check(r#"{"what":"a"}"#, Err("\"when\" is missing"));
        check(r#"{"what":"a","when":"now"}"#, Err("\"when\" is not a number of seconds: \"now\""));
        check(r#"{"what":"a","when":-1}"#, Err("\"when\" is not a time from 1970 to 9999: -1"));
        check(
            r#"{"what":"a","when":1e300}"#,
            Err(&format!("\"when\" is not a time from 1970 to 9999: {}", 1e300)),
        );
        check(r#"{"what":"a","when":1,"tags":[1]}"#, Err("\"tags\" is not a list of strings"));
        check(r#"{"what":"a","when":1,"tags":1}"#, Err("\"tags\" is neither a list nor a string"));
    }
}
