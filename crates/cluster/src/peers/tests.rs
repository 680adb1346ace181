//! Addresses, lookups that fail, nodes that do not report, and the order in which owners are asked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use chronolith_base::{Clock, Env, ManualClock};
use chronolith_bucket::{Store, StoreConfig};
use chronolith_model::log_position::{PartitionId, TopicId};
use chronolith_model::partition::PartitionChange;
use chronolith_model::{QueryError, ReadContext, TenantId};
use chronolith_tsdb::{PeerList as _, PeerStream, PeerTransport};
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::latency::FirstByteTimes;
use super::*;
use crate::partition_changes::change_map;
use crate::partition_maps::PartitionMaps;

const NOW_MS: i64 = 1_795_132_800_000;
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads"));

#[track_caller]
fn check_address(text: &str, want: Result<OwnersAddress, &str>) {
    assert_eq!(text.parse::<OwnersAddress>(), want.map_err(str::to_owned), "{text}");
}

#[test]
fn owners_are_a_name_a_file_or_a_list() {
    let list = |all: &[&str]| OwnersAddress::List(all.iter().map(|one| (*one).to_owned()).collect());
    check_address("owners.svc:9595", Ok(list(&["owners.svc:9595"])));
    check_address("10.0.0.1:1, [::1]:2", Ok(list(&["10.0.0.1:1", "[::1]:2"])));
    let dns = OwnersAddress::Dns { name: "owners.svc".to_owned(), port: 9595 };
    check_address("dns://owners.svc:9595", Ok(dns));
    check_address("file:///etc/owners", Ok(OwnersAddress::File("/etc/owners".into())));
    let expected = "expected dns://NAME:PORT, file:///PATH, or HOST:PORT,HOST:PORT, found";
    for text in ["dns://owners", "dns://:1", "dns://a:0", "dns://a:70000", "file://etc/owners", "file://"] {
        check_address(text, Err(&format!("{expected} {text:?}")));
    }
    for (text, found) in
        [("", ""), ("a", "a"), ("a:1,,b:2", ""), ("http://a:1", "http://a:1"), ("a:1,b", "b")]
    {
        check_address(text, Err(&format!("expected HOST:PORT, found {found:?}")));
    }
}

#[test]
fn a_file_has_an_address_per_line() {
    let content = "# owners\n b:2 # second\n\na:1\r\nb:2\n";
    assert_eq!(OwnersAddress::parse_file(content), Ok(vec!["a:1".to_owned(), "b:2".to_owned()]));
    assert_eq!(OwnersAddress::parse_file(""), Ok(Vec::new()));
    let error = OwnersAddress::parse_file("a:1\nb:2,c:3\n").expect_err("two in a line");
    assert_eq!(error, "line 2: expected HOST:PORT, found \"b:2,c:3\"");
}

#[test]
fn the_wait_for_a_second_owner_is_the_p99_of_recent_answers() {
    let times = FirstByteTimes::default();
    let ms = |ms: u64| Duration::from_millis(ms);
    assert_eq!(times.hedge_after(), ms(500), "nothing is known yet");
    (0..16).for_each(|_| times.record(1_000));
    assert_eq!(times.hedge_after(), ms(10), "the shortest wait");
    (1..=128).for_each(|at| times.record(at * 1_000_000));
    assert_eq!(times.hedge_after(), ms(126));
    (0..128).for_each(|_| times.record(20_000_000));
    assert_eq!(times.hedge_after(), ms(20), "old answers are forgotten");
}

/// Answers of a lookup that a test sets.
#[derive(Default)]
struct Fake {
    addresses: Mutex<Option<Vec<String>>>,
    reports: Mutex<Vec<(String, NodeReport)>>,
}

const TOPIC: TopicId = TopicId([7; 16]);

/// Reason of an owner that was ready until it could not read the log any more.
const LOG_AWAY: &str = "the log does not answer";

fn report(topic: TopicId, own: &[(u32, Option<&str>)]) -> NodeReport {
    let partition = |(number, why): &(u32, Option<&str>)| PartitionReport {
        partition: PartitionId(*number),
        next_offset: Some(5),
        not_ready: why.map(str::to_owned),
        is_log_away: *why == Some(LOG_AWAY),
        progress: None,
        series: Vec::new(),
    };
    NodeReport { topic, partitions: own.iter().map(partition).collect() }
}

impl Fake {
    fn set_addresses(&self, addresses: Option<&[&str]>) {
        *self.addresses.lock() = addresses.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
    }

    /// Sets the report of a node; `None`: the node does not answer.
    fn set(&self, address: &str, report: Option<NodeReport>) {
        let mut reports = self.reports.lock();
        reports.retain(|(name, _)| name != address);
        reports.extend(report.map(|report| (address.to_owned(), report)));
    }
}

impl NodeLookup for Fake {
    fn addresses(&self) -> Result<Vec<String>, String> {
        self.addresses.lock().clone().ok_or_else(|| "no such name".to_owned())
    }

