//! `chronolith cluster partitions list|add|drain|remove`: the partitions that accept writes, and changes of
//! them.
//!
//! Invariant: a change is one new snapshot of the partition map, or none and an error that names the
//! partition.
//! Not here: the rules of the map (`model::partition`), partitions of the topic, which Kafka's tools add.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_base::utc::rfc3339_seconds;
use chronolith_bucket::Store;
use chronolith_cluster::owner::stored_resume;
use chronolith_cluster::partition_changes::{change_map, newest_map};
use chronolith_cluster::partition_maps::PartitionsSnapshot;
use chronolith_cluster::partition_states::{PartitionState, partition_states};
use chronolith_cluster::verify::{VerifyParts, verify_partition};
use chronolith_cluster::{PartitionId, log_partition_count, open_log};
use chronolith_ingest::added_labels::source_of;
use chronolith_model::partition::PartitionChange;
use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use super::context::{Outcome, Tool, with_json};
use super::deletions::open_deletions;
use crate::settings::{ToolSettings, add_tool_flags};
use crate::table::{Column, aligned};

/// Time after a drain in which gateways may have an older partition map and requests under way.
const WRITES_AFTER_DRAIN_MAX: Duration = Duration::from_secs(60);
const COLUMNS: [Column; 5] = [
    Column::Number("PARTITION"),
    Column::Text("STATE"),
    Column::Text("SINCE"),
    Column::Text("OWNER NEEDED UNTIL"),
    Column::Number("RESUME"),
];

pub(super) fn command() -> Command {
    let numbers = |help: &'static str| {
        let arg = Arg::new("number").value_name("N").required(true).num_args(1..);
        arg.value_parser(value_parser!(u32)).help(help)
    };
    let list = Command::new("list")
        .about("List partitions: which ones accept writes, since when, and from where an owner reads");
    let add = Command::new("add")
        .about("Let partitions accept writes; start their owners first")
        .arg(numbers("Numbers of partitions that the log has; with --log this is checked"));
    let drain = Command::new("drain")
        .about("Let partitions accept no further writes; their owners run on for 12 hours")
        .arg(numbers("Numbers of partitions that accept writes"));
    let remove = Command::new("remove")
        .about("Forget drained partitions whose samples are all in blocks; stop their owners afterwards")
        .arg(numbers("Numbers of drained partitions; their logs are read to the end"));
    let with_settings = |command| with_json(add_tool_flags(command, ToolSettings::BucketAndLog));
    Command::new("partitions")
        .about("List, add, drain and remove partitions, in the partition map of the bucket")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([list, add, drain, remove].map(with_settings))
}

/// A partition as it is shown.
struct Row {
    state: PartitionState,
    /// Offset from which on an owner without a directory reads.
    resume: Option<u64>,
}

pub(super) fn run(env: &Env, matches: &ArgMatches) -> anyhow::Result<Outcome> {
    let (action, matches) = matches.subcommand().context("expected a subcommand")?;
    let tool = Tool::open(env, matches, ToolSettings::BucketAndLog)?;
    let bucket = tool.bucket()?;
    let numbers = || -> Vec<u32> { matches.get_many("number").into_iter().flatten().copied().collect() };
    let snapshot = match action {
        "add" => {
            let numbers = numbers();
            check_log(&tool, &numbers)?;
            change(&tool, &bucket, PartitionChange::Add(&numbers))?
        }
        "remove" => {
            let numbers = numbers();
            check_deletions(&tool, &bucket, &numbers)?;
            check_published(&tool, &bucket, &numbers)?;
            change(&tool, &bucket, PartitionChange::Remove(&numbers))?
        }
        "drain" => change(&tool, &bucket, PartitionChange::Drain(&numbers()))?,
        _ => {
            let newest = newest_map(&bucket, env, tool.handle()).context("reading the partition map")?;
            newest.with_context(|| {
                let url = bucket.url();
                format!("{url} has no partition map: the first gateway creates it, or partitions add")
            })?
        }
    };
    let mut rows = Vec::new();
    for state in partition_states(&snapshot.map) {
        let stored = stored_resume(&bucket, env, tool.handle(), state.partition);
        let stored =
            stored.with_context(|| format!("reading the offset of partition {}", state.partition))?;
        rows.push(Row { state, resume: stored.map(|position| position.offset) });
    }
    let is_json = matches.get_flag("json");
    let text = if is_json { list_json(&snapshot, &rows) } else { list_text(&snapshot, &rows) };
    Ok(Outcome { text, is_sound: true })
}

fn change(
    tool: &Tool,
    bucket: &Arc<Store>,
    change: PartitionChange<'_>,
) -> anyhow::Result<Arc<PartitionsSnapshot>> {
    change_map(bucket, &tool.env, tool.handle(), change).context("the partition map was not changed")
}

