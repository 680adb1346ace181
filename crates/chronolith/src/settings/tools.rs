//! Settings that the tools take, with their names in `chronolith serve`: bucket, log, calls between nodes.
//!
//! Not here: arguments of single tools.

use clap::{Arg, Command};

use super::declaration::Setting;
use super::flags::flag;
use super::table::all_settings;

/// Settings of a tool, besides `--config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolSettings {
    /// Location of a bucket, and access to it.
    Bucket,
    /// The same, with the log.
    BucketAndLog,
    /// The same, with owners and the node token.
    BucketAndOwners,
    /// Bucket, log, owners and node token.
    Cluster,
}

impl ToolSettings {
    /// Returns true if a tool with these settings takes `setting`.
    pub(super) fn has(self, setting: &Setting) -> bool {
        let (takes_log, takes_owners) = match self {
            ToolSettings::Bucket => (false, false),
            ToolSettings::BucketAndLog => (true, false),
            ToolSettings::BucketAndOwners => (false, true),
            ToolSettings::Cluster => (true, true),
        };
        let is_of_log = setting.name == "log"
            || setting.name.starts_with("log.tls")
            || setting.name.starts_with("log.sasl-");
        let is_of_owners = setting.name == "owners" || setting.name.starts_with("cluster.node-");
        setting.is_of_bucket() || takes_log && is_of_log || takes_owners && is_of_owners
    }
}

/// Adds `--config` and the flags of the settings that a tool takes.
pub(crate) fn add_tool_flags(command: Command, settings: ToolSettings) -> Command {
    let config = Arg::new("config").long("config").value_name("FILE");
    let command = command.arg(config.help("YAML file with these settings [env: CHRONOLITH_CONFIG]"));
    let flags = all_settings().filter(|setting| settings.has(setting)).map(|setting| {
        let flag = flag(setting);
        // The name of the setting has the part that tells it from other tokens of a server.
        if setting.name == "cluster.node-token-file" { flag.visible_alias("node-token-file") } else { flag }
    });
    command.args(flags).mut_arg("bucket", |arg| {
        arg.help("Bucket: s3://BUCKET[/PREFIX], gs://..., az://..., file:///DIR [env: CHRONOLITH_BUCKET]")
    })
}
