//! `chronolith cluster verify`: checks that each record with samples is in a live block, or in the part of
//! the log that owners have in memory or read again.
//!
//! Invariants: nothing is changed; exit code 1 with a finding, each of which names partition and offset.
//! Memory does not depend on the length of the log.
//! Not here: the check of a partition (`cluster::verify`), content of blocks (`bucket verify`).

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_base::utc::rfc3339_seconds;
use chronolith_cluster::gateway::RecordStore;
use chronolith_cluster::peers::OwnerDirectory;
use chronolith_cluster::verify::{Finding, Verification, VerifyParts, VerifyProgress, verify_partition_with};
use chronolith_cluster::{PartitionId, TopicId, open_log};
use chronolith_ingest::added_labels::source_of;
use chronolith_server::ask_owners;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use super::context::{Outcome, Tool};
use super::owners::Owned;
use crate::progress::{Bar, WithoutTerminal, cells};
use crate::settings::{ToolSettings, add_tool_flags};

pub(super) fn command() -> Command {
    let partition = Arg::new("partition")
        .long("partition")
        .value_name("N")
        .action(ArgAction::Append)
        .value_parser(value_parser!(u32))
        .help("Partition to check, may be repeated; default: all of the log");
    let command = Command::new("verify")
        .about("Check the log against the catalogues of the bucket: no sample may be in neither; exit code 1 if one is")
        .arg(partition);
    add_tool_flags(command, ToolSettings::Cluster)
}

/// A partition that was checked.
struct Checked {
    partition: PartitionId,
    verification: Verification,
    /// Owners that report the partition; none if they were not asked.
    owned: Vec<Owned>,
    findings: Vec<String>,
}

pub(super) fn run(env: &Env, matches: &ArgMatches) -> anyhow::Result<Outcome> {
    let tool = Tool::open(env, matches, ToolSettings::Cluster)?;
    let bucket = tool.bucket()?;
    let options = tool.log().context("--log: expected the address of the log of the cluster")?;
    // Reports come before the end of the log, which only grows: an owner cannot be after it.
    let owners = match tool.owners() {
        Some(options) => Some(ask_owners(env, tool.handle(), options).map_err(anyhow::Error::msg)?),
        None => None,
    };
    let log = open_log(env, tool.handle(), options).context("the replicated log")?;
    let numbers: Vec<u32> = match matches.get_many("partition") {
        Some(numbers) => numbers.copied().collect(),
        None => (0..log.partition_count().context("the replicated log")?).collect(),
    };
    let topic = log.identity();
    let handle = tool.handle().clone();
    let parts = VerifyParts { log, bucket, handle, env: env.clone(), source: source_of };
    let mut bar = Bar::new(env, WithoutTerminal::Log);
    let mut all = Vec::new();
    for number in numbers {
        let partition = PartitionId(number);
        let mut progress = |progress| bar.draw(|seconds| line(partition, progress, seconds));
        let verified = verify_partition_with(&parts, partition, &mut progress);
        let verification = verified.with_context(|| format!("partition {number}"))?;
        all.push(Checked::new(partition, verification, owners.as_ref(), topic));
    }
    bar.clear();
    let is_sound = all.iter().all(|checked| checked.findings.is_empty());
    let text = if matches.get_flag("json") { report_json(&all) } else { report(&all) };
    Ok(Outcome { text, is_sound })
}

fn line(partition: PartitionId, progress: VerifyProgress, seconds: u64) -> String {
    let VerifyProgress { start, next, end } = progress;
    let cells = cells(next.saturating_sub(start), end.saturating_sub(start));
    format!("partition {partition}  {cells}  offset {next} of {end}, {seconds} s")
}

impl Checked {
    fn new(
        partition: PartitionId,
        verification: Verification,
        owners: Option<&OwnerDirectory>,
        topic: TopicId,
    ) -> Checked {
        let mut findings: Vec<String> = verification.findings.iter().map(finding_text).collect();
        let owned = owners.map(|owners| owned_of(owners, partition)).unwrap_or_default();
        if let Some(owners) = owners {
            check_owners(&verification, &owned, &mut findings);
            let others = owners.topics().into_iter().filter(|other| *other != topic);
            findings
                .extend(others.map(|other| format!("an owner reads topic {other}, and the log is {topic}")));
        }
        Checked { partition, verification, owned, findings }
    }

    /// Offsets of records that may have samples in no block.
    fn recent_count(&self) -> u64 {
        self.verification.log.end.saturating_sub(self.verification.resume)
    }
}

fn owned_of(owners: &OwnerDirectory, partition: PartitionId) -> Vec<Owned> {
    let nodes = owners.nodes();
    nodes.iter().flat_map(Owned::of_node).filter(|one| one.partition == partition).collect()
}

