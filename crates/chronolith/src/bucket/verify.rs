//! `chronolith bucket verify`: reads blocks completely and verifies them down to their samples.
//!
//! Invariants: exit code 1 if anything is damaged, each damage with its object and offset; a block that could
//! not be read because the bucket does not answer ends the tool. One block at a time is on the local disk.
//! Not here: the checks (`chronolith-block`).

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chronolith_base::Rng;
use chronolith_block::{Block, BlockVerification};
use chronolith_bucket::BucketError;
use chronolith_format::block::meta::Ulid;
use chronolith_model::TenantId;
use clap::{Arg, ArgMatches, Command};
use serde_json::json;

use super::blocks::{BlockInBucket, TenantMarks, look, marks, tenants, ulids};
use super::context::{Bucket, Outcome, parse_ulids, tenant_arg, ulids_arg};
use super::fetch::{fetch_block, files_of};
use crate::args::value;

pub(super) fn command() -> Command {
    Command::new("verify")
        .about("Verify blocks completely; exit code 1 if something is damaged")
        .arg(tenant_arg())
        .arg(ulids_arg())
        .arg(work_dir_arg())
}

/// Directory that [`WorkDir`] is created in.
pub(super) fn work_dir_arg() -> Arg {
    Arg::new("work-dir")
        .long("work-dir")
        .value_name("DIR")
        .help("Directory on a disk with room for the largest block; default: the one for temporary files")
}

/// A damaged item.
struct ObjectDamage {
    key: String,
    offset: u64,
    what: String,
}

/// Findings of all blocks.
#[derive(Default)]
struct Report {
    blocks: u64,
    samples: u64,
    bytes: u64,
    /// Blocks that were not verified, with the reason.
    skipped: Vec<String>,
    damages: Vec<ObjectDamage>,
}

/// Directory of blocks on their way, removed at the end.
pub(super) struct WorkDir<'a> {
    bucket: &'a Bucket,
    pub(super) path: PathBuf,
}

impl Drop for WorkDir<'_> {
    fn drop(&mut self) {
        let _ = self.bucket.env.disk.remove_dir_all(&self.path);
    }
}

impl WorkDir<'_> {
    pub(super) fn create<'a>(bucket: &'a Bucket, matches: &ArgMatches) -> anyhow::Result<WorkDir<'a>> {
        let parent = value(matches, "work-dir").map_or_else(std::env::temp_dir, PathBuf::from);
        let path = parent.join(format!("chronolith-bucket-{:016x}", Rng::from_os().next_u64()));
        bucket.env.disk.create_dir_all(&path).with_context(|| {
            format!("creating {}; choose another directory with --work-dir", path.display())
        })?;
        Ok(WorkDir { bucket, path })
    }
}

pub(super) fn run(bucket: &Bucket, matches: &ArgMatches) -> anyhow::Result<Outcome> {
    let named = parse_ulids(matches.get_many("ulid").into_iter().flatten())?;
    let tenants = match bucket.tenant(matches)? {
        Some(tenant) => vec![tenant],
        None if !named.is_empty() => anyhow::bail!("--tenant is missing: blocks are named within a tenant"),
        None => tenants(bucket)?,
    };
    let work_dir = WorkDir::create(bucket, matches)?;
    let mut report = Report::default();
    for tenant in tenants {
        let marks = marks(bucket, &tenant)?;
        let all = if named.is_empty() { ulids(bucket, &tenant)? } else { named.clone() };
        for ulid in all {
            report.add_block(bucket, &tenant, ulid, &marks, !named.is_empty(), &work_dir.path)?;
        }
    }
    let is_sound = report.damages.is_empty();
    Ok(Outcome { text: if matches.get_flag("json") { report.json() } else { report.text() }, is_sound })
}

