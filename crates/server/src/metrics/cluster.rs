//! Metrics of the gateway, of the lease of rules and of the owner of a process with a replicated log.
//! Not here: counting (`cluster`, `replicated_log`).

use chronolith_cluster::gateway::GatewayStats;
use chronolith_cluster::owner::OwnerStatus;
use chronolith_cluster::rule_lease::RuleLeaseStats;
use chronolith_service::metrics::definition::Metric;

pub(crate) static GATEWAY: &[Metric<GatewayStats>] = &[
    Metric::gauge("chronolith_gateway_partitions", "Partitions that accept writes.", |gateway| {
        gateway.partition_count as f64
    }),
    Metric::gauge(
        "chronolith_gateway_partition_map_number",
        "Number of the partition map in use, 0 before it is read.",
        |gateway| gateway.map_number as f64,
    ),
    Metric::counter(
        "chronolith_gateway_partition_map_failures_total",
        "Reads of the partition map that failed.",
        |gateway| gateway.map_failures as f64,
    ),
    Metric::counter(
        "chronolith_gateway_tick_failures_total",
        "Rounds of ticks that the log did not acknowledge.",
        |gateway| gateway.tick_failures as f64,
    ),
    Metric::gauge(
        "chronolith_gateway_checked_keys",
        "Wire keys in memory whose labels were valid.",
        |gateway| gateway.checked_keys as f64,
    ),
    Metric::gauge(
        "chronolith_gateway_counted_tenants",
        "Tenants whose series counts owners report; 0 without owners, and while none of them reports.",
        |gateway| gateway.counted_tenant_count as f64,
    ),
    Metric::gauge(
        "chronolith_gateway_full_tenants",
        "Tenants with as many series as series-limit allows, as owners report them: their new series are refused.",
        |gateway| gateway.full_tenant_count as f64,
    ),
    Metric::counter(
        "chronolith_log_appended_records_total",
        "Records that the replicated log has acknowledged.",
        |gateway| gateway.log.appended_records as f64,
    ),
    Metric::counter(
        "chronolith_log_appended_bytes_total",
        "Bytes of records that the replicated log has acknowledged, before compression.",
        |gateway| gateway.log.appended_bytes as f64,
    ),
    Metric::counter(
        "chronolith_log_refused_records_total",
        "Appends that ended without the record in the replicated log.",
        |gateway| gateway.log.refused_records as f64,
    ),
    Metric::counter(
        "chronolith_log_possibly_written_records_total",
        "Appends without an acknowledgement whose record may be in the replicated log.",
        |gateway| gateway.log.possibly_written_records as f64,
    ),
    Metric::gauge(
        "chronolith_log_in_flight_bytes",
        "Bytes of records that wait for their acknowledgement.",
        |gateway| gateway.log.in_flight_bytes as f64,
    ),
    Metric::gauge(
        "chronolith_log_in_flight_limit_bytes",
        "Bytes of records that may wait for their acknowledgement.",
        |gateway| gateway.log.in_flight_bytes_max as f64,
    ),
];

pub(crate) static RULE_LEASE: &[Metric<RuleLeaseStats>] = &[
    Metric::gauge(
        "chronolith_rule_lease_held",
        "1 while this process evaluates the rules of the cluster.",
        |lease| f64::from(u8::from(lease.term.is_some())),
    ),
    Metric::counter(
        "chronolith_rule_lease_terms_total",
        "Times that this process has begun to evaluate the rules of the cluster.",
        |lease| lease.terms as f64,
    ),
    Metric::counter(
        "chronolith_rule_lease_failures_total",
        "Requests for the lease of rules or for states of groups that failed, as the bucket did not answer.",
        |lease| lease.failures as f64,
    ),
    Metric::counter(
        "chronolith_rule_lease_rounds_given_up_total",
        "Rounds that ended without an effect, since the lease of rules was over by then.",
        |lease| lease.given_up_rounds as f64,
    ),
];

