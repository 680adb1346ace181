//! `chronolith bucket`: lists, verifies and downloads the blocks in a bucket.
//!
//! Invariants: nothing in the bucket is changed; results go to standard output, progress and errors to
//! standard error. Requests have the settings of the server.
//! Not here: requests (`chronolith-bucket`), content of blocks (`chronolith-block`).

mod blocks;
mod download;
mod fetch;
mod inspect;
mod ls;
mod verify;

#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_bucket::{Purpose, RequestContext, Store};
use chronolith_format::block::meta::Ulid;
use chronolith_model::TenantId;
use clap::{Arg, ArgAction, ArgMatches, Command};
use tokio::runtime::Runtime;

use crate::args::value;
use crate::query::print;
use crate::settings::{Sources, add_bucket_flags};

/// Time of one request with its retries.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) fn command() -> Command {
    Command::new("bucket")
        .about("List, verify and download blocks in a bucket")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(tool(ls::command()))
        .subcommand(tool(verify::command()))
        .subcommand(tool(download::command()))
        .subcommand(tool(inspect::command()))
}

/// Adds the arguments that all tools have.
fn tool(command: Command) -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the result as JSON");
    add_bucket_flags(command.arg(json))
}

/// Result of a tool.
struct Outcome {
    /// For standard output.
    text: String,
    /// False if damage was found.
    is_sound: bool,
}

impl Outcome {
    fn sound(text: String) -> Outcome {
        Outcome { text, is_sound: true }
    }
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let outcome = outcome_of(&Env::real(), matches)?;
    print(&outcome.text);
    Ok(if outcome.is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn outcome_of(env: &Env, matches: &ArgMatches) -> anyhow::Result<Outcome> {
    let (tool, matches) = matches.subcommand().context("expected a subcommand")?;
    let bucket = Bucket::open(env, matches)?;
    match tool {
        "ls" => ls::run(&bucket, matches),
        "verify" => verify::run(&bucket, matches),
        "download" => download::run(&bucket, matches),
        _ => inspect::run(&bucket, matches),
    }
}

/// The bucket of a tool, with the runtime of its requests.
struct Bucket {
    env: Env,
    runtime: Runtime,
    store: Arc<Store>,
}

impl Bucket {
    fn open(env: &Env, matches: &ArgMatches) -> anyhow::Result<Bucket> {
        let environment = crate::serve::environment();
        let sources = Sources { flags: matches, environment: &environment, disk: &*env.disk };
        let config = sources.resolve_bucket()?;
        let runtime = Runtime::new().context("starting threads for requests")?;
        let store = Store::open(&config, env, runtime.handle().clone())
            .context("opening the bucket; docs/bucket.md has the forms of --bucket")?;
        Ok(Bucket { env: env.clone(), runtime, store: Arc::new(store) })
    }

    /// Context of the next request.
    fn request(&self, tenant: &TenantId) -> RequestContext {
        RequestContext::with_timeout(&*self.env.clock, tenant.clone(), REQUEST_TIMEOUT, Purpose::Tool)
    }
}

fn tenant_arg() -> Arg {
    Arg::new("tenant").long("tenant").value_name("ID").help("Tenant, a directory of the bucket")
}

fn ulids_arg() -> Arg {
    Arg::new("ulid").value_name("ULID").num_args(0..).help("Blocks; default: all")
}

/// The tenant of `--tenant`.
fn tenant_of(matches: &ArgMatches) -> anyhow::Result<Option<TenantId>> {
    let parse = |id: &str| TenantId::stored(id).with_context(|| format!("--tenant {id}"));
    value(matches, "tenant").map(parse).transpose()
}

/// Parses names of blocks.
fn parse_ulids<'a>(texts: impl Iterator<Item = &'a String>) -> anyhow::Result<Vec<Ulid>> {
    texts.map(|text| text.parse().map_err(|error| anyhow::anyhow!("{text:?} is no ULID: {error}"))).collect()
}
