//! A gateway over a simulated log and a bucket in memory.

mod faults;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use chronolith_base::{ManualClock, MemDisk};
use chronolith_bucket::snapshots::Snapshots;
use chronolith_bucket::{Folder, Purpose, RequestContext, StoreConfig};
use chronolith_format::bucket::NumberedSnapshot as _;
use chronolith_format::bucket::databases::DatabasesSnapshot;
use chronolith_format::bucket::partitions::PartitionsSnapshot;
use chronolith_format::record::{Record, decode_record};
use chronolith_ingest::added_labels::source_of;
use chronolith_model::batch::BatchExemplar;
use chronolith_model::partition::PartitionChange;
use chronolith_model::{
    DuplicatePolicy, Exemplar, IngestionLimits, Labels, LabelsBuilder, MetadataEntry, MetricKind,
};
use chronolith_replicated_log::sim::{SimFaults, SimOptions, SimTopic};
use chronolith_replicated_log::{LogError, PartitionId};
use tokio::runtime::Runtime;

use super::*;
use crate::partition_changes::change_map;
use crate::partition_states::DRAINED_TIME;

const NOW_MS: i64 = 1_795_132_800_000;
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads"));

/// A gateway with its log and bucket.
struct Cluster {
    env: Env,
    clock: Arc<ManualClock>,
    topic: SimTopic,
    bucket: Arc<Store>,
    memory: MemoryBudget,
    limits: LimitsTable,
    options: GatewayOptions,
}

impl Cluster {
    fn new(partition_count: u32) -> Cluster {
        Cluster::with(SimOptions::new(partition_count, 1))
    }

    fn with(topic: SimOptions) -> Cluster {
        let (env, clock, _disk): (Env, Arc<ManualClock>, Arc<MemDisk>) = Env::fake(NOW_MS, topic.seed);
        let config = StoreConfig::new("memory://");
        Cluster {
            topic: SimTopic::new(clock.clone(), topic),
            bucket: Arc::new(Store::open(&config, &env, RUNTIME.handle().clone()).expect("a bucket")),
            memory: MemoryBudget::new("records of the log", 8 << 20),
            limits: LimitsTable::default(),
            options: GatewayOptions::default(),
            env,
            clock,
        }
    }

    fn unready_gateway(&self) -> Gateway {
        let parts = GatewayParts {
            log: Arc::new(self.topic.connect().expect("is reachable")),
            bucket: self.bucket.clone(),
            handle: RUNTIME.handle().clone(),
            memory: self.memory.clone(),
            limits: self.limits.clone(),
        };
        Gateway::new(&self.env, parts, self.options)
    }

    fn gateway(&self) -> Gateway {
        let gateway = self.unready_gateway();
        gateway.refresh().expect("a partition map");
        gateway
    }

    /// All records of the log, decoded, in the order of partitions.
    fn records(&self) -> Vec<Found> {
        self.topic.finish_arrivals();
        let count = self.topic.connect().expect("is reachable").partition_count().expect("partitions");
        let mut found = Vec::new();
        for partition in 0..count {
            for record in self.topic.records(PartitionId(partition)) {
                let mut batch = WriteBatch::from_labels();
                let content = decode_record(&record.value, source_of, &mut batch).expect("a record");
                let Record::Samples { origin, duplicates } = content else { panic!("{content:?}") };
                found.push(Found { partition, offset: record.offset, origin, duplicates, batch });
            }
        }
        found
    }
}

/// A record of samples.
struct Found {
    partition: u32,
    offset: u64,
    origin: RecordOrigin,
    duplicates: DuplicatePolicy,
    batch: WriteBatch,
}

impl Found {
    /// Samples by series: time, value.
    fn samples(&self) -> Vec<(String, i64, u64)> {
        let mut samples = Vec::new();
        for (idx, series) in self.batch.series.iter().enumerate() {
            let mut labels = LabelsBuilder::new();
            (self.batch.source.parse)(self.batch.key_of(idx), &mut labels).expect("labels");
            labels.sort();
            let labels = labels.finish().to_string();
            for at in series.samples.start as usize..series.samples.end as usize {
                samples.push((labels.clone(), self.batch.times[at], self.batch.values[at].to_bits()));
            }
        }
        samples
    }
}

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("a tenant id")
}

fn write_of(tenant: &TenantId) -> GatewayWrite<'_> {
    GatewayWrite {
        tenant,
        store: RecordStore::Default,
        request_id: &"r1",
        arrival_ms: NOW_MS,
        duplicates: None,
    }
}

fn labels_of(idx: usize) -> Labels {
    Labels::from_pairs([("__name__", "up"), ("instance", &format!("host-{idx}:9100"))])
}

