//! `chronolith bucket copy`: copies blocks of a tenant to another tenant or bucket and records them in its
//! catalogue.
//!
//! Invariants: the blocks of one compaction are on the local disk at a time; a second run sends only missing
//! objects.
//! Not here: fetching a block (`fetch`), sending it (`upload`).

use std::path::Path;

use anyhow::Context as _;
use chronolith_bucket::BucketLayout;
use chronolith_model::TenantId;
use clap::{Arg, ArgMatches, Command};

use super::blocks::BlockInBucket;
use super::context::{Bucket, Outcome, parse_ulids, tenant_arg, ulids_arg};
use super::download::{chosen, time_args};
use super::fetch::{fetch_block, files_of};
use super::upload::{LocalBlock, Upload, by_compaction, local_block};
use super::verify::{WorkDir, work_dir_arg};
use crate::args::value;

pub(super) fn command() -> Command {
    Command::new("copy")
        .about("Copy blocks to another tenant or bucket; a second run goes on where the first one ended")
        .arg(tenant_arg())
        .arg(
            Arg::new("to-tenant")
                .long("to-tenant")
                .value_name("ID")
                .help("Tenant of the copies; default: the same"),
        )
        .arg(Arg::new("to").long("to").value_name("URL").help("Bucket of the copies; default: the same"))
        .args(time_args())
        .arg(ulids_arg())
        .arg(work_dir_arg())
}

pub(super) fn run(bucket: &Bucket, matches: &ArgMatches) -> anyhow::Result<Outcome> {
    anyhow::ensure!(
        *bucket.store.layout() == BucketLayout::Mimir,
        "copy works in the layout mimir: a block keeps its ULID and its external labels in the layout thanos; \
         download the blocks and upload them to the other bucket"
    );
    let tenant = bucket.one_tenant(matches)?;
    let to_tenant = match value(matches, "to-tenant") {
        Some(id) => TenantId::new(id).with_context(|| format!("--to-tenant {id}"))?,
        None => tenant.clone(),
    };
    let to_url = value(matches, "to");
    anyhow::ensure!(to_url.is_some() || to_tenant != tenant, "expected --to or --to-tenant");
    let target = Bucket::open_url(&bucket.env, matches, to_url)?;
    let named = parse_ulids(matches.get_many("ulid").into_iter().flatten())?;
    let blocks = chosen(bucket, &tenant, &named, matches)?;
    let copied: Vec<(BlockInBucket, _)> =
        blocks.into_iter().filter_map(|mut block| block.meta.take().map(|meta| (block, meta))).collect();
    let total_bytes = copied.iter().flat_map(|(block, _)| files_of(block)).map(|object| object.bytes).sum();
    let work_dir = WorkDir::create(bucket, matches)?;
    let mut upload = Upload::start(&target, &to_tenant, total_bytes, true)?;
    for group in by_compaction(&copied, |(_, meta)| meta) {
        let blocks: Vec<&BlockInBucket> = group.iter().map(|(block, _)| block).collect();
        copy_group(bucket, &tenant, &blocks, &work_dir.path, &mut upload)?;
    }
    Ok(Outcome::sound(upload.finish(matches.get_flag("json"))))
}

/// Copies the blocks of one compaction by way of `work_dir`.
fn copy_group(
    bucket: &Bucket,
    tenant: &TenantId,
    blocks: &[&BlockInBucket],
    work_dir: &Path,
    upload: &mut Upload<'_>,
) -> anyhow::Result<()> {
    let mut local = Vec::new();
    for block in blocks {
        let fetched = fetch_block(bucket, tenant, block, work_dir, &mut |_| {});
        let dir = fetched.with_context(|| format!("fetching block {tenant}/{}", block.ulid))?;
        local.push((local_block(bucket, &dir)?, dir));
    }
    let sent: Vec<&LocalBlock> = local.iter().map(|(block, _)| block).collect();
    upload.send(&sent)?;
    for (_, dir) in &local {
        bucket.env.disk.remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    Ok(())
}
