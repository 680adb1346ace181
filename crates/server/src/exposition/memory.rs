//! Memory of the process by consumer, compared with what the operating system reports.
//!
//! Invariants: a byte is in one part only. Bytes of no part (connections, stacks, pieces that the allocator
//! keeps or adds) are the difference to the resident memory that belongs to no file.
//! Not here: the parts of the store (`tsdb`, `head`).

use chronolith_service::metrics::Metric;
use chronolith_tsdb::{MemoryPart, TsdbMemory, store_name};
use serde_json::{Map, Value, json};

use crate::process::{self, ProcessStats};
use crate::web::Web;

/// All consumers at one moment.
pub(crate) struct Memory {
    pub(crate) process: ProcessStats,
    pub(crate) store: TsdbMemory,
    pub(crate) server: Vec<MemoryPart>,
}

pub(crate) static MEMORY: &[Metric<Memory>] = &[
    Metric::gauges(
        "chronolith_memory_bytes",
        &["part"],
        "Memory on the heap by consumer.",
        |memory, samples| memory.parts().for_each(|part| samples.push(&[part.name], part.bytes as f64)),
    ),
    Metric::gauges(
        "chronolith_memory_mapped_bytes",
        &["part"],
        "Files that are read through maps, resident or not.",
        |memory, samples| {
            memory.store.mapped.iter().for_each(|part| samples.push(&[part.name], part.bytes as f64));
        },
    ),
    Metric::optional_gauge(
        "chronolith_memory_unaccounted_bytes",
        "Resident memory of no file that is in no part: allocator, stacks, connections.",
        Memory::unaccounted_bytes,
    ),
];

impl Memory {
    /// Collects all parts; `tenant_count` tenants at most are listed.
    pub(crate) fn read(web: &Web, tenant_count: usize) -> Memory {
        let cache = web.service.queries.cache.counts();
        let (pool_bytes, pool_count) = web.service.writes.pools.remote_write.bytes_and_len();
        let admission = &web.service.admission;
        let mut server = vec![
            MemoryPart::new(
                "write_requests",
                admission.write_memory.total.used_bytes(),
                admission.write.queue.running() as u64,
            ),
            MemoryPart::new("write_batches", pool_bytes, pool_count),
            MemoryPart::new(
                "queries",
                admission.query_memory.total.used_bytes(),
                admission.query.queue.running() as u64,
            ),
            MemoryPart::new("query_cache", cache.bytes, cache.entries as u64),
        ];
        server.extend(activity(web));
        let store = web
            .service
            .lifecycle
            .opened()
            .map(|store| store.statistics().memory(tenant_count))
            .unwrap_or_default();
        Memory { process: process::read(&web.service.env), store, server }
    }

    /// Parts on the heap.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &MemoryPart> {
        self.store.head.iter().chain(&self.store.store).chain(&self.server)
    }

    /// Bytes of all parts.
    pub(crate) fn accounted_bytes(&self) -> u64 {
        self.parts().map(|part| part.bytes).sum()
    }

    /// Resident bytes of no file that are in no part; negative when parts are reserved but not touched yet.
    pub(crate) fn unaccounted_bytes(&self) -> Option<f64> {
        Some(self.process.anonymous_bytes? - self.accounted_bytes() as f64)
    }

    /// As `/api/v1/status/memory` gives it.
    pub(crate) fn to_json(&self) -> Value {
        let process = &self.process;
        let tenants = self.store.tenants.iter().map(
            |one| json!({ "tenant": store_name(&one.tenant), "series": one.series_count, "bytes": one.bytes }),
        );
        json!({
            "process": {
                "residentBytes": process.resident_bytes,
                "anonymousBytes": process.anonymous_bytes,
                "fileBytes": process.file_bytes,
                "peakBytes": process.peak_bytes,
            },
            "accountedBytes": self.accounted_bytes(),
            "unaccountedBytes": self.unaccounted_bytes(),
            "parts": {
                "head": tree(&self.store.head),
                "store": tree(&self.store.store),
                "server": tree(&self.server),
            },
            "mapped": tree(&self.store.mapped),
            "tenants": tenants.collect::<Vec<_>>(),
        })
    }
}

/// Lists of recent activity.
pub(super) fn activity(web: &Web) -> [MemoryPart; 3] {
    [
        web.service.queries.top.memory(),
        web.service.queries.metric_usage.memory(),
        web.service.writes.rejects.memory(),
    ]
}

fn tree(parts: &[MemoryPart]) -> Map<String, Value> {
    let entry =
        |part: &MemoryPart| (part.name.to_owned(), json!({ "bytes": part.bytes, "count": part.count }));
    parts.iter().map(entry).collect()
}