    fn reports(&self, addresses: &[String]) -> Vec<Result<NodeReport, String>> {
        let reports = self.reports.lock();
        let of = |address: &String| {
            let found = reports.iter().find(|(name, _)| name == address);
            found.map(|(_, report)| report.clone()).ok_or_else(|| "connection refused".to_owned())
        };
        addresses.iter().map(of).collect()
    }
}

struct Fixture {
    lookup: Fake,
    directory: Arc<OwnerDirectory>,
    clock: Arc<ManualClock>,
    env: Env,
}

impl Fixture {
    fn new() -> Fixture {
        let (env, clock, _) = Env::fake(NOW_MS, 1);
        let directory = Arc::new(OwnerDirectory::new(clock.clone()));
        let lookup = Fake::default();
        lookup.set_addresses(Some(&["a:1", "b:1", "c:1"]));
        lookup.set("a:1", Some(report(TOPIC, &[(0, None)])));
        lookup.set("b:1", Some(report(TOPIC, &[(0, None)])));
        lookup.set("c:1", Some(report(TOPIC, &[(1, Some("lag of 9000 ms"))])));
        let fixture = Fixture { lookup, directory, clock, env };
        fixture.refresh();
        fixture
    }

    fn refresh(&self) {
        self.directory.refresh(&self.lookup);
    }

    /// Addresses of the owners of a partition that are asked, in their order.
    fn asked(&self, partition: u32) -> Vec<String> {
        let owners = self.directory.owners_of(PartitionId(partition));
        owners.asked().iter().map(|node| node.address().to_owned()).collect()
    }

    fn why_none(&self, partition: u32) -> String {
        self.directory.owners_of(PartitionId(partition)).why_none()
    }
}

#[test]
fn ready_owners_are_asked_and_others_are_reasons() {
    let fixture = Fixture::new();
    assert_eq!(fixture.asked(0), ["a:1", "b:1"]);
    assert_eq!(fixture.directory.owners_of(PartitionId(0)).name(), "a:1 or b:1 (partition 0)");
    assert!(fixture.asked(1).is_empty());
    assert_eq!(fixture.why_none(1), "no owner is ready: c:1: lag of 9000 ms");
    assert_eq!(fixture.directory.owners_of(PartitionId(1)).name(), "of partition 1");
    assert_eq!(fixture.why_none(2), "no owner of the partition is known");
    // A call to the first one has failed: until it reports, the other one is asked first.
    fixture.directory.owners_of(PartitionId(0)).asked()[0].note_failure();
    assert_eq!(fixture.asked(0), ["b:1", "a:1"]);
    fixture.refresh();
    assert_eq!(fixture.asked(0), ["a:1", "b:1"]);
}

/// Queries go on while the log is away: for all owners of a partition, or for the only one of them.
#[test]
fn owners_that_lost_the_log_are_asked_if_no_other_is_ready() {
    let fixture = Fixture::new();
    fixture.lookup.set("a:1", Some(report(TOPIC, &[(0, Some(LOG_AWAY))])));
    fixture.refresh();
    assert_eq!(fixture.asked(0), ["b:1"]);
    fixture.lookup.set("b:1", Some(report(TOPIC, &[(0, Some("lag of 9000 ms"))])));
    fixture.refresh();
    assert_eq!(fixture.asked(0), ["a:1"]);
    fixture.lookup.set("b:1", Some(report(TOPIC, &[(0, Some(LOG_AWAY))])));
    fixture.refresh();
    fixture.directory.owners_of(PartitionId(0)).asked()[0].note_failure();
    assert_eq!(fixture.asked(0), ["b:1", "a:1"]);
}

/// Covers an outage of DNS, or of the requests for reports alone: queries go on with the last answers.
#[test]
fn the_last_good_answers_stay_in_use_for_a_time() {
    let fixture = Fixture::new();
    fixture.lookup.set_addresses(None);
    fixture.lookup.set("a:1", None);
    fixture.clock.advance(Duration::from_secs(5));
    fixture.refresh();
    assert_eq!(fixture.asked(0), ["b:1", "a:1"], "a node that does not report is asked last");
    assert_eq!(fixture.directory.lookup_age_ms(), Some(5000));
    assert_eq!(fixture.directory.lookup_fault().as_deref(), Some("no such name"));
    let status = &fixture.directory.nodes()[0];
    assert_eq!((status.address.as_str(), status.report_age_ms), ("a:1", Some(5000)));
    assert_eq!(status.fault.as_deref(), Some("connection refused"));
    fixture.clock.advance(Duration::from_secs(56));
    fixture.refresh();
    assert_eq!(fixture.asked(0), ["b:1"], "a report of a minute ago says nothing");
    fixture.lookup.set("b:1", None);
    fixture.clock.advance(Duration::from_secs(61));
    fixture.refresh();
    let why = "no owner is ready: a:1: connection refused; b:1: connection refused; looking up owners: no such name";
    assert_eq!(fixture.why_none(0), why);
    assert!(fixture.directory.partitions() == [PartitionId(1)]);
    // A node that left the addresses is forgotten.
    fixture.lookup.set_addresses(Some(&["b:1"]));
    fixture.lookup.set("b:1", Some(report(TOPIC, &[(0, None)])));
    fixture.refresh();
    assert_eq!(fixture.directory.nodes().len(), 1);
    assert_eq!((fixture.asked(0), fixture.directory.lookup_fault()), (vec!["b:1".to_owned()], None));
}