fn batch_of(series_count: usize, time_ms: i64) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    (0..series_count).for_each(|idx| batch.push_labels(&labels_of(idx), &[(time_ms, idx as f64)]));
    batch
}

/// Samples of [`batch_of`].
fn samples_of(series_count: usize, time_ms: i64) -> Vec<(String, i64, u64)> {
    let sample = |idx: usize| (labels_of(idx).to_string(), time_ms, (idx as f64).to_bits());
    let mut samples: Vec<_> = (0..series_count).map(sample).collect();
    samples.sort();
    samples
}

fn all_samples(records: &[Found]) -> Vec<(String, i64, u64)> {
    let mut samples: Vec<_> = records.iter().flat_map(Found::samples).collect();
    samples.sort();
    samples
}

#[test]
fn records_have_the_samples_and_the_request_and_the_answer_their_offsets() {
    let mut cluster = Cluster::new(3);
    cluster.options.partition_series = 20_000_000;
    let gateway = cluster.gateway();
    let team = tenant("team-1");
    let pending = gateway.append(write_of(&team), &batch_of(60, NOW_MS)).expect("appended");
    let later = gateway.append(write_of(&team), &batch_of(60, NOW_MS + 1)).expect("appended");
    let Acknowledged { outcome, offsets } = pending.join(later).wait().expect("acknowledged");
    assert_eq!((outcome.accepted_count, outcome.rejected_count()), (120, 0));
    let records = cluster.records();
    let mut want = samples_of(60, NOW_MS);
    want.extend(samples_of(60, NOW_MS + 1));
    want.sort();
    assert_eq!(all_samples(&records), want);
    let topic = cluster.topic.connect().expect("is reachable").identity();
    let mut newest = BTreeMap::new();
    for record in &records {
        assert_eq!(record.origin.tenant, team);
        assert_eq!((&*record.origin.request_id, record.origin.arrival_ms), ("r1", NOW_MS));
        assert_eq!(record.duplicates, DuplicatePolicy::KeepFirst);
        newest.insert(record.partition, record.offset);
    }
    assert_eq!(newest.len(), 3, "50 million series are three times 20 million");
    let texts: Vec<String> =
        newest.iter().map(|(number, offset)| format!("{topic}:{number}:{offset}")).collect();
    assert_eq!(offsets.to_header(), Some(texts.join(",")));
    assert_eq!(cluster.memory.used_bytes(), 0, "records that are acknowledged hold no memory");
    let stats = gateway.stats();
    assert_eq!((stats.log.appended_records, stats.map_number, stats.partition_count), (6, 1, 3));
}

#[test]
fn a_series_keeps_its_partition_at_every_gateway_and_tenants_have_their_own() {
    let mut cluster = Cluster::new(8);
    cluster.options.tenant_partitions_min = 2;
    cluster.limits.default.series_max = 1000;
    for gateway in [cluster.gateway(), cluster.gateway()] {
        for name in ["a", "b", "c"] {
            let team = tenant(name);
            let pending = gateway.append(write_of(&team), &batch_of(40, NOW_MS)).expect("appended");
            pending.wait().expect("acknowledged");
        }
    }
    let mut partitions: BTreeMap<(TenantId, String), Vec<u32>> = BTreeMap::new();
    let mut of_tenant: BTreeMap<TenantId, Vec<u32>> = BTreeMap::new();
    for record in cluster.records() {
        let all = of_tenant.entry(record.origin.tenant.clone()).or_default();
        all.push(record.partition);
        for (series, ..) in record.samples() {
            partitions.entry((record.origin.tenant.clone(), series)).or_default().push(record.partition);
        }
    }
    assert_eq!(partitions.len(), 120);
    assert!(partitions.values().all(|all| all.len() == 2 && all[0] == all[1]), "{partitions:?}");
    for all in of_tenant.values_mut() {
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2);
    }
    assert!(of_tenant.values().any(|all| *all != of_tenant[&tenant("a")]), "{of_tenant:?}");
}