/// Checks that the log has the partitions, if there is `--log`.
fn check_log(tool: &Tool, numbers: &[u32]) -> anyhow::Result<()> {
    let Some(options) = tool.log() else {
        crate::log::print("chronolith: without --log, the partitions of the log are not checked");
        return Ok(());
    };
    let count = log_partition_count(&tool.env, tool.handle(), options).context("the replicated log")?;
    let missing = numbers.iter().find(|number| **number >= count);
    match missing {
        None => Ok(()),
        Some(number) => anyhow::bail!(
            "partition {number}: the log has {count} partitions, expected more than {number}; add them to the \
             topic first, with kafka-topics.sh --alter --partitions or the tool of your broker"
        ),
    }
}

/// Checks that no open deletion waits for partitions, whose owners are stopped afterwards.
fn check_deletions(tool: &Tool, bucket: &Arc<Store>, numbers: &[u32]) -> anyhow::Result<()> {
    let open = open_deletions(bucket, &tool.env, tool.handle()).context("reading the list of deletions")?;
    for (number, deletion) in numbers.iter().flat_map(|number| open.iter().map(move |one| (*number, one))) {
        anyhow::ensure!(
            !deletion.waits_for(PartitionId(number)),
            "partition {number}: deletion {} waits until its owner has passed the record",
            deletion.number()
        );
    }
    Ok(())
}

/// Checks that partitions were drained long enough ago, and that no sample of them is in an owner alone.
fn check_published(tool: &Tool, bucket: &Arc<Store>, numbers: &[u32]) -> anyhow::Result<()> {
    let options = tool.log().context("--log: expected the address of the log, which is read to its end")?;
    let newest = newest_map(bucket, &tool.env, tool.handle()).context("reading the partition map")?;
    let states = newest.map(|snapshot| partition_states(&snapshot.map)).unwrap_or_default();
    let log = open_log(&tool.env, tool.handle(), options).context("the replicated log")?;
    let parts = VerifyParts {
        log,
        bucket: bucket.clone(),
        handle: tool.handle().clone(),
        env: tool.env.clone(),
        source: source_of,
    };
    for &number in numbers {
        let state = states.iter().find(|state| state.partition == PartitionId(number));
        // The change refuses all others.
        let Some(state) = state.filter(|state| !state.is_accepting) else { continue };
        let drained = Duration::from_millis(elapsed_ms(state.since_ms, tool.env.clock.now_ms()));
        anyhow::ensure!(
            drained >= WRITES_AFTER_DRAIN_MAX,
            "partition {number} was drained {} s ago, and gateways may write to it for {} s",
            drained.as_secs(),
            WRITES_AFTER_DRAIN_MAX.as_secs()
        );
        let verification = verify_partition(&parts, PartitionId(number));
        let verification = verification.with_context(|| format!("partition {number}"))?;
        let recent = verification.recent_sample_count;
        anyhow::ensure!(
            recent == 0,
            "partition {number}: {recent} samples may be in no block; its owner has to run until its last \
             windows are cut and published"
        );
        let findings = verification.findings.len();
        anyhow::ensure!(
            findings == 0,
            "partition {number}: {findings} findings, which chronolith cluster verify lists"
        );
    }
    Ok(())
}

fn elapsed_ms(since_ms: i64, now_ms: i64) -> u64 {
    u64::try_from(now_ms.saturating_sub(since_ms)).unwrap_or(0)
}

fn state_name(state: &PartitionState) -> &'static str {
    if state.is_accepting { "accepting" } else { "drained" }
}

fn list_text(snapshot: &PartitionsSnapshot, rows: &[Row]) -> String {
    let row = |Row { state, resume }: &Row| {
        [
            state.partition.to_string(),
            state_name(state).to_owned(),
            rfc3339_seconds(state.since_ms),
            state.owner_needed_until_ms().map(rfc3339_seconds).unwrap_or_default(),
            resume.map_or_else(|| "-".to_owned(), |offset| offset.to_string()),
        ]
    };
    let rows: Vec<[String; COLUMNS.len()]> = rows.iter().map(row).collect();
    let accepting = snapshot.map.accepting().len();
    let number = snapshot.stamp.number;
    format!("{}{accepting} partitions accept writes; partition map {number}\n", aligned(COLUMNS, &rows))
}

fn list_json(snapshot: &PartitionsSnapshot, rows: &[Row]) -> String {
    let row = |Row { state, resume }: &Row| {
        json!({ "partition": state.partition.0, "state": state_name(state), "since": rfc3339_seconds(state.since_ms),
            "ownerNeededUntil": state.owner_needed_until_ms().map(rfc3339_seconds), "resumeOffset": resume })
    };
    let rows: Vec<Value> = rows.iter().map(row).collect();
    format!("{}\n", json!({ "partitionMap": snapshot.stamp.number, "partitions": rows }))
}
