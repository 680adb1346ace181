//! `chronolith bucket upload`: sends local blocks to a tenant and records them in its catalogue.
//!
//! Invariants: a second run sends only missing objects; blocks of one compaction are recorded together;
//! blocks that queries find by listing are not hidden by a first catalogue.
//! Not here: upload of one block, the catalogue (`chronolith-bucket`).

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use chronolith_bucket::upload::Published;
use chronolith_bucket::{Purpose, RequestContext, Uploader};
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::bucket::catalogue::BucketBlock;
use chronolith_model::TenantId;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use super::blocks::catalogue;
use super::context::{Bucket, Outcome, tenant_arg};
use crate::progress::{Bar, WithoutTerminal, cells};

const META: &str = "meta.json";
/// Longest time of one block.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Time between two looks at the bytes that were sent.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

pub(super) fn command() -> Command {
    Command::new("upload")
        .about("Upload the blocks of a directory to a tenant; a second run goes on where the first one ended")
        .arg(tenant_arg())
        .arg(
            Arg::new("files-only")
                .long("files-only")
                .action(ArgAction::SetTrue)
                .help("Do not record the blocks in the catalogue, for a tenant that has none"),
        )
        .arg(
            Arg::new("dir")
                .value_name("DIR")
                .required(true)
                .help("A block, or a directory with blocks in directories named by their ULIDs"),
        )
}

/// A block on the local disk.
pub(super) struct LocalBlock {
    dir: PathBuf,
    meta: BlockMeta,
    bytes: u64,
}

/// End of the upload of a block.
struct Uploaded {
    ulid: Ulid,
    end: &'static str,
}

pub(super) fn run(bucket: &Bucket, matches: &ArgMatches) -> anyhow::Result<Outcome> {
    let tenant = bucket.one_tenant(matches)?;
    bucket.check_writable()?;
    let dir = PathBuf::from(matches.get_one::<String>("dir").context("the directory is missing")?);
    let blocks = local_blocks(bucket, &dir)?;
    let total_bytes = blocks.iter().map(|block| block.bytes).sum();
    let mut upload = Upload::start(bucket, &tenant, total_bytes, !matches.get_flag("files-only"))?;
    for group in by_compaction(&blocks, |block| &block.meta) {
        upload.send(&group)?;
    }
    Ok(Outcome::sound(upload.finish(matches.get_flag("json"))))
}

/// Uploads blocks to one tenant.
pub(super) struct Upload<'b> {
    bucket: &'b Bucket,
    tenant: TenantId,
    uploader: Uploader,
    is_recorded: bool,
    progress: UploadProgress,
    uploaded: Vec<Uploaded>,
}

impl<'b> Upload<'b> {
    /// Begins an upload. The blocks of a tenant without a catalogue are entered in a new one.
    pub(super) fn start(
        bucket: &'b Bucket,
        tenant: &TenantId,
        total_bytes: u64,
        is_recorded: bool,
    ) -> anyhow::Result<Upload<'b>> {
        let uploader = Uploader::new(bucket.store.clone(), &bucket.env, bucket.runtime.handle().clone());
        if is_recorded {
            let request = request(bucket, tenant);
            let recorded = bucket.runtime.block_on(uploader.publisher().create_catalogue(&request));
            recorded.context("entering the blocks of the tenant in its first catalogue")?;
        }
        Ok(Upload {
            bucket,
            tenant: tenant.clone(),
            uploader,
            is_recorded,
            progress: UploadProgress { bar: Bar::new(&bucket.env, WithoutTerminal::Log), total_bytes },
            uploaded: Vec::new(),
        })
    }

    /// Sends the blocks of one compaction and records them together.
    pub(super) fn send(&mut self, group: &[&LocalBlock]) -> anyhow::Result<()> {
        let Upload { bucket, tenant, uploader, is_recorded, progress, uploaded } = self;
        let mut records = Vec::new();
        for block in group {
            let request = request(bucket, tenant);
            let upload = uploader.upload(&request, &block.dir, None);
            let watched = progress.watched(uploader, upload);
            let record = bucket.runtime.block_on(watched).with_context(|| {
                let key = bucket.block_key(tenant, block.meta.ulid);
                format!("uploading block {key}; run the command again to go on")
            })?;
            records.push(record);
        }
        let end = match *is_recorded {
            true => record_blocks(bucket, tenant, uploader, &records)?,
            false => "uploaded",
        };
        uploaded.extend(group.iter().map(|block| Uploaded { ulid: block.meta.ulid, end }));
        Ok(())
    }

    /// Ends the upload and returns its report.
    pub(super) fn finish(self, is_json: bool) -> String {
        let report = self.report(is_json);
        self.progress.bar.clear();
        report
    }

    fn report(&self, is_json: bool) -> String {
        let counters = self.uploader.counters();
        let all = &self.uploaded;
        if is_json {
            let blocks: Vec<Value> =
                all.iter().map(|one| json!({ "ulid": one.ulid.to_string(), "end": one.end })).collect();
            let value = json!({ "tenant": self.tenant.as_str(), "blocks": blocks,
                "sentBytes": counters.sent_bytes, "presentBytes": counters.present_bytes });
            return format!("{value}\n");
        }
        let line = |one: &Uploaded| {
            let key = self.bucket.block_key(&self.tenant, one.ulid);
            format!("{key}: {}\n", one.end)
        };
        let mut text: String = all.iter().map(line).collect();
        text.push_str(&format!(
            "uploaded {} blocks: {} bytes sent, {} bytes were there\n",
            all.len(),
            counters.sent_bytes,
            counters.present_bytes
        ));
        text
    }
}

