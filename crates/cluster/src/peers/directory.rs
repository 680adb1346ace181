//! Directory of the owners: addresses of the last lookup, and the last report of each node.
//!
//! Invariants: a lookup that fails changes no address; a node that leaves the addresses leaves the directory;
//! a report stays in use for [`REPORT_TIME_MAX`] while the node does not answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Clock;
use chronolith_model::TenantId;
use chronolith_model::log_position::{PartitionId, TopicId};
use parking_lot::Mutex;

use super::latency::FirstByteTimes;
use super::node::{NodeAddress, NodeReport, OwnersOfPartition, PartitionReport, TenantSeries};

/// Time after which the report of a node that no longer answers is not used: twelve rounds.
const REPORT_TIME_MAX: Duration = Duration::from_secs(60);

/// Lookup of the owners' addresses, and their reports.
pub trait NodeLookup: Send + Sync {
    /// Returns the addresses of all owners, each `HOST:PORT`. Waits for an answer.
    ///
    /// # Errors
    /// The reason.
    fn addresses(&self) -> Result<Vec<String>, String>;

    /// Returns the reports of the nodes, or why a node has none, in the order of `addresses`. Waits for all.
    fn reports(&self, addresses: &[String]) -> Vec<Result<NodeReport, String>>;
}

/// A node of the directory.
struct Node {
    address: Arc<NodeAddress>,
    /// The last report, and when it came.
    report: Option<(NodeReport, u64)>,
    /// Reason why the last request for a report failed.
    fault: Option<String>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<String, Node>,
    times: BTreeMap<PartitionId, Arc<FirstByteTimes>>,
    /// Time of the last lookup that succeeded.
    looked_up_ns: Option<u64>,
    /// Reason why the last lookup failed.
    fault: Option<String>,
}

/// State of a node for pages and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// `HOST:PORT`.
    pub address: String,
    /// Topic of the last report.
    pub topic: Option<TopicId>,
    /// Partitions of the last report.
    pub partitions: Vec<PartitionReport>,
    /// Age of the last report; `None` without one.
    pub report_age_ms: Option<u64>,
    /// Reason why the last request for a report failed.
    pub fault: Option<String>,
}

/// Directory of the owners.
pub struct OwnerDirectory {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl OwnerDirectory {
    /// An empty directory, which [`OwnerDirectory::refresh`] fills.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> OwnerDirectory {
        OwnerDirectory { clock, state: Mutex::default() }
    }

    /// Looks the owners up, and asks them for their reports. Blocks the thread.
    pub fn refresh(&self, lookup: &dyn NodeLookup) {
        let looked_up = lookup.addresses();
        let addresses: Vec<String> = {
            let mut state = self.state.lock();
            match looked_up {
                Ok(found) => state.set_addresses(&found, self.clock.mono_ns()),
                Err(why) => state.note_failed_lookup(why),
            }
            state.nodes.keys().cloned().collect()
        };
        let reports = lookup.reports(&addresses);
        let now_ns = self.clock.mono_ns();
        let mut state = self.state.lock();
        for (address, report) in addresses.iter().zip(reports) {
            state.take_report(address, report, now_ns);
        }
    }

    /// Returns the owners of a partition that can be asked. Nodes whose last call failed come last.
    #[must_use]
    pub fn owners_of(&self, partition: PartitionId) -> OwnersOfPartition {
        let now_ns = self.clock.mono_ns();
        let mut state = self.state.lock();
        let mut ready = Vec::new();
        let mut without_log = Vec::new();
        let mut others = Vec::new();
        for (name, node) in &state.nodes {
            let Some(report) = node.report_at(now_ns) else {
                // The node may be an owner of the partition.
                others.extend(node.fault.as_ref().map(|fault| format!("{name}: {fault}")));
                continue;
            };
            let Some(own) = report.partitions.iter().find(|own| own.partition == partition) else { continue };
            match &own.not_ready {
                None => ready.push(node.address.clone()),
                Some(_) if own.is_log_away => without_log.push(node.address.clone()),
                Some(why) => others.push(format!("{name}: {why}")),
            }
        }
        let mut asked = if ready.is_empty() { without_log } else { ready };
        asked.sort_by_key(|node| node.is_failing());
        others.extend(state.fault.as_ref().map(|fault| format!("looking up owners: {fault}")));
        let times = state.times.entry(partition).or_default().clone();
        OwnersOfPartition { partition, asked, others, times }
    }

    /// Partitions that nodes have reported, ascending.
    #[must_use]
    pub fn partitions(&self) -> Vec<PartitionId> {
        let now_ns = self.clock.mono_ns();
        let state = self.state.lock();
        let reports = state.nodes.values().filter_map(|node| node.report_at(now_ns));
        let mut partitions: Vec<PartitionId> =
            reports.flat_map(|report| &report.partitions).map(|own| own.partition).collect();
        partitions.sort_unstable();
        partitions.dedup();
        partitions
    }

