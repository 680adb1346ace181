//! `chronolith bucket download`: writes blocks of a tenant to a directory that promtool and Chronolith read.
//!
//! Invariants: a block is there completely or not at all; a second run fetches only files that are missing.
//! Not here: fetching one block (`fetch`).

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chronolith_block::block_dir;
use chronolith_format::block::meta::Ulid;
use chronolith_model::TenantId;
use clap::{Arg, ArgMatches, Command};
use serde_json::json;

use super::blocks::{BlockInBucket, look, marks, ulids};
use super::context::{Bucket, Outcome, parse_ulids, tenant_arg};
use super::fetch::{fetch_block, files_of, is_complete};
use crate::progress::{Bar, WithoutTerminal, cells};

pub(super) fn command() -> Command {
    Command::new("download")
        .about("Download blocks of a tenant into a directory; a second run goes on where the first one ended")
        .arg(tenant_arg())
        .args(time_args())
        .arg(
            Arg::new("targets")
                .value_name("ULID... DIR")
                .num_args(1..)
                .required(true)
                .help("Blocks, by default all that queries read, and the directory for them"),
        )
}

/// Times that blocks are chosen by.
pub(super) fn time_args() -> [Arg; 2] {
    let time = |name: &'static str, help: &'static str| {
        let parser = clap::value_parser!(i64);
        Arg::new(name).long(name).value_name("MS").value_parser(parser).allow_hyphen_values(true).help(help)
    };
    [
        time("min-time", "Only blocks with this time or later ones, in milliseconds since 1970"),
        time("max-time", "Only blocks with this time or earlier ones, in milliseconds since 1970"),
    ]
}

pub(super) fn run(bucket: &Bucket, matches: &ArgMatches) -> anyhow::Result<Outcome> {
    let tenant = bucket.one_tenant(matches)?;
    let targets: Vec<&String> = matches.get_many("targets").into_iter().flatten().collect();
    let (dir, names) = targets.split_last().context("the directory is missing")?;
    let dir = PathBuf::from(dir);
    let named = parse_ulids(names.iter().copied())?;
    let blocks = chosen(bucket, &tenant, &named, matches)?;
    bucket.env.disk.create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let total_bytes: u64 = blocks.iter().flat_map(files_of).map(|object| object.bytes).sum();
    let mut bar = Bar::new(&bucket.env, WithoutTerminal::Log);
    let mut done_bytes: u64 = 0;
    let mut present = 0;
    for block in &blocks {
        if is_present(bucket, block, &dir)? {
            present += 1;
            done_bytes += files_of(block).map(|object| object.bytes).sum::<u64>();
            continue;
        }
        let mut progress = |bytes: u64| {
            done_bytes += bytes;
            bar.draw(|seconds| progress_line(done_bytes, total_bytes, seconds));
        };
        fetch_block(bucket, &tenant, block, &dir, &mut progress).with_context(|| {
            let key = bucket.block_key(&tenant, block.ulid);
            format!("downloading block {key}; run the command again to go on")
        })?;
    }
    bar.clear();
    Ok(Outcome::sound(report(&blocks, present, total_bytes, &dir, matches.get_flag("json"))))
}

fn report(blocks: &[BlockInBucket], present: u64, bytes: u64, dir: &Path, is_json: bool) -> String {
    let downloaded = (blocks.len() as u64).saturating_sub(present);
    if is_json {
        let names: Vec<String> = blocks.iter().map(|block| block.ulid.to_string()).collect();
        let value = json!({ "dir": dir.display().to_string(), "blocks": names, "downloaded": downloaded,
            "present": present, "bytes": bytes });
        return format!("{value}\n");
    }
    let dir = dir.display();
    format!("downloaded {downloaded} blocks to {dir}, {present} were there; {bytes} bytes in all\n")
}

fn progress_line(done_bytes: u64, total_bytes: u64, seconds: u64) -> String {
    let rate = (done_bytes / seconds.max(1)) >> 20;
    let cells = cells(done_bytes, total_bytes);
    format!("{cells}  {} of {} MB, {rate} MB per second", done_bytes >> 20, total_bytes >> 20)
}

/// The blocks that are named; without names those that queries read and that have a time of the range.
pub(super) fn chosen(
    bucket: &Bucket,
    tenant: &TenantId,
    named: &[Ulid],
    matches: &ArgMatches,
) -> anyhow::Result<Vec<BlockInBucket>> {
    let marks = marks(bucket, tenant)?;
    let time = |name: &str| matches.get_one::<i64>(name).copied();
    let first = time("min-time").unwrap_or(i64::MIN);
    let last = time("max-time").unwrap_or(i64::MAX);
    let mut blocks = Vec::new();
    for ulid in if named.is_empty() { ulids(bucket, tenant)? } else { named.to_vec() } {
        let block = look(bucket, tenant, ulid, &marks)?;
        let Some(meta) = &block.meta else {
            let why = block.left_out.as_deref().unwrap_or_default();
            let key = bucket.block_key(tenant, ulid);
            anyhow::ensure!(named.is_empty(), "block {key} cannot be downloaded: {why}");
            continue;
        };
        let is_in_range = meta.range().overlaps_inclusive(first, last);
        if is_in_range && (!named.is_empty() || block.left_out.is_none() && !block.is_marked) {
            blocks.push(block);
        }
    }
    Ok(blocks)
}

/// Returns true if the directory has the block.
fn is_present(bucket: &Bucket, block: &BlockInBucket, dir: &Path) -> anyhow::Result<bool> {
    let dir = block_dir(dir, block.ulid);
    if !bucket.env.disk.exists(&dir) {
        return Ok(false);
    }
    // The other files of a block may be rewritten: meta.json, and the tombstones of deleted series.
    let immutable = |name: &str| name == "index" || name.starts_with("chunks/");
    let mut files = files_of(block).filter(|object| immutable(&object.name));
    let different = files.find(|object| !is_complete(bucket, &dir.join(&object.name), object.bytes));
    match different {
        None => Ok(true),
        Some(object) => anyhow::bail!(
            "{} exists and differs from the block in the bucket: expected {} bytes; move the directory away",
            dir.join(&object.name).display(),
            object.bytes
        ),
    }
}