#[test]
fn exemplars_and_metadata_ride_along_and_invalid_series_take_theirs_with_them() {
    let cluster = Cluster::new(1);
    let gateway = cluster.gateway();
    let mut batch = batch_of(2, NOW_MS);
    batch.push_labels(&Labels::from_pairs([("no", "name")]), &[(NOW_MS, 1.0), (NOW_MS + 1, 1.0)]);
    for series_idx in [1, 2] {
        let exemplar = Exemplar { labels: Labels::from_pairs([("id", "x")]), value: 0.5, time_ms: NOW_MS };
        batch.exemplars.push(BatchExemplar { series_idx, exemplar });
    }
    batch.metadata.push(MetadataEntry {
        metric: "up".to_owned(),
        kind: MetricKind::Gauge,
        help: "Is it up?".to_owned(),
        unit: String::new(),
    });
    for _ in 0..2 {
        let pending = gateway.append(write_of(&tenant("t")), &batch).expect("appended");
        let outcome = pending.wait().expect("acknowledged").outcome;
        assert_eq!((outcome.accepted_count, outcome.rejected_count()), (2, 2));
        assert_eq!(outcome.exemplars_accepted, 1);
    }
    let records = cluster.records();
    assert_eq!(records.len(), 2);
    for record in records {
        assert_eq!(record.samples().len(), 2);
        assert_eq!(record.batch.metadata, batch.metadata);
        let exemplars: Vec<u32> = record.batch.exemplars.iter().map(|one| one.series_idx).collect();
        assert_eq!(exemplars, [1]);
    }
}

#[test]
fn stores_of_databases_and_graphite_have_their_ids_and_the_last_value_wins() {
    let cluster = Cluster::new(1);
    let gateway = cluster.gateway();
    let id = chronolith_model::databases::BucketStoreId::from_bytes([9; 16]);
    let owner = TenantId::anonymous();
    let stores = [RecordStore::Database(id), RecordStore::Graphite(id)];
    for store in stores {
        let write = GatewayWrite { store, ..write_of(&owner) };
        gateway.append(write, &batch_of(1, NOW_MS)).expect("appended").wait().expect("acknowledged");
    }
    let found: Vec<_> = cluster.records().iter().map(|one| (one.origin.store, one.duplicates)).collect();
    assert_eq!(found, stores.map(|store| (store, DuplicatePolicy::LastWins)));
}

/// Time passes in a partition without writes, so that its windows can end.
#[test]
fn partitions_without_a_record_since_the_last_ticks_get_one() {
    let cluster = Cluster::new(3);
    assert_eq!(cluster.unready_gateway().tick().expect("nothing to do"), 0, "no map, no partitions");
    let gateway = cluster.gateway();
    assert_eq!(gateway.tick().expect("acknowledged"), 3);
    let pending = gateway.append(write_of(&tenant("t")), &batch_of(1, NOW_MS)).expect("appended");
    pending.wait().expect("acknowledged");
    assert_eq!(gateway.tick().expect("acknowledged"), 2, "one partition was written to");
    assert_eq!(gateway.tick().expect("acknowledged"), 3);
    cluster.topic.finish_arrivals();
    let mut ticks = 0;
    for partition in 0..3 {
        for record in cluster.topic.records(PartitionId(partition)) {
            let content = decode_record(&record.value, source_of, &mut WriteBatch::from_labels());
            match content.expect("a record") {
                Record::Tick { arrival_ms } => {
                    assert_eq!(arrival_ms, NOW_MS);
                    ticks += 1;
                }
                other => assert!(matches!(other, Record::Samples { .. }), "{other:?}"),
            }
        }
    }
    assert_eq!(ticks, 8);
    cluster.topic.set_reachable(false);
    gateway.tick().expect_err("the log is away");
    assert_eq!(gateway.stats().tick_failures, 1);
}

/// Gateways sent no ticks to a drained partition: its time stood still, so its last window was never cut.
#[test]
fn time_passes_in_a_drained_partition_until_its_owner_may_stop() {
    let cluster = Cluster::new(3);
    let gateway = cluster.gateway();
    let drain = PartitionChange::Drain(&[1]);
    change_map(&cluster.bucket, &cluster.env, RUNTIME.handle(), drain).expect("changed");
    gateway.refresh().expect("the next map");
    assert_eq!(gateway.stats().partition_count, 2);
    assert_eq!(gateway.tick().expect("acknowledged"), 3);
    // The change is a millisecond after the first map.
    cluster.clock.advance(DRAINED_TIME + Duration::from_millis(1));
    assert_eq!(gateway.tick().expect("acknowledged"), 2);
}

#[test]
fn the_bucket_names_a_graphite_store_before_a_record_has_its_points() {
    let cluster = Cluster::new(1);
    let gateway = cluster.gateway();
    let team = tenant("graphite-team");
    for _ in 0..2 {
        let store = gateway.graphite_store(&team).expect("is created once");
        assert_eq!(store, RecordStore::Graphite(chronolith_model::databases::BucketStoreId::GRAPHITE));
    }
    let reader = Snapshots::<DatabasesSnapshot>::of_kind(cluster.bucket.clone(), &cluster.env);
    let request = RequestContext::with_timeout(
        &*cluster.env.clock,
        Folder::of_tenant(&team),
        Duration::from_secs(10),
        Purpose::Catalog,
    );
    let latest = RUNTIME.block_on(reader.reader().read_latest(&request)).expect("read").expect("is there");
    assert!(latest.snapshot.content.has_graphite);
    assert_eq!(latest.snapshot.stamp.number, 1, "the second call changed nothing");
    let error = gateway.graphite_store(&tenant("cluster")).expect_err("the folder of the cluster");
    assert!(matches!(error, GatewayError::ReservedTenant), "{error}");
}

