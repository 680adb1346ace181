//! Settings of the server. One table (`table`) declares each with name, form, default, help and scope; flags
//! and `--help` (`flags`), environment variables and keys of the configuration file (`sources`), limits of
//! single tenants (`tenants`) and docs/reference/settings.md (checked by a test) are made from it.
//! Invariants: the files depend on each other in one direction: declaration, value,
//! bucket_layout, bucket, carbon, cluster, table, then the others.

mod bucket;
mod bucket_layout;
mod carbon;
mod cluster;
mod declaration;
mod fetch_limits;
mod file;
mod flags;
mod influx_names;
mod nodes;
mod prometheus_flags;
mod rules;
mod selection_limits;
mod sources;
mod table;
mod tenants;
mod tools;
mod value;

#[cfg(test)]
mod tests;

pub(crate) use declaration::{LogFormat, Settings};
pub(crate) use flags::add_flags;
pub(crate) use prometheus_flags::suggest;
pub(crate) use sources::{SettingsError, Sources, reloaded};
pub(crate) use tools::{ToolSettings, add_tool_flags};