pub(crate) static OWNER: &[Metric<OwnerStatus>] = &[
    Metric::optional_gauge(
        "chronolith_owner_next_offset",
        "Offset of the next record to apply; none before the first read.",
        |owner| owner.next_offset.map(|offset| offset as f64),
    ),
    Metric::gauge(
        "chronolith_owner_log_start_offset",
        "First offset of the partition in the log.",
        |owner| owner.log_start as f64,
    ),
    Metric::gauge(
        "chronolith_owner_log_end_offset",
        "Offset that the next record of the partition gets.",
        |owner| owner.log_end as f64,
    ),
    Metric::gauge(
        "chronolith_owner_lag_seconds",
        "Age of the last applied record while there are later ones, else 0.",
        |owner| owner.lag_ms as f64 / 1000.0,
    ),
    Metric::optional_gauge(
        "chronolith_owner_log_time_seconds",
        "Time of the partition, since 1970: the newest arrival time of its records.",
        |owner| owner.log_time_ms.map(|time_ms| time_ms as f64 / 1000.0),
    ),
    Metric::counter(
        "chronolith_owner_applied_records_total",
        "Records of the partition that were applied.",
        |owner| owner.applied_count as f64,
    ),
    Metric::counter(
        "chronolith_owner_refused_records_total",
        "Records that could not be applied; their bytes are in the bucket.",
        |owner| owner.refused_count as f64,
    ),
    Metric::counter(
        "chronolith_owner_dropped_store_records_total",
        "Records that were passed over because their database was dropped after they were written.",
        |owner| owner.dropped_store_count as f64,
    ),
    Metric::counter(
        "chronolith_owner_accepted_samples_total",
        "Samples of records that were stored, repeats included.",
        |owner| owner.accepted_count as f64,
    ),
    Metric::counter(
        "chronolith_owner_rejected_samples_total",
        "Samples of records that were rejected: another value, out of order, beyond a limit.",
        |owner| owner.rejected_count as f64,
    ),
    Metric::counter(
        "chronolith_owner_clock_ahead_records_total",
        "Records whose arrival time is far ahead of the time of the log.",
        |owner| owner.ahead_count as f64,
    ),
    Metric::gauge(
        "chronolith_owner_waiting",
        "1 if the owner waits for the log or the bucket, or has stopped.",
        |owner| f64::from(u8::from(owner.fault.is_some())),
    ),
    Metric::gauge("chronolith_owner_open_windows", "Windows with samples that were not cut.", |owner| {
        owner.cuts.open_window_count as f64
    }),
    Metric::gauge(
        "chronolith_owner_held_cuts",
        "Cuts whose samples are in memory: not published yet, or not long enough for all readers.",
        |owner| owner.cuts.held_cut_count as f64,
    ),
    Metric::optional_gauge(
        "chronolith_owner_resume_offset",
        "Oldest record with a sample in no block; the log must not remove it.",
        |owner| owner.cuts.resume.map(|offset| offset as f64),
    ),
    Metric::counter(
        "chronolith_owner_published_blocks_total",
        "Blocks of cuts that this owner has published.",
        |owner| owner.cuts.published_block_count as f64,
    ),
    Metric::gauge(
        "chronolith_owner_publication_failing",
        "1 if the last publication of cuts failed; writes and queries of recent samples go on.",
        |owner| f64::from(u8::from(owner.cuts.fault.is_some())),
    ),
    Metric::gauge(
        "chronolith_owner_open_deletions",
        "Deletions of samples in the cluster that are not done, as this owner has read their list.",
        |owner| owner.deletions.open_count as f64,
    ),
    Metric::optional_gauge(
        "chronolith_owner_oldest_open_deletion_timestamp_seconds",
        "Time since 1970 at which the oldest deletion that is not done was begun; none without one.",
        |owner| owner.deletions.oldest_ms.map(|time_ms| time_ms as f64 / 1000.0),
    ),
    Metric::gauge(
        "chronolith_owner_listed_deletions",
        "Deletions in the list of the cluster, which has room for 1,000; those that are done stay for a day.",
        |owner| owner.deletions.listed_count as f64,
    ),
    Metric::gauge(
        "chronolith_owner_cut_waits_for_deletion",
        "1 if a cut is not published before a deletion of its store is done.",
        |owner| f64::from(u8::from(owner.cuts.waits_for_deletion.is_some())),
    ),
];