#[test]
fn the_rate_limit_of_a_tenant_refuses_a_batch_as_a_whole() {
    let mut cluster = Cluster::new(1);
    cluster.limits.default.ingestion = IngestionLimits { rate: 10, burst: 10, ..IngestionLimits::default() };
    let gateway = cluster.gateway();
    let team = tenant("t");
    let refused = |count: usize| gateway.append(write_of(&team), &batch_of(count, NOW_MS)).err();
    assert!(refused(8).is_none());
    let error = refused(8).expect("refused");
    assert!(matches!(&error, GatewayError::Limit(_)) && !error.may_be_written(), "{error}");
    assert!(gateway.append(write_of(&tenant("other")), &batch_of(8, NOW_MS)).is_ok());
    cluster.clock.advance(std::time::Duration::from_secs(1));
    assert!(refused(8).is_none());
    gateway.set_limits(LimitsTable::default());
    assert!(refused(80).is_none());
    assert_eq!(all_samples(&cluster.records()).len(), 8 + 8 + 8 + 80);
}

#[test]
fn a_request_that_is_too_large_is_named_with_both_sizes_and_leaves_no_record() {
    let cluster = Cluster::new(1);
    let gateway = cluster.gateway();
    let mut batch = WriteBatch::from_labels();
    let long = vec![b'x'; 1 << 20];
    batch.push_texts(&labels_of(1), &[(NOW_MS, long.as_slice())]);
    let error = gateway.append(write_of(&tenant("t")), &batch).err().expect("refused");
    assert_eq!((error.fault(), error.may_be_written()), (GatewayFault::TooLarge, false));
    let text = error.to_string();
    assert!(text.contains("takes up to 1048") && text.contains("and a record of the log 899"), "{text}");
    let cluster = Cluster::with(SimOptions { record_bytes_max: 1000, ..SimOptions::new(1, 1) });
    let gateway = cluster.gateway();
    let error = gateway.append(write_of(&tenant("t")), &batch_of(500, NOW_MS)).err().expect("refused");
    assert_eq!(error.fault(), GatewayFault::TooLarge);
    assert!(error.to_string().ends_with("bytes, the log takes at most 1000"), "{error}");
    assert!(cluster.records().is_empty());
    assert_eq!(cluster.memory.used_bytes(), 0);
}

#[test]
fn without_memory_nothing_is_appended() {
    let mut cluster = Cluster::new(2);
    cluster.memory = MemoryBudget::new("records of the log", 1000);
    let gateway = cluster.gateway();
    let error = gateway.append(write_of(&tenant("t")), &batch_of(500, NOW_MS)).err().expect("refused");
    assert!(matches!(error, GatewayError::Memory(_)), "{error}");
    assert_eq!((error.fault(), error.may_be_written()), (GatewayFault::Retry, false));
    assert!(cluster.records().is_empty());
    let held = gateway.append(write_of(&tenant("t")), &batch_of(5, NOW_MS)).expect("appended");
    assert!(cluster.memory.used_bytes() > 0);
    drop(held);
    assert_eq!(cluster.memory.used_bytes(), 0);
}

#[test]
fn the_tenant_of_the_folder_is_reserved() {
    let cluster = Cluster::new(1);
    let error = cluster.gateway().append(write_of(&tenant("cluster")), &batch_of(1, NOW_MS)).err();
    let error = error.expect("refused");
    assert_eq!(error.fault(), GatewayFault::Invalid);
    assert!(error.to_string().contains("reserved"), "{error}");
}

#[test]
fn a_gateway_is_ready_once_it_has_the_map_and_reaches_the_log() {
    let cluster = Cluster::new(2);
    let gateway = cluster.unready_gateway();
    let not_yet = "the partition map has not been read yet";
    assert_eq!(gateway.unready_reason().as_deref(), Some(not_yet));
    let error = gateway.append(write_of(&tenant("t")), &batch_of(1, NOW_MS)).err().expect("refused");
    assert_eq!((error.to_string().as_str(), error.fault()), (not_yet, GatewayFault::Retry));
    cluster.topic.set_reachable(false);
    assert!(matches!(gateway.refresh(), Err(RefreshError::Log(_))));
    let reason = gateway.unready_reason().expect("not ready");
    assert!(reason.starts_with("the replicated log cannot be used: "), "{reason}");
    cluster.topic.set_reachable(true);
    gateway.refresh().expect("a partition map");
    assert_eq!(gateway.unready_reason(), None);
    cluster.topic.set_reachable(false);
    assert!(gateway.refresh().is_err());
    assert!(gateway.unready_reason().is_some());
}