/// Compares the records that are in no block with those that owners have or will read.
fn check_owners(verification: &Verification, owned: &[Owned], findings: &mut Vec<String>) {
    let Verification { log, resume, .. } = verification;
    if owned.is_empty() && *resume < log.end {
        findings.push(format!("no owner: offsets {resume} to {} (exclusive) are in no block", log.end));
    }
    for Owned { owner, next, .. } in owned {
        let Some(next) = *next else { continue };
        if next < log.start {
            findings.push(format!("owner {owner} is at offset {next}, and the log starts at {}", log.start));
        }
        if next > log.end {
            findings.push(format!("owner {owner} is at offset {next}, and the log ends at {}", log.end));
        }
    }
}

fn finding_text(finding: &Finding) -> String {
    match finding {
        Finding::LostRecords(lost) => {
            format!("the log lost offsets {} to {} (exclusive), which are in no block", lost.start, lost.end)
        }
        Finding::Unpublished { tenant, store, window, offset } => {
            let (name, unit) = match store {
                RecordStore::Default => ("the default store".to_owned(), store.time_unit()),
                RecordStore::Database(id) => (format!("store {id}"), store.time_unit()),
                RecordStore::Graphite(_) => ("the Graphite store".to_owned(), store.time_unit()),
            };
            let [start, end] = [window.start, window.end].map(|time| rfc3339_seconds(unit.to_ms(time)));
            format!(
                "offset {offset}: samples of {start} to {end} of {name} of tenant {tenant} are in no block, and \
                 no owner reads them again"
            )
        }
        Finding::OtherTopic(topic) => {
            format!("the bucket has the offset of topic {topic}, which is not the log")
        }
        Finding::ResumeAfterEnd => "the offset to resume from is after the end of the log".to_owned(),
    }
}

fn report(all: &[Checked]) -> String {
    let mut text = String::new();
    for checked in all {
        let Checked { partition, verification, findings, .. } = checked;
        for finding in findings {
            text.push_str(&format!("finding: partition {partition}: {finding}\n"));
        }
        let Verification { log, resume, record_count, published_sample_count, .. } = verification;
        let Verification { recent_sample_count, undecodable_count, .. } = verification;
        text.push_str(&format!(
            "partition {partition}: offsets {} to {}, {record_count} records, {published_sample_count} samples \
             before offset {resume} are in blocks, {} offsets after it with {recent_sample_count} samples are \
             of owners, {undecodable_count} \
             records cannot be decoded\n",
            log.start,
            log.end,
            checked.recent_count(),
        ));
    }
    let finding_count: usize = all.iter().map(|checked| checked.findings.len()).sum();
    text.push_str(&format!("verified {} partitions; {finding_count} findings\n", all.len()));
    text
}

fn report_json(all: &[Checked]) -> String {
    let partition = |checked: &Checked| {
        let Verification { log, resume, record_count, published_sample_count, .. } = &checked.verification;
        let Verification { recent_sample_count, undecodable_count, .. } = &checked.verification;
        json!({ "partition": checked.partition.0, "logStart": log.start, "logEnd": log.end, "resumeOffset": resume,
            "records": record_count, "publishedSamples": published_sample_count,
            "recentSamples": recent_sample_count,
            "undecodableRecords": undecodable_count, "findings": checked.findings,
            "owners": checked.owned.iter().map(Owned::json).collect::<Vec<_>>() })
    };
    let partitions: Vec<Value> = all.iter().map(partition).collect();
    format!("{}\n", json!({ "partitions": partitions }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner_at(next: u64) -> Owned {
        let status = json!({ "partition": 0, "nextOffset": next });
        Owned::of_status("a:1", &status).expect("an owner")
    }

    #[track_caller]
    fn check(log: std::ops::Range<u64>, resume: u64, owned: &[Owned], want: &[&str]) {
        let verification = Verification {
            log,
            resume,
            record_count: 0,
            published_sample_count: 0,
            recent_sample_count: 0,
            undecodable_count: 0,
            findings: Vec::new(),
        };
        let mut findings = Vec::new();
        check_owners(&verification, owned, &mut findings);
        assert_eq!(findings, want);
    }

    #[test]
    fn records_in_no_block_need_an_owner_within_the_log() {
        check(5..20, 12, &[owner_at(20)], &[]);
        check(5..20, 12, &[owner_at(7)], &[]);
        check(5..20, 20, &[], &[]);
        check(5..20, 12, &[], &["no owner: offsets 12 to 20 (exclusive) are in no block"]);
        check(5..20, 12, &[owner_at(4)], &["owner a:1 is at offset 4, and the log starts at 5"]);
        check(5..20, 12, &[owner_at(21)], &["owner a:1 is at offset 21, and the log ends at 20"]);
    }
}
