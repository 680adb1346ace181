//! `chronolith bucket gc`: removes replaced and expired blocks whose delay is over, and marks leftovers.
//!
//! Invariants: it does what the maintenance of a server does, which may run at the same time; a second run
//! goes on where the first one ended. Without `--unreferenced`, blocks of other programs stay. `--dry-run`
//! changes nothing.
//! Not here: the steps (`chronolith-bucket`), retention, which needs the settings of a server.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use chronolith_bucket::maintenance::MaintenanceRun;
use chronolith_bucket::maintenance::leftovers::{
    LEFTOVER_AGE, LeftoverKind, LeftoverRules, Leftovers, Marked, find_leftovers, mark_leftovers,
};
use chronolith_bucket::maintenance::removal::{DueBlock, Removed, find_due, remove_due};
use chronolith_bucket::snapshots::Snapshots;
use chronolith_bucket::{BlockKeys, BucketError, BucketLayout, Purpose, RequestContext};
use chronolith_model::TenantId;
use chronolith_model::duration::parse_duration_ms;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use super::blocks::tenants;
use super::context::{Bucket, Outcome, tenant_arg};
use crate::args::value;
use crate::progress::{Bar, WithoutTerminal};

/// Longest time of one step of a tenant.
const STEP_TIMEOUT: Duration = Duration::from_secs(600);

pub(super) fn command() -> Command {
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    Command::new("gc")
        .about("Remove replaced and expired blocks, and mark what uploads that died have left, for the next runs")
        .arg(tenant_arg())
        .arg(switch("dry-run", "Only list what would be removed"))
        .arg(switch("unreferenced", "Also blocks of other programs that the catalogue does not name"))
        .arg(
            Arg::new("delete-delay")
                .long("delete-delay")
                .value_name("DURATION")
                .default_value("12h")
                .help("Age of the deletion mark from which a block is removed; queries that began before need it"),
        )
}

/// Arguments of a run.
struct Rules {
    delete_delay: Duration,
    includes_foreign: bool,
    is_dry_run: bool,
}

/// Result for one tenant.
struct Cleaned {
    tenant: TenantId,
    keys: BlockKeys,
    /// Blocks whose mark is due.
    due: Vec<DueBlock>,
    dropped_marks: usize,
    leftovers: Leftovers,
    marked: Marked,
}

pub(super) fn run(bucket: &Bucket, matches: &ArgMatches) -> anyhow::Result<Outcome> {
    let delay = value(matches, "delete-delay").unwrap_or_default();
    let delay_ms = parse_duration_ms(delay).and_then(|ms| u64::try_from(ms).ok());
    let delay_ms = delay_ms
        .with_context(|| format!("--delete-delay: expected a duration such as 12h, found {delay:?}"))?;
    let rules = Rules {
        delete_delay: Duration::from_millis(delay_ms),
        includes_foreign: matches.get_flag("unreferenced"),
        is_dry_run: matches.get_flag("dry-run"),
    };
    bucket.check_writable()?;
    anyhow::ensure!(
        !rules.includes_foreign || *bucket.store.layout() == BucketLayout::Mimir,
        "--unreferenced: expected the layout mimir; in the layout thanos these are blocks of other writers"
    );
    let tenants = match bucket.tenant(matches)? {
        Some(tenant) => vec![tenant],
        None => tenants(bucket)?,
    };
    let mut bar = Bar::new(&bucket.env, WithoutTerminal::Log);
    let mut all = Vec::new();
    for (done, tenant) in tenants.iter().enumerate() {
        let block_count: usize = all.iter().map(|cleaned: &Cleaned| cleaned.due.len()).sum();
        bar.draw(|seconds| {
            format!("tenant {done} of {}: {tenant}, {block_count} blocks, {seconds} s", tenants.len())
        });
        let cleaned = clean(bucket, tenant, &rules);
        all.push(cleaned.with_context(|| format!("tenant {tenant}; run the command again to go on"))?);
    }
    bar.clear();
    let text = if matches.get_flag("json") { report_json(&all, &rules) } else { report(&all, &rules) };
    Ok(Outcome::sound(text))
}

/// The run on one tenant.
struct TenantGc<'b> {
    bucket: &'b Bucket,
    tenant: &'b TenantId,
    snapshots: Snapshots,
}

impl TenantGc<'_> {
    /// Runs one step within [`STEP_TIMEOUT`].
    fn step<T>(
        &self,
        step: impl AsyncFnOnce(&MaintenanceRun<'_>) -> Result<T, BucketError>,
    ) -> Result<T, BucketError> {
        let Bucket { env, runtime, store } = self.bucket;
        let tenant = self.tenant.clone();
        let request = RequestContext::with_timeout(&*env.clock, tenant, STEP_TIMEOUT, Purpose::Tool);
        let now_ms = env.clock.now_ms();
        let run = MaintenanceRun { store, snapshots: &self.snapshots, request: &request, now_ms };
        runtime.block_on(step(&run))
    }
}

