//! Parts that all tools of `chronolith bucket` share: the bucket, its arguments, results.
//!
//! Not here: the tools (`bucket/ls` and the others).

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_bucket::{Purpose, RequestContext, Store};
use chronolith_format::block::meta::Ulid;
use chronolith_model::TenantId;
use clap::{Arg, ArgMatches};
use tokio::runtime::Runtime;

use crate::args::value;
use crate::settings::Sources;

/// Time of one request with its retries.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Result of a tool.
pub(super) struct Outcome {
    /// For standard output.
    pub(super) text: String,
    /// False if damage was found.
    pub(super) is_sound: bool,
}

impl Outcome {
    pub(super) fn sound(text: String) -> Outcome {
        Outcome { text, is_sound: true }
    }
}

/// The bucket of a tool, with the runtime of its requests.
pub(super) struct Bucket {
    pub(super) env: Env,
    pub(super) runtime: Runtime,
    pub(super) store: Arc<Store>,
}

impl Bucket {
    pub(super) fn open(env: &Env, matches: &ArgMatches) -> anyhow::Result<Bucket> {
        Bucket::open_url(env, matches, None)
    }

    /// The bucket at `url`, by default that of `--bucket`, with the other settings of the flags.
    pub(super) fn open_url(env: &Env, matches: &ArgMatches, url: Option<&str>) -> anyhow::Result<Bucket> {
        let environment = crate::serve::environment();
        let sources = Sources { flags: matches, environment: &environment, disk: &*env.disk };
        let mut config = sources.resolve_bucket()?;
        if let Some(url) = url {
            url.clone_into(&mut config.url);
        }
        let runtime = Runtime::new().context("starting threads for requests")?;
        let store = Store::open(&config, env, runtime.handle().clone())
            .context("opening the bucket; docs/bucket.md has the forms of --bucket")?;
        Ok(Bucket { env: env.clone(), runtime, store: Arc::new(store) })
    }

    /// Context of the next request.
    pub(super) fn request(&self, tenant: &TenantId) -> RequestContext {
        RequestContext::with_timeout(&*self.env.clock, tenant.clone(), REQUEST_TIMEOUT, Purpose::Tool)
    }
}

pub(super) fn tenant_arg() -> Arg {
    Arg::new("tenant").long("tenant").value_name("ID").help("Tenant, a directory of the bucket")
}

pub(super) fn ulids_arg() -> Arg {
    Arg::new("ulid").value_name("ULID").num_args(0..).help("Blocks; default: all")
}

/// The tenant of `--tenant`.
pub(super) fn tenant_of(matches: &ArgMatches) -> anyhow::Result<Option<TenantId>> {
    let parse = |id: &str| TenantId::stored(id).with_context(|| format!("--tenant {id}"));
    value(matches, "tenant").map(parse).transpose()
}

/// Parses names of blocks.
pub(super) fn parse_ulids<'a>(texts: impl Iterator<Item = &'a String>) -> anyhow::Result<Vec<Ulid>> {
    texts.map(|text| text.parse().map_err(|error| anyhow::anyhow!("{text:?} is no ULID: {error}"))).collect()
}