impl Report {
    fn add_block(
        &mut self,
        bucket: &Bucket,
        tenant: &TenantId,
        ulid: Ulid,
        marks: &TenantMarks,
        is_named: bool,
        work_dir: &Path,
    ) -> anyhow::Result<()> {
        let block = look(bucket, tenant, ulid, marks)?;
        let key = bucket.block_key(tenant, ulid);
        if !is_named && (block.is_marked || block.is_incomplete) {
            let why = block.left_out.as_deref().unwrap_or("marked for deletion");
            self.skipped.push(format!("{key}: {why}"));
            return Ok(());
        }
        let Some(meta) = &block.meta else {
            let what = block.left_out.clone().unwrap_or_default();
            self.damage(format!("{key}/meta.json"), 0, what);
            return Ok(());
        };
        self.blocks += 1;
        self.bytes += block.bytes();
        self.samples += meta.stats.num_samples;
        let damages_before = self.damages.len();
        self.missing_objects(&key, &block);
        if self.damages.len() == damages_before {
            self.content(bucket, tenant, &block, work_dir)?;
        }
        let found = self.damages.len().saturating_sub(damages_before);
        crate::log::print(&format!("{key}: {} bytes, {found} damages", block.bytes()));
        Ok(())
    }

    fn damage(&mut self, key: String, offset: u64, what: String) {
        self.damages.push(ObjectDamage { key, offset, what });
    }

    /// Compares the objects with the files that a block has, and with those that Thanos lists.
    fn missing_objects(&mut self, key: &str, block: &BlockInBucket) {
        let bytes_of = |name: &str| block.objects.iter().find(|object| object.name == name).map(|o| o.bytes);
        if bytes_of("index").is_none() {
            self.damage(format!("{key}/index"), 0, "object is missing".to_owned());
        }
        let segment_count = files_of(block).filter(|object| object.name.starts_with("chunks/")).count();
        for number in 1..=segment_count.max(1) {
            let name = format!("chunks/{number:06}");
            if bytes_of(&name).is_none() {
                self.damage(format!("{key}/{name}"), 0, "object is missing".to_owned());
            }
        }
        for file in block.thanos.iter().flat_map(|thanos| &thanos.files) {
            let expected = file.size_bytes;
            if expected != 0 && bytes_of(&file.rel_path) != Some(expected) {
                let found = bytes_of(&file.rel_path).map_or("no object".to_owned(), |n| format!("{n} bytes"));
                let what = format!("expected {expected} bytes as in meta.json, found {found}");
                self.damage(format!("{key}/{}", file.rel_path), 0, what);
            }
        }
    }

    fn content(
        &mut self,
        bucket: &Bucket,
        tenant: &TenantId,
        block: &BlockInBucket,
        work_dir: &Path,
    ) -> anyhow::Result<()> {
        let key = bucket.block_key(tenant, block.ulid);
        let dir = match fetch_block(bucket, tenant, block, work_dir, &mut |_| ()) {
            Ok(dir) => dir,
            Err(error) => match error.downcast_ref::<BucketError>() {
                Some(BucketError::NotFound { key } | BucketError::Corrupt { key, .. }) => {
                    self.damage(key.clone(), 0, error.to_string());
                    return Ok(());
                }
                _ => return Err(error.context(format!("reading block {key}"))),
            },
        };
        // Errors name files of the local copy; people know the objects.
        let local = dir.display().to_string();
        match Block::open(&bucket.env, &dir) {
            Ok(opened) => {
                let mut verification = BlockVerification::new(&opened);
                while !verification.step(u64::MAX) {}
                for damage in verification.damages() {
                    let object = damage.path.strip_prefix(&dir).unwrap_or(&damage.path);
                    let what = damage.what.replace(&local, &key);
                    self.damage(format!("{key}/{}", object.display()), damage.offset, what);
                }
            }
            Err(error) => self.damage(key.clone(), 0, error.to_string().replace(&local, &key)),
        }
        bucket.env.disk.remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))
    }

    fn text(&self) -> String {
        let mut text: String = self.skipped.iter().map(|why| format!("not verified: {why}\n")).collect();
        for ObjectDamage { key, offset, what } in &self.damages {
            text.push_str(&format!("damaged: {key}: offset {offset}: {what}\n"));
        }
        let Report { blocks, samples, bytes, .. } = self;
        let damage_count = self.damages.len();
        text.push_str(&format!(
            "verified {blocks} blocks with {samples} samples, {bytes} bytes; {damage_count} damages\n"
        ));
        text
    }

    fn json(&self) -> String {
        let damages = self.damages.iter();
        let damages = damages.map(|d| json!({ "object": d.key, "offset": d.offset, "what": d.what }));
        let value = json!({ "blocks": self.blocks, "samples": self.samples, "bytes": self.bytes,
            "notVerified": self.skipped, "damages": damages.collect::<Vec<_>>() });
        format!("{value}\n")
    }
}
