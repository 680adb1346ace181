//! `chronolith bucket ls`: tenants, or the blocks of one.
//! Not here: reading the bucket (`blocks`).

use std::collections::BTreeSet;

use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::Snapshot;
use chronolith_model::TenantId;
use clap::{ArgMatches, Command};
use serde_json::{Value, json};

use super::blocks::{BlockInBucket, look, marks, tenants, ulids};
use super::context::{Bucket, Outcome, tenant_arg};

pub(super) fn command() -> Command {
    Command::new("ls").about("List tenants, or the blocks of a tenant with their counts").arg(tenant_arg())
}

pub(super) fn run(bucket: &Bucket, matches: &ArgMatches) -> anyhow::Result<Outcome> {
    let is_json = matches.get_flag("json");
    match bucket.tenant(matches)? {
        Some(tenant) => all_blocks(bucket, &tenant, is_json),
        None => all_tenants(bucket, is_json),
    }
}

fn all_tenants(bucket: &Bucket, is_json: bool) -> anyhow::Result<Outcome> {
    let mut rows = Vec::new();
    for tenant in tenants(bucket)? {
        let block_count = ulids(bucket, &tenant)?.len();
        rows.push((tenant, block_count));
    }
    if is_json {
        let all: Vec<Value> =
            rows.iter().map(|(id, n)| json!({"tenant": id.as_str(), "blocks": n})).collect();
        return Ok(Outcome::sound(format!("{}\n", json!({ "tenants": all }))));
    }
    let mut text: String = rows.iter().map(|(tenant, n)| format!("{tenant}  {n} blocks\n")).collect();
    let block_count: usize = rows.iter().map(|(_, n)| n).sum();
    text.push_str(&format!("{} tenants, {block_count} blocks\n", rows.len()));
    Ok(Outcome::sound(text))
}

fn all_blocks(bucket: &Bucket, tenant: &TenantId, is_json: bool) -> anyhow::Result<Outcome> {
    let marks = marks(bucket, tenant)?;
    let mut blocks = Vec::new();
    let mut names: BTreeSet<Ulid> = ulids(bucket, tenant)?.into_iter().collect();
    names.extend(marks.recorded());
    for ulid in names {
        blocks.push(look(bucket, tenant, ulid, &marks)?);
    }
    let totals = Totals::of(&blocks);
    if is_json {
        let all: Vec<Value> = blocks.iter().map(block_json).collect();
        let catalogue = marks.catalogue.as_deref().map(catalogue_json);
        let value = json!({ "tenant": tenant.as_str(), "catalogue": catalogue, "blocks": all,
            "totals": totals.json() });
        return Ok(Outcome::sound(format!("{value}\n")));
    }
    let mut text: String = blocks.iter().map(line).collect();
    text.push_str(&totals.line());
    text.extend(marks.catalogue.as_deref().map(catalogue_line));
    Ok(Outcome::sound(text))
}

fn catalogue_line(snapshot: &Snapshot) -> String {
    format!(
        "catalogue {} of {} ms: {} blocks, {} deletion marks\n",
        snapshot.number,
        snapshot.created_ms,
        snapshot.blocks.len(),
        snapshot.deletion_marks.len()
    )
}

fn catalogue_json(snapshot: &Snapshot) -> Value {
    json!({ "number": snapshot.number, "created": snapshot.created_ms, "blocks": snapshot.blocks.len(),
        "deletionMarks": snapshot.deletion_marks.len() })
}

/// Sums over blocks.
#[derive(Default)]
struct Totals {
    blocks: u64,
    left_out: u64,
    series: u64,
    samples: u64,
    chunks: u64,
    bytes: u64,
}

impl Totals {
    fn of(blocks: &[BlockInBucket]) -> Totals {
        let mut totals = Totals::default();
        for block in blocks {
            totals.blocks += 1;
            totals.left_out += u64::from(block.left_out.is_some());
            totals.bytes = totals.bytes.saturating_add(block.bytes());
            let Some(meta) = &block.meta else { continue };
            totals.series = totals.series.saturating_add(meta.stats.num_series);
            totals.samples = totals.samples.saturating_add(meta.stats.num_samples);
            totals.chunks = totals.chunks.saturating_add(meta.stats.num_chunks);
        }
        totals
    }

    fn line(&self) -> String {
        let Totals { blocks, left_out, series, samples, chunks, bytes } = self;
        format!(
            "{blocks} blocks, {left_out} of them left out: {series} series, {samples} samples, {chunks} chunks, \
             {bytes} bytes\n"
        )
    }

    fn json(&self) -> Value {
        json!({ "blocks": self.blocks, "leftOut": self.left_out, "series": self.series,
            "samples": self.samples, "chunks": self.chunks, "bytes": self.bytes })
    }
}

fn line(block: &BlockInBucket) -> String {
    let mut text = block.ulid.to_string();
    if let Some(meta) = &block.meta {
        let stats = &meta.stats;
        text.push_str(&format!(
            " {}..{}: {} series, {} samples, {} chunks, {} bytes, level {}, {} sources",
            meta.min_time,
            meta.max_time,
            stats.num_series,
            stats.num_samples,
            stats.num_chunks,
            block.bytes(),
            meta.compaction.level,
            meta.compaction.sources.len()
        ));
    } else {
        text.push_str(&format!(": {} bytes", block.bytes()));
    }
    if block.record.is_some() {
        text.push_str(", in the catalogue");
    }
    if block.is_marked {
        text.push_str(", deletion mark");
    }
    match &block.left_out {
        Some(why) => text.push_str(&format!("; left out: {why}\n")),
        None => text.push('\n'),
    }
    text
}

/// A block for programs.
pub(super) fn block_json(block: &BlockInBucket) -> Value {
    let meta = block.meta.as_ref().map(|meta| {
        json!({ "minTime": meta.min_time, "maxTime": meta.max_time, "series": meta.stats.num_series,
            "samples": meta.stats.num_samples, "chunks": meta.stats.num_chunks,
            "level": meta.compaction.level,
            "sources": meta.compaction.sources.iter().map(ToString::to_string).collect::<Vec<_>>() })
    });
    let mut value = json!({ "ulid": block.ulid.to_string(), "bytes": block.bytes(),
        "inCatalogue": block.record.is_some(), "deletionMark": block.is_marked, "leftOut": block.left_out });
    if let (Some(value), Some(Value::Object(meta))) = (value.as_object_mut(), meta) {
        value.extend(meta);
    }
    value
}
