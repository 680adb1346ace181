//! `chronolith bucket inspect`: one block with `meta.json` in short, objects and marks.
//! Not here: reading the bucket (`blocks`).

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};
use serde_json::{Value, json};

use super::blocks::{BlockInBucket, look, marks};
use super::context::{Bucket, Outcome, parse_ulids, tenant_arg};
use super::ls::block_json;

pub(super) fn command() -> Command {
    Command::new("inspect")
        .about("Show one block: counts, objects with sizes, Thanos section, marks")
        .arg(tenant_arg())
        .arg(Arg::new("ulid").value_name("ULID").required(true).help("Block"))
}

pub(super) fn run(bucket: &Bucket, matches: &ArgMatches) -> anyhow::Result<Outcome> {
    let tenant = bucket.one_tenant(matches)?;
    let named = parse_ulids(matches.get_many("ulid").into_iter().flatten())?;
    let ulid = *named.first().context("the block is missing")?;
    let block = look(bucket, &tenant, ulid, &marks(bucket, &tenant)?)?;
    anyhow::ensure!(
        !block.objects.is_empty(),
        "no objects of block {}; `chronolith bucket ls` lists the blocks of a tenant",
        bucket.block_key(&tenant, ulid)
    );
    let text =
        if matches.get_flag("json") { format!("{}\n", block_as_json(&block)) } else { text_of(&block) };
    Ok(Outcome::sound(text))
}

fn block_as_json(block: &BlockInBucket) -> Value {
    let mut value = block_json(block);
    let objects = block.objects.iter().map(|object| json!({ "name": object.name, "bytes": object.bytes }));
    let thanos = block.thanos.as_ref().map(|thanos| {
        json!({ "labels": thanos.labels, "resolution": thanos.downsample.resolution, "source": thanos.source })
    });
    let record = block.record.as_ref().map(|record| {
        json!({ "uploaded": record.uploaded_ms, "sidecarBytes": record.sidecar.map(|sidecar| sidecar.len),
            "tombstones": record.tombstones.as_ref().map(|tombstones| tombstones.name.clone()) })
    });
    if let Some(value) = value.as_object_mut() {
        value.insert("catalogue".to_owned(), record.unwrap_or_default());
        value.insert("objects".to_owned(), objects.collect());
        value.insert("thanos".to_owned(), thanos.unwrap_or_default());
    }
    value
}

fn text_of(block: &BlockInBucket) -> String {
    let mut text = format!("block {}\n", block.ulid);
    if let Some(meta) = &block.meta {
        let stats = &meta.stats;
        let compaction = &meta.compaction;
        text.push_str(&format!("time range: {}..{}\n", meta.min_time, meta.max_time));
        text.push_str(&format!("series: {}\n", stats.num_series));
        text.push_str(&format!("samples: {}\n", stats.num_samples));
        text.push_str(&format!("chunks: {}\n", stats.num_chunks));
        let sources: Vec<String> = compaction.sources.iter().map(ToString::to_string).collect();
        text.push_str(&format!("level: {}\nsources: {}\n", compaction.level, sources.join(" ")));
    }
    if let Some(thanos) = &block.thanos {
        let labels: Vec<String> =
            thanos.labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        text.push_str(&format!("thanos labels: {{{}}}\n", labels.join(", ")));
        text.push_str(&format!("thanos source: {}\n", thanos.source));
        text.push_str(&format!("thanos resolution: {} ms\n", thanos.downsample.resolution));
    }
    if let Some(record) = &block.record {
        text.push_str(&format!("in the catalogue: uploaded at {} ms\n", record.uploaded_ms));
        if let Some(sidecar) = &record.sidecar {
            text.push_str(&format!("sidecar: {} bytes, head of {} bytes\n", sidecar.len, sidecar.head_len));
        }
        if let Some(tombstones) = &record.tombstones {
            text.push_str(&format!("tombstones: {} {} bytes\n", tombstones.name, tombstones.len));
        }
    }
    text.push_str(&format!("deletion mark: {}\n", if block.is_marked { "yes" } else { "no" }));
    if let Some(why) = &block.left_out {
        text.push_str(&format!("left out: {why}\n"));
    }
    for object in &block.objects {
        text.push_str(&format!("object: {} {} bytes\n", object.name, object.bytes));
    }
    text
}
