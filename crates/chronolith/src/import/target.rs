//! Arguments that name the target of a tool: data directory and tenant.

use std::path::PathBuf;

use anyhow::Context as _;
use chronolith_model::TenantId;
use clap::{Arg, ArgMatches};

use crate::args::value;

/// The data directory that a tool works on.
pub(crate) fn data_dir_arg() -> Arg {
    Arg::new("data-dir")
        .long("data-dir")
        .value_name("DIR")
        .default_value("./data")
        .env("CHRONOLITH_DATA_DIR")
        .help("Data directory of a stopped server")
}

/// The tenant that a tool works for.
pub(crate) fn tenant_arg() -> Arg {
    Arg::new("tenant").long("tenant").value_name("ID").default_value("anonymous").help("Tenant")
}

/// The data directory and tenant that the flags name.
pub(crate) fn place(matches: &ArgMatches) -> anyhow::Result<(PathBuf, TenantId)> {
    let data_dir = PathBuf::from(value(matches, "data-dir").unwrap_or_default());
    let tenant = TenantId::new(value(matches, "tenant").unwrap_or_default()).context("--tenant")?;
    Ok((data_dir, tenant))
}
