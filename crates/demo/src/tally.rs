//! Counts per tenant of sent samples, and a hash of the sent bytes.

use std::time::Duration;

use chronolith_base::utc;
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use crate::request::{Counts, Protocol, Request};
use crate::tenant::Tenant;
use crate::timeline::Timeline;

/// Counts of one tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TenantTally {
    pub(super) stored: Counts,
    pub(super) refused_count: u64,
    pub(super) request_count: u64,
    /// Bodies as sent.
    pub(super) body_bytes: u64,
}

impl TenantTally {
    fn add(&mut self, other: &TenantTally) {
        self.stored.new_series += other.stored.new_series;
        self.stored.floats += other.stored.floats;
        self.stored.histograms += other.stored.histograms;
        self.stored.exemplars += other.stored.exemplars;
        self.refused_count += other.refused_count;
        self.request_count += other.request_count;
        self.body_bytes += other.body_bytes;
    }

    fn sample_count(&self) -> u64 {
        self.stored.floats + self.stored.histograms
    }

    fn json(&self) -> Value {
        json!({
            "series": self.stored.new_series,
            "samples": self.sample_count(),
            "histograms": self.stored.histograms,
            "exemplars": self.stored.exemplars,
            "refused": self.refused_count,
            "requests": self.request_count,
            "bytes": self.body_bytes,
        })
    }
}

/// Counts of all tenants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    tenants: [TenantTally; Tenant::ALL.len()],
}

impl Tally {
    pub(crate) fn add(&mut self, request: &Request) {
        self.tenants[request.tenant as usize].add(&TenantTally {
            stored: request.stored,
            refused_count: request.refused_count,
            request_count: 1,
            body_bytes: request.body.len() as u64,
        });
    }

    /// Adds the counts of another sender.
    pub(crate) fn merge(&mut self, other: &Tally) {
        for (tenant, other) in self.tenants.iter_mut().zip(&other.tenants) {
            tenant.add(other);
        }
    }

    pub(crate) fn of(&self, tenant: Tenant) -> &TenantTally {
        &self.tenants[tenant as usize]
    }

    pub(crate) fn sample_count(&self) -> u64 {
        self.tenants.iter().map(TenantTally::sample_count).sum()
    }

    /// One line for people.
    pub(crate) fn summary(&self, elapsed: Duration) -> String {
        let series: u64 = self.tenants.iter().map(|tenant| tenant.stored.new_series).sum();
        let refused: u64 = self.tenants.iter().map(|tenant| tenant.refused_count).sum();
        let bytes: u64 = self.tenants.iter().map(|tenant| tenant.body_bytes).sum();
        let seconds = elapsed.as_secs_f64();
        format!(
            "Sent {:.2} M samples of {series} series in {seconds:.1} s ({:.1} MB, {:.2} M samples/s); {refused} samples were refused on purpose.",
            self.sample_count() as f64 / 1e6,
            bytes as f64 / 1e6,
            self.sample_count() as f64 / 1e6 / seconds.max(0.001),
        )
    }

    /// Counts and times for programs.
    pub(crate) fn json(&self, timeline: &Timeline) -> Value {
        let tenants: serde_json::Map<String, Value> =
            Tenant::ALL.iter().map(|&tenant| (tenant.name().to_owned(), self.of(tenant).json())).collect();
        let event = |event: crate::timeline::Event| {
            json!({
                "start": utc::rfc3339_seconds(event.start_ms),
                "end": utc::rfc3339_seconds(event.end_ms),
            })
        };
        json!({
            "start": utc::rfc3339_seconds(timeline.start_ms),
            "end": utc::rfc3339_seconds(timeline.end_ms),
            "incident": event(timeline.incident),
            "burst": event(timeline.burst),
            "outage": event(timeline.outage),
            "tenants": tenants,
        })
    }
}

/// Hash of requests in their order.
#[derive(Default)]
pub(crate) struct Digest {
    hash: Xxh3,
}

impl Digest {
    pub(crate) fn add(&mut self, request: &Request) {
        let protocol = match request.protocol {
            Protocol::RemoteWrite => "remote write",
            Protocol::CreateDatabase => "create database",
            Protocol::Lines => "line protocol",
            Protocol::Carbon => "carbon",
        };
        self.hash.update(format!("{} {protocol} {}\n", request.tenant.name(), request.body.len()).as_bytes());
        self.hash.update(&request.body);
    }

    pub(crate) fn finish(&self) -> u64 {
        self.hash.digest()
    }
}