fn request(bucket: &Bucket, tenant: &TenantId) -> RequestContext {
    RequestContext::with_timeout(&*bucket.env.clock, tenant.clone(), BLOCK_TIMEOUT, Purpose::Tool)
}

/// The block in `dir`, or those in its directories, ascending by ULID.
fn local_blocks(bucket: &Bucket, dir: &Path) -> anyhow::Result<Vec<LocalBlock>> {
    let disk = &bucket.env.disk;
    let mut blocks = Vec::new();
    if disk.exists(&dir.join(META)) {
        blocks.push(local_block(bucket, dir)?);
    } else {
        let entries = disk.list(dir).with_context(|| format!("reading {}", dir.display()))?;
        let names = entries.iter().filter(|entry| entry.is_dir && entry.name.parse::<Ulid>().is_ok());
        for entry in names {
            blocks.push(local_block(bucket, &dir.join(&entry.name))?);
        }
    }
    anyhow::ensure!(
        !blocks.is_empty(),
        "{} is no block and has none: expected meta.json, or directories named by ULIDs",
        dir.display()
    );
    blocks.sort_by_key(|block| block.meta.ulid);
    Ok(blocks)
}

/// The block in `dir`.
pub(super) fn local_block(bucket: &Bucket, dir: &Path) -> anyhow::Result<LocalBlock> {
    let disk = &bucket.env.disk;
    let path = dir.join(META);
    let text = disk.read(&path).with_context(|| format!("reading {}", path.display()))?;
    let meta = BlockMeta::decode(&text).with_context(|| format!("reading {}", path.display()))?;
    let mut bytes = 0;
    for sub in [dir.to_owned(), dir.join("chunks")] {
        let entries = disk.list(&sub).with_context(|| format!("reading {}", sub.display()))?;
        bytes += entries.iter().map(|entry| entry.len).sum::<u64>();
    }
    Ok(LocalBlock { dir: dir.to_owned(), meta, bytes })
}

/// Groups the blocks by compaction.
pub(super) fn by_compaction<T>(blocks: &[T], meta: impl Fn(&T) -> &BlockMeta) -> Vec<Vec<&T>> {
    let mut sets: BTreeMap<Ulid, Vec<&T>> = BTreeMap::new();
    for block in blocks {
        let meta = meta(block);
        sets.entry(meta.compaction.split_set.unwrap_or(meta.ulid)).or_default().push(block);
    }
    sets.into_values().collect()
}

/// Records the blocks of one compaction, in place of the blocks that they replace.
fn record_blocks(
    bucket: &Bucket,
    tenant: &TenantId,
    uploader: &Uploader,
    records: &[BucketBlock],
) -> anyhow::Result<&'static str> {
    let snapshot = catalogue(bucket, tenant)?;
    let live: BTreeSet<Ulid> =
        snapshot.iter().flat_map(|snapshot| &snapshot.blocks).map(|block| block.ulid).collect();
    // Without the others of its set, a block has only some of the series of the inputs that it replaces.
    let own = |ulid: &Ulid| records.iter().any(|record| record.ulid == *ulid);
    let mut set = records.iter().flat_map(|record| &record.ancestry.split_blocks);
    if let Some(missing) = set.find(|ulid| !own(ulid) && !live.contains(ulid)) {
        anyhow::bail!("block {missing} of the same compaction is missing, so its inputs cannot be replaced");
    }
    let request = request(bucket, tenant);
    let published = bucket.runtime.block_on(uploader.publisher().publish(&request, records));
    Ok(match published.with_context(|| format!("updating the catalogue of tenant {tenant}"))? {
        Published::Recorded(_) => "recorded",
        Published::InputsGone(_) => "not recorded: inputs replaced meanwhile",
        Published::Superseded(_) => "not recorded: replaced before",
    })
}

/// The line that shows the bytes of all blocks.
struct UploadProgress {
    bar: Bar,
    total_bytes: u64,
}

impl UploadProgress {
    /// Waits for an upload and draws the line meanwhile.
    async fn watched<T>(&mut self, uploader: &Uploader, upload: impl Future<Output = T>) -> T {
        let mut upload = pin!(upload);
        loop {
            if let Ok(done) = tokio::time::timeout(PROGRESS_EVERY, &mut upload).await {
                return done;
            }
            let counters = uploader.counters();
            let done_bytes = counters.sent_bytes + counters.present_bytes;
            let total_bytes = self.total_bytes;
            self.bar.draw(|seconds| {
                let rate = (counters.sent_bytes / seconds.max(1)) >> 20;
                let cells = cells(done_bytes, total_bytes);
                format!("{cells}  {} of {} MB, {rate} MB per second", done_bytes >> 20, total_bytes >> 20)
            });
        }
    }
}
