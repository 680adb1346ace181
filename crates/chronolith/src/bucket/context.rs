//! Parts that all tools of `chronolith bucket` share: the bucket, its arguments, results.
//!
//! Not here: the tools (`bucket/ls` and the others).

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_bucket::{BlockKeys, BucketLayout, Purpose, RequestContext, Store};
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

    /// The bucket at `url`, by default the bucket of `--bucket`, with the other settings of the flags.
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

    /// The tenant of `--tenant`; in Thanos's layout the only one.
    pub(super) fn tenant(&self, matches: &ArgMatches) -> anyhow::Result<Option<TenantId>> {
        let id = value(matches, "tenant");
        if *self.store.layout() != BucketLayout::Mimir {
            anyhow::ensure!(id.is_none(), "--tenant: expected none, the layout thanos has no tenants");
            return Ok(Some(TenantId::anonymous()));
        }
        id.map(|id| TenantId::new(id).with_context(|| format!("--tenant {id}"))).transpose()
    }

    /// As [`Bucket::tenant`], for tools on one tenant.
    pub(super) fn one_tenant(&self, matches: &ArgMatches) -> anyhow::Result<TenantId> {
        self.tenant(matches)?.context("--tenant is missing")
    }

    /// Checks that blocks can be written, or removed: in Thanos's layout the server with certain external
    /// labels has those that are its own.
    pub(super) fn check_writable(&self) -> anyhow::Result<()> {
        let is_writable =
            *self.store.layout() == BucketLayout::Mimir || self.store.layout().writer().is_some();
        anyhow::ensure!(
            is_writable,
            "--bucket.external-labels: expected those of the server whose blocks are meant, such as cluster=\"eu\""
        );
        Ok(())
    }

    /// Keys of the blocks of a tenant.
    pub(super) fn block_keys(&self, tenant: &TenantId) -> BlockKeys {
        self.store.layout().block_keys(&tenant.into())
    }

    /// Prefix of the objects of a block, by which people know it.
    pub(super) fn block_key(&self, tenant: &TenantId, ulid: Ulid) -> String {
        self.block_keys(tenant).of_block(ulid)
    }

    /// Context of the next request.
    pub(super) fn request(&self, tenant: &TenantId) -> RequestContext {
        RequestContext::with_timeout(&*self.env.clock, tenant.clone(), REQUEST_TIMEOUT, Purpose::Tool)
    }
}

pub(super) fn tenant_arg() -> Arg {
    Arg::new("tenant")
        .long("tenant")
        .value_name("ID")
        .help("Tenant, a directory of the bucket; none in the layout thanos")
}

pub(super) fn ulids_arg() -> Arg {
    Arg::new("ulid").value_name("ULID").num_args(0..).help("Blocks; default: all")
}

/// Parses names of blocks.
pub(super) fn parse_ulids<'a>(texts: impl Iterator<Item = &'a String>) -> anyhow::Result<Vec<Ulid>> {
    texts.map(|text| text.parse().map_err(|error| anyhow::anyhow!("{text:?} is no ULID: {error}"))).collect()
}
