//! `chronolith import graphite-tags`: registers the tagged series of graphite-web, as its `/tags/findSeries`
//! lists them or Django's `dumpdata tags` writes them, with a running server.
//!
//! A server has a series once it has points: registering checks the paths and stores nothing.
//! Invariant: a path that the server refuses costs itself alone.
//! Not here: the list and its flags (`graphite_json`), the syntax of paths (the server).

use std::process::ExitCode;

use anyhow::bail;
use chronolith_base::Env;
use clap::{ArgMatches, Command};
use serde_json::Value;

use super::graphite_json::{self, LeftOut};
use super::server::{Body, Repeat, TargetServer};
use crate::progress::{Bar, WithoutTerminal, cells};
use crate::query::print;

/// Paths of one request.
const PATHS_PER_REQUEST: usize = 200;

pub(super) fn command() -> Command {
    graphite_json::command(
        "graphite-tags",
        "Register the tagged series of graphite-web, as /tags/findSeries lists them, with a running server",
    )
}

/// Returns the path of an entry: a text, or a row of the table of series; `None` for a row of the tables of
/// keys, values and their relations, which the path has all of.
///
/// # Errors
/// The reason why the entry is no series.
fn path_of(entry: &Value) -> Result<Option<&str>, &'static str> {
    if let Some(path) = entry.as_str() {
        return Ok(Some(path));
    }
    let model = entry.get("model").and_then(Value::as_str).ok_or("neither a path nor a row of dumpdata")?;
    match model {
        "tags.series" => {
            let path = entry.pointer("/fields/path").and_then(Value::as_str);
            path.map(Some).ok_or("a row of tags.series without a path")
        }
        "tags.tag" | "tags.tagvalue" | "tags.seriestag" => Ok(None),
        _ => Err("a row of a table that has no tags"),
    }
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let env = Env::real();
    let entries = graphite_json::entries(&env, matches)?;
    let mut left_out = LeftOut::default();
    let mut paths = Vec::new();
    for (idx, entry) in entries.iter().enumerate() {
        match path_of(entry) {
            Ok(path) => paths.extend(path.map(|path| (idx, path))),
            Err(reason) => left_out.push(idx, reason),
        }
    }
    if matches.get_flag("dry-run") {
        print(&format!("{} series\n{}", paths.len(), left_out.show()));
        return Ok(left_out.exit_code());
    }
    let target = graphite_json::target(&env, matches)?;
    let mut bar = Bar::new(&env, WithoutTerminal::Log);
    let mut registered = 0;
    for (request_idx, part) in paths.chunks(PATHS_PER_REQUEST).enumerate() {
        registered += register(&target, part, &mut left_out)?;
        let done = request_idx * PATHS_PER_REQUEST + part.len();
        bar.draw(|seconds| {
            let cells = cells(done as u64, paths.len() as u64);
            format!("{cells}  {done} of {} series, {seconds} s", paths.len())
        });
    }
    bar.clear();
    print(&format!("{registered} series registered; each is found once it has points\n{}", left_out.show()));
    Ok(left_out.exit_code())
}

/// Registers paths; returns how many the server has accepted. A list that it refuses is halved, until the
/// refused paths are found.
fn register(target: &TargetServer, paths: &[(usize, &str)], left_out: &mut LeftOut) -> anyhow::Result<u64> {
    let form: Vec<(&str, &str)> = paths.iter().map(|(_, path)| ("path", *path)).collect();
    let response = target.post("/tags/tagMultiSeries", Body::Form(&form), Repeat::Always)?;
    match (response.status, paths) {
        (200, _) => Ok(paths.len() as u64),
        (400, [(idx, path)]) => {
            left_out.push(*idx, &format!("{path:?}: {}", response.text));
            Ok(0)
        }
        (400 | 413, [_, _, ..]) => {
            let (first, second) = paths.split_at(paths.len() / 2);
            Ok(register(target, first, left_out)? + register(target, second, left_out)?)
        }
        (status, _) => bail!("registering series with {}: status {status}: {}", target.url, response.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(entry: &str, want: Result<Option<&str>, &'static str>) {
        assert_eq!(path_of(&serde_json::from_str(entry).expect("JSON")), want, "{entry}");
    }

    #[test]
    fn paths_are_texts_and_rows_of_series() {
        check(r#""disk;dc=x""#, Ok(Some("disk;dc=x")));
        check(r#"{"model":"tags.series","pk":1,"fields":{"hash":"0","path":"a;b=c"}}"#, Ok(Some("a;b=c")));
        check(r#"{"model":"tags.tag","pk":1,"fields":{"tag":"dc"}}"#, Ok(None));
        check(r#"{"model":"tags.series","pk":1,"fields":{}}"#, Err("a row of tags.series without a path"));
        check(r#"{"model":"auth.user"}"#, Err("a row of a table that has no tags"));
        check("7", Err("neither a path nor a row of dumpdata"));
    }
}