fn clean(bucket: &Bucket, tenant: &TenantId, rules: &Rules) -> anyhow::Result<Cleaned> {
    let gc = TenantGc { bucket, tenant, snapshots: Snapshots::new(bucket.store.clone(), &bucket.env) };
    let mut blocks = Vec::new();
    let mut dropped_marks = 0;
    // A step removes a limited number of blocks, the oldest marks first.
    loop {
        let step = gc.step(async |run| {
            let due = find_due(run, rules.delete_delay).await?;
            let removed = if rules.is_dry_run { Removed::default() } else { remove_due(run, &due).await? };
            Ok((due, removed))
        });
        let (due, removed) = step.context("removing blocks")?;
        blocks.extend(due.into_iter().filter(|block| !block.objects.is_empty()));
        dropped_marks += removed.dropped_marks;
        if removed.blocks.is_empty() {
            break;
        }
    }
    let kept = BTreeSet::new();
    let choice = LeftoverRules { age: LEFTOVER_AGE, kept: &kept, includes_foreign: rules.includes_foreign };
    let step = gc.step(async |run| {
        let leftovers = find_leftovers(run, &choice).await?;
        let marked =
            if rules.is_dry_run { Marked::default() } else { mark_leftovers(run, &leftovers).await? };
        Ok((leftovers, marked))
    });
    let (leftovers, marked) = step.context("searching for leftovers")?;
    let keys = bucket.block_keys(tenant);
    Ok(Cleaned { tenant: tenant.clone(), keys, due: blocks, dropped_marks, leftovers, marked })
}

fn kind_name(kind: LeftoverKind) -> &'static str {
    match kind {
        LeftoverKind::Incomplete => "incomplete",
        LeftoverKind::Unpublished => "unpublished",
        LeftoverKind::Foreign => "unreferenced",
    }
}

fn report(all: &[Cleaned], rules: &Rules) -> String {
    let removed = if rules.is_dry_run { "to remove" } else { "removed" };
    let marked = if rules.is_dry_run { "to mark" } else { "marked" };
    let mut text = String::new();
    let mut block_count = 0;
    let mut bytes = 0;
    for Cleaned { tenant, keys, due, leftovers, .. } in all {
        for block in due {
            let key = keys.of_block(block.mark.ulid);
            let objects = block.objects.len();
            text.push_str(&format!("{key}: {removed}, {objects} objects, {} bytes\n", block.bytes()));
            block_count += 1;
            bytes += block.bytes();
        }
        for folder in &leftovers.folders {
            let kind = kind_name(folder.kind);
            let key = keys.of_block(folder.ulid);
            text.push_str(&format!("{key}: {kind}, {marked}, {} bytes\n", folder.bytes));
        }
        for object in &leftovers.tombstones {
            text.push_str(&format!("{}: {removed}\n", object.key));
        }
        if leftovers.foreign_count > 0 {
            let blocks = leftovers.foreign_count;
            let bytes = leftovers.foreign_bytes;
            // At the top level they belong to other writers.
            let kept = if keys.prefix().is_empty() { "kept" } else { "kept (--unreferenced)" };
            text.push_str(&format!(
                "{tenant}: {blocks} blocks of other programs that the catalogue does not name, {bytes} bytes, {kept}\n"
            ));
        }
    }
    text.push_str(&format!("{} tenants, {block_count} blocks {removed}, {bytes} bytes\n", all.len()));
    text
}

fn report_json(all: &[Cleaned], rules: &Rules) -> String {
    let tenant = |cleaned: &Cleaned| {
        let block = |block: &DueBlock| {
            json!({ "ulid": block.mark.ulid.to_string(), "markedMs": block.mark.marked_ms,
                "objects": block.objects.len(), "bytes": block.bytes() })
        };
        let leftovers = &cleaned.leftovers;
        let folders = leftovers.folders.iter().map(|folder| {
            json!({ "ulid": folder.ulid.to_string(), "kind": kind_name(folder.kind), "bytes": folder.bytes })
        });
        json!({
            "tenant": cleaned.tenant.as_str(),
            "blocks": cleaned.due.iter().map(block).collect::<Vec<Value>>(),
            "leftovers": folders.collect::<Vec<Value>>(),
            "tombstones": leftovers.tombstones.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(),
            "marked": cleaned.marked.folder_count,
            "droppedMarks": cleaned.dropped_marks,
            "foreignBlocks": leftovers.foreign_count,
            "foreignBytes": leftovers.foreign_bytes,
        })
    };
    let tenants: Vec<Value> = all.iter().map(tenant).collect();
    format!("{}\n", json!({ "dryRun": rules.is_dry_run, "tenants": tenants }))
}
