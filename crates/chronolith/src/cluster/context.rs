//! Parts that the tools of a cluster share: settings, the runtime of requests, bucket and log.
//!
//! Not here: the tools (`cluster/partitions` and the others).

use std::sync::Arc;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_bucket::{BucketLayout, Store};
use chronolith_cluster::options::LogOptions;
use chronolith_server::NodeOptions;
use clap::{Arg, ArgAction, ArgMatches, Command};
use tokio::runtime::{Handle, Runtime};

use crate::settings::{Settings, SettingsError, Sources, ToolSettings};

/// Result of a tool.
pub(super) struct Outcome {
    /// Lines for standard output, with their line breaks.
    pub(super) text: String,
    /// False if something is missing or lost.
    pub(super) is_sound: bool,
}

/// Adds the flag `--json` to a command that prints a result.
pub(super) fn with_json(command: Command) -> Command {
    command.arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the result as JSON"))
}

/// Settings of a tool, and the runtime of its requests.
pub(super) struct Tool {
    pub(super) env: Env,
    runtime: Runtime,
    settings: Settings,
}

impl Tool {
    pub(super) fn open(env: &Env, matches: &ArgMatches, taken: ToolSettings) -> anyhow::Result<Tool> {
        let environment = crate::serve::environment();
        let sources = Sources { flags: matches, environment: &environment, disk: &*env.disk };
        let settings = sources.resolve_tool(taken)?;
        let runtime = Runtime::new().context("starting threads for requests")?;
        Ok(Tool { env: env.clone(), runtime, settings })
    }

    pub(super) fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Opens the bucket of the cluster.
    pub(super) fn bucket(&self) -> anyhow::Result<Arc<Store>> {
        Ok(self.bucket_if_named()?.ok_or_else(SettingsError::no_bucket)?)
    }

    /// Opens the bucket; `None` without `--bucket`.
    pub(super) fn bucket_if_named(&self) -> anyhow::Result<Option<Arc<Store>>> {
        let Some(options) = &self.settings.server.bucket else { return Ok(None) };
        let config = &options.store;
        anyhow::ensure!(
            config.layout == BucketLayout::Mimir,
            "--bucket.layout: expected mimir, the layout thanos has no place for a cluster"
        );
        let opened = Store::open(config, &self.env, self.handle().clone());
        let store = opened.context("opening the bucket; docs/bucket.md has the forms of --bucket")?;
        Ok(Some(Arc::new(store)))
    }

    /// Options of the log; `None` without `--log`.
    pub(super) fn log(&self) -> Option<&LogOptions> {
        self.settings.server.service.cluster.log.as_ref()
    }

    /// Place of the owners and access to them; `None` without `--owners`.
    pub(super) fn owners(&self) -> Option<&NodeOptions> {
        let nodes = &self.settings.server.nodes;
        nodes.owners.is_some().then_some(nodes)
    }
}