/// Transport that has a name alone.
struct Named(String);

impl PeerTransport for Named {
    fn node(&self) -> &str {
        &self.0
    }

    fn send(&self, _: Vec<u8>, _: &ReadContext) -> Box<dyn PeerStream> {
        unreachable!("no call is sent")
    }
}

struct Names;

impl ConnectOwners for Names {
    fn connect(&self, owners: OwnersOfPartition) -> Arc<dyn PeerTransport> {
        Arc::new(Named(owners.name()))
    }
}

#[test]
fn queries_ask_all_partitions_of_the_map_and_of_reports() {
    let fixture = Fixture::new();
    let store = Store::open(&StoreConfig::new("memory://"), &fixture.env, RUNTIME.handle().clone());
    let store = Arc::new(store.expect("a bucket"));
    let removals = Arc::new(AtomicUsize::new(0));
    let count = removals.clone();
    let maps = PartitionMaps::new(store.clone(), &fixture.env, RUNTIME.handle().clone());
    let count_one = move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let maps = Arc::new(maps.with_on_removal(count_one));
    let clock: Arc<dyn Clock> = fixture.clock.clone();
    let peers = QueryPeers::new(fixture.directory.clone(), maps.clone(), Arc::new(Names), clock);
    let names = || -> Result<Vec<String>, QueryError> {
        Ok(peers.peers()?.iter().map(|peer| peer.node().to_owned()).collect())
    };
    let none = "the partition map has not been read yet";
    assert_eq!(names().expect_err("no map").to_string(), none);
    assert_eq!(peers.unready_reason().as_deref(), Some(none));
    maps.refresh(Some(3)).expect("a map");
    fixture.lookup.set("b:1", Some(report(TOPIC, &[(9, None)])));
    fixture.refresh();
    let want = ["a:1 (partition 0)", "of partition 1", "of partition 2", "b:1 (partition 9)"];
    assert_eq!(names().expect("names"), want);
    assert_eq!(peers.unready_reason(), None, "a partition without a ready owner fails its part alone");
    assert_eq!(peers.unavailable(), [PartitionId(1), PartitionId(2)]);
    let check =
        |text: &str| peers.check_offsets(&text.parse().expect("offsets")).map_err(|why| why.to_string());
    assert_eq!(check(&format!("{TOPIC}:0:7,{TOPIC}:2:5,{TOPIC}:9:5")), Ok(()));
    let why = "the request waits for offset 8 of partition 3, and no owner of it is known";
    assert_eq!(check(&format!("{TOPIC}:0:7,{TOPIC}:3:8")), Err(why.to_owned()));
    let error = check("a:0:7").expect_err("another topic");
    assert!(error.starts_with("the offsets are of topic a, and the log is topic "), "{error}");
    // A drained partition is asked, a removed one is not.
    for (change, want, removal_count) in
        [(PartitionChange::Drain(&[2]), 4, 0), (PartitionChange::Remove(&[2]), 3, 1)]
    {
        fixture.lookup.set("c:1", Some(report(TOPIC, &[(2, None)])));
        fixture.refresh();
        change_map(&store, &fixture.env, RUNTIME.handle(), change).expect("changed");
        maps.refresh(None).expect("a map");
        let found = (names().expect("names").len(), removals.load(Ordering::Relaxed));
        assert_eq!(found, (want, removal_count), "{change:?}");
    }
    fixture.lookup.set("b:1", Some(report(TopicId([8; 16]), &[(9, None)])));
    fixture.refresh();
    let error = names().expect_err("two topics").to_string();
    assert!(error.starts_with("owners report topics "), "{error}");
}

#[test]
fn series_of_a_tenant_are_the_sum_over_partitions() {
    let fixture = Fixture::new();
    let with_series = |number: u32, series: &[(&str, u64)]| {
        let mut report = report(TOPIC, &[(number, None)]);
        let of = |(tenant, count): &(&str, u64)| TenantSeries {
            tenant: TenantId::new(tenant).expect("valid"),
            count: *count,
        };
        report.partitions[0].series = series.iter().map(of).collect();
        Some(report)
    };
    // Two owners of partition 0, one of which lags.
    fixture.lookup.set("a:1", with_series(0, &[("x", 70), ("y", 5)]));
    fixture.lookup.set("b:1", with_series(0, &[("x", 60)]));
    fixture.lookup.set("c:1", with_series(1, &[("x", 1000)]));
    fixture.refresh();
    let series = fixture.directory.tenant_series();
    let found: Vec<(&str, u64)> = series.iter().map(|(tenant, count)| (tenant.as_str(), *count)).collect();
    assert_eq!(found, [("x", 1070), ("y", 5)]);
    fixture.lookup.set("c:1", None);
    fixture.clock.advance(Duration::from_secs(61));
    fixture.refresh();
    let of_x = fixture.directory.tenant_series()[&TenantId::new("x").expect("valid")];
    assert_eq!(of_x, 70, "a node that has left says nothing about limits");
}