#[test]
fn the_first_gateway_creates_the_map_and_partitions_of_the_log_that_are_added_later_wait() {
    let cluster = Cluster::new(2);
    let first = cluster.gateway();
    cluster.topic.add_partitions(3);
    let second = cluster.gateway();
    first.refresh().expect("a partition map");
    for gateway in [first, second] {
        let stats = gateway.stats();
        assert_eq!((stats.map_number, stats.partition_count, stats.map_failures), (1, 2, 0));
    }
}

/// Writes to the new partitions were refused with 503 until the client had asked for the topic again, 5 s.
/// The wait was counted as a failed read of the map.
#[test]
fn a_map_waits_until_the_gateway_knows_its_partitions_of_the_log() {
    let cluster = Cluster::new(2);
    let gateway = cluster.gateway();
    change_map(&cluster.bucket, &cluster.env, RUNTIME.handle(), PartitionChange::Add(&[2])).expect("added");
    gateway.refresh().expect("the map before it");
    let stats = gateway.stats();
    assert_eq!((stats.map_number, stats.partition_count, stats.map_failures), (1, 2, 0));
    assert_eq!(gateway.unready_reason(), None);
    cluster.topic.add_partitions(1);
    gateway.refresh().expect("the map before it");
    cluster.clock.advance(Duration::from_secs(15));
    gateway.refresh().expect("the newest map");
    assert_eq!((gateway.stats().map_number, gateway.stats().partition_count), (2, 3));
}

/// A `strong` answer lacked acknowledged samples: a gateway wrote to an added partition before a query node
/// had read the map and asked its owner.
#[test]
fn added_partitions_take_writes_once_query_nodes_know_them() {
    let cluster = Cluster::new(3);
    change_map(&cluster.bucket, &cluster.env, RUNTIME.handle(), PartitionChange::Add(&[0, 1]))
        .expect("a map");
    let running = cluster.gateway();
    cluster.clock.advance(Duration::from_secs(60));
    change_map(&cluster.bucket, &cluster.env, RUNTIME.handle(), PartitionChange::Add(&[2])).expect("added");
    running.refresh().expect("the map before it");
    let started = cluster.unready_gateway();
    let why = started.refresh().expect_err("no map before it").to_string();
    assert!(why.ends_with("partitions that were added less than 15 s ago"), "{why}");
    assert_eq!((running.stats().partition_count, started.stats().partition_count), (2, 0));
    cluster.clock.advance(Duration::from_secs(15));
    for gateway in [&running, &started] {
        gateway.refresh().expect("the newest map");
        assert_eq!(gateway.stats().partition_count, 3);
    }
}

#[test]
fn a_map_with_partitions_that_the_log_lacks_is_not_ready() {
    let cluster = Cluster::new(4);
    cluster.gateway();
    let smaller = SimTopic::new(cluster.clock.clone(), SimOptions::new(2, 2));
    let other = Cluster { topic: smaller, ..cluster };
    let gateway = other.gateway();
    let reason = gateway.unready_reason().expect("not ready");
    assert!(reason.ends_with("the partition map has partition 3, and the log has 2 partitions"), "{reason}");
}

#[test]
fn damage_of_the_newest_map_is_found_at_a_start_and_leaves_the_map_in_use() {
    let cluster = Cluster::new(2);
    let gateway = cluster.gateway();
    let request = RequestContext::with_timeout(
        &*cluster.env.clock,
        crate::folder::cluster_folder(),
        std::time::Duration::from_secs(10),
        Purpose::Catalog,
    );
    let key = format!("cluster/{}", PartitionsSnapshot::name_of(2));
    RUNTIME.block_on(cluster.bucket.put(&request, &key, "damage".into())).expect("stored");
    let error = cluster.unready_gateway().refresh().expect_err("damage");
    assert!(error.is_damage() && error.to_string().contains(&key), "{error}");
    assert!(gateway.refresh().is_err_and(|error| error.is_damage()));
    assert_eq!(gateway.stats().map_failures, 1);
    assert!(gateway.append(write_of(&tenant("t")), &batch_of(1, NOW_MS)).is_ok());
}
