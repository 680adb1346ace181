//! Owners of partitions with their positions in the log, from reports of owners or the status of a server.
//!
//! Not here: requests (`status`), calls to owners (`chronolith-server`).

use chronolith_cluster::PartitionId;
use chronolith_cluster::peers::{NodeStatus, PartitionReport};
use serde_json::{Value, json};

use crate::table::{Column, aligned};

const COLUMNS: [Column; 9] = [
    Column::Number("PARTITION"),
    Column::Text("OWNER"),
    Column::Text("READY"),
    Column::Number("LAG"),
    Column::Number("NEXT"),
    Column::Number("RESUME"),
    Column::Number("LOG START"),
    Column::Number("DISTANCE"),
    Column::Number("REFUSED"),
];

/// Owner of a partition as it reports itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Owned {
    pub(super) partition: PartitionId,
    /// Address or URL.
    pub(super) owner: String,
    /// Reason why queries ask another owner; `None` = ready.
    pub(super) not_ready: Option<String>,
    pub(super) lag_seconds: Option<f64>,
    /// Offset of the next record.
    pub(super) next: Option<u64>,
    /// Oldest record with a sample in no live block.
    pub(super) resume: Option<u64>,
    /// First offset of the log.
    pub(super) log_start: Option<u64>,
    /// Records that could not be applied.
    pub(super) refused_count: Option<u64>,
}

impl Owned {
    /// Partitions of a node of the directory.
    pub(super) fn of_node(node: &NodeStatus) -> impl Iterator<Item = Owned> {
        node.partitions.iter().map(|report| Owned::of_report(&node.address, report))
    }

    fn of_report(owner: &str, report: &PartitionReport) -> Owned {
        let progress = report.progress;
        Owned {
            partition: report.partition,
            owner: owner.to_owned(),
            not_ready: report.not_ready.clone(),
            lag_seconds: progress.map(|progress| progress.lag_ms as f64 / 1000.0),
            next: report.next_offset,
            resume: progress.and_then(|progress| progress.resume),
            log_start: progress.map(|progress| progress.log_start),
            refused_count: progress.map(|progress| progress.refused_count),
        }
    }

    /// A partition in `/api/v1/status/cluster`: of the server itself, or of an owner of a query node.
    pub(super) fn of_status(owner: &str, status: &Value) -> Option<Owned> {
        let number = status["partition"].as_u64().and_then(|number| u32::try_from(number).ok())?;
        Some(Owned {
            partition: PartitionId(number),
            owner: owner.to_owned(),
            not_ready: status["notReady"].as_str().map(str::to_owned),
            lag_seconds: status["lagSeconds"].as_f64(),
            next: status["nextOffset"].as_u64(),
            resume: status["resumeOffset"].as_u64(),
            log_start: status["logStart"].as_u64(),
            refused_count: status["refusedRecords"].as_u64(),
        })
    }

    /// Offsets that the log may lose before it loses a sample that is in no block.
    fn distance(&self) -> Option<u64> {
        Some(self.resume?.saturating_sub(self.log_start?))
    }

    pub(super) fn json(&self) -> Value {
        json!({ "partition": self.partition.0, "owner": self.owner, "notReady": self.not_ready,
            "lagSeconds": self.lag_seconds, "nextOffset": self.next, "resumeOffset": self.resume,
            "logStart": self.log_start, "logStartDistance": self.distance(),
            "refusedRecords": self.refused_count })
    }
}

/// Rows for people: owners by partition, and partitions without one.
pub(super) fn table(owned: &[Owned], without_owner: &[PartitionId]) -> String {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let row = |one: &Owned| {
        [
            one.partition.to_string(),
            one.owner.clone(),
            one.not_ready.as_ref().map_or_else(|| "yes".to_owned(), |why| format!("no: {why}")),
            one.lag_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}s")),
            number(one.next),
            number(one.resume),
            number(one.log_start),
            number(one.distance()),
            number(one.refused_count),
        ]
    };
    let mut rows: Vec<(PartitionId, [String; COLUMNS.len()])> =
        owned.iter().map(|one| (one.partition, row(one))).collect();
    rows.extend(without_owner.iter().map(|partition| {
        let mut cells = COLUMNS.map(|_| "-".to_owned());
        cells[0] = partition.to_string();
        cells[2] = "no owner".to_owned();
        (*partition, cells)
    }));
    rows.sort_by_key(|(partition, _)| *partition);
    let rows: Vec<[String; COLUMNS.len()]> = rows.into_iter().map(|(_, cells)| cells).collect();
    aligned(COLUMNS, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_rows_by_partition_and_missing_ones_have_a_row() {
        let status = json!({ "partition": 2, "notReady": "lag of 9000 ms", "lagSeconds": 9.04, "nextOffset": 50,
            "resumeOffset": 30, "logStart": 10, "refusedRecords": 1 });
        let late = Owned::of_status("b:1", &status).expect("an owner");
        let report = PartitionReport {
            partition: PartitionId(0),
            next_offset: None,
            not_ready: None,
            is_log_away: false,
            progress: None,
            series: Vec::new(),
        };
        let first = Owned::of_report("a:1", &report);
        let want = "\
PARTITION  OWNER  READY                LAG  NEXT  RESUME  LOG START  DISTANCE  REFUSED
        0  a:1    yes                    -     -       -          -         -        -
        1  -      no owner               -     -       -          -         -        -
        2  b:1    no: lag of 9000 ms  9.0s    50      30         10        20        1
";
        assert_eq!(table(&[late.clone(), first], &[PartitionId(1)]), want);
        assert_eq!(late.json()["logStartDistance"], 20);
        assert_eq!(Owned::of_status("c:1", &Value::Null), None, "a server that owns no partition");
    }
}