    /// Returns the topics that nodes have reported: more than one if nodes of another cluster are among them.
    #[must_use]
    pub fn topics(&self) -> Vec<TopicId> {
        let now_ns = self.clock.mono_ns();
        let state = self.state.lock();
        let reports = state.nodes.values().filter_map(|node| node.report_at(now_ns));
        let mut topics: Vec<TopicId> = reports.map(|report| report.topic).collect();
        topics.sort_unstable();
        topics.dedup();
        topics
    }

    /// Returns the series of tenants over all partitions. Of several owners of a partition the one with most
    /// series counts; a partition that no node reports has none.
    #[must_use]
    pub fn tenant_series(&self) -> BTreeMap<TenantId, u64> {
        let now_ns = self.clock.mono_ns();
        let state = self.state.lock();
        let mut of_partitions: BTreeMap<(PartitionId, &TenantId), u64> = BTreeMap::new();
        let reports = state.nodes.values().filter_map(|node| node.report_at(now_ns));
        for own in reports.flat_map(|report| &report.partitions) {
            for TenantSeries { tenant, count } in &own.series {
                let most = of_partitions.entry((own.partition, tenant)).or_default();
                *most = (*most).max(*count);
            }
        }
        let mut all: BTreeMap<TenantId, u64> = BTreeMap::new();
        for ((_, tenant), count) in of_partitions {
            let sum = all.entry(tenant.clone()).or_default();
            *sum = sum.saturating_add(count);
        }
        all
    }

    /// Age of the last lookup that succeeded; `None` before it.
    #[must_use]
    pub fn lookup_age_ms(&self) -> Option<u64> {
        let looked_up_ns = self.state.lock().looked_up_ns?;
        Some(age_ms(self.clock.mono_ns(), looked_up_ns))
    }

    /// Reason why the last lookup failed.
    #[must_use]
    pub fn lookup_fault(&self) -> Option<String> {
        self.state.lock().fault.clone()
    }

    /// Returns the state of all nodes.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeStatus> {
        let now_ns = self.clock.mono_ns();
        let status = |(address, node): (&String, &Node)| NodeStatus {
            address: address.clone(),
            topic: node.report.as_ref().map(|(report, _)| report.topic),
            partitions: node.report.as_ref().map(|(report, _)| report.partitions.clone()).unwrap_or_default(),
            report_age_ms: node.report.as_ref().map(|(_, at_ns)| age_ms(now_ns, *at_ns)),
            fault: node.fault.clone(),
        };
        self.state.lock().nodes.iter().map(status).collect()
    }
}

fn age_ms(now_ns: u64, at_ns: u64) -> u64 {
    now_ns.saturating_sub(at_ns) / 1_000_000
}

impl Node {
    /// The report, if it is not too old.
    fn report_at(&self, now_ns: u64) -> Option<&NodeReport> {
        let (report, at_ns) = self.report.as_ref()?;
        let is_used = u128::from(now_ns.saturating_sub(*at_ns)) <= REPORT_TIME_MAX.as_nanos();
        is_used.then_some(report)
    }
}

impl State {
    fn set_addresses(&mut self, found: &[String], now_ns: u64) {
        self.nodes.retain(|address, _| found.contains(address));
        for address in found {
            self.nodes.entry(address.clone()).or_insert_with(|| {
                tracing::info!(address, "owner found");
                Node { address: Arc::new(NodeAddress::new(address)), report: None, fault: None }
            });
        }
        (self.looked_up_ns, self.fault) = (Some(now_ns), None);
    }

    fn note_failed_lookup(&mut self, why: String) {
        if self.fault.as_ref() != Some(&why) {
            tracing::warn!(why, "looking up owners failed, the last addresses stay in use");
        }
        self.fault = Some(why);
    }

    fn take_report(&mut self, address: &str, report: Result<NodeReport, String>, now_ns: u64) {
        let Some(node) = self.nodes.get_mut(address) else { return };
        match report {
            Ok(report) => {
                node.address.note_report();
                node.fault = None;
                node.report = Some((report, now_ns));
            }
            Err(why) => {
                if node.fault.is_none() {
                    tracing::warn!(
                        address,
                        why,
                        "owner does not report, its last report stays in use for a minute"
                    );
                }
                node.address.note_failure();
                node.fault = Some(why);
            }
        }
        // Times of partitions that no node reports are of no use.
        let nodes = &self.nodes;
        let is_reported = |partition: &PartitionId| {
            let reports = nodes.values().filter_map(|node| node.report.as_ref());
            reports.flat_map(|(report, _)| &report.partitions).any(|own| own.partition == *partition)
        };
        self.times.retain(|partition, _| is_reported(partition));
    }
}
