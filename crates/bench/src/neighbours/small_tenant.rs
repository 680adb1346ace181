//! The small tenant of all loads: its dashboard, its latencies, and the priority of the clients next to it.
//! Not here: its writes and the load of the others (the files of the loads).

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use chronolith_base::thread;

use crate::http::{QueryConnection, query_path, range_path};
use crate::proc::RunQueue;
use crate::traffic::STEP_MS;

pub(super) const SMALL: &str = "small";
pub(super) const LOUD: &str = "loud";
/// Between two requests of the small tenant.
pub(super) const SMALL_PAUSE: Duration = Duration::from_millis(20);
/// History of all series that queries read.
pub(super) const HISTORY_STEPS: usize = 240;
/// Series of one request while history is sent.
pub(super) const LOAD_SERIES: usize = 2000;
/// Time for the greedy tenants to get going.
pub(super) const WARM_UP: Duration = Duration::from_secs(2);

/// Latencies of the small tenant in one phase.
pub(super) struct Phase {
    pub(super) queries: Latencies,
    pub(super) writes: Latencies,
    pub(super) refused: u64,
}

/// Latencies of one client, and the parts of them in which it waited for a core itself.
#[derive(Default)]
pub(crate) struct Latencies {
    pub(super) served_ms: Vec<f64>,
    pub(super) own_wait_ms: Vec<f64>,
}

impl Latencies {
    /// Returns the latencies without the waits for a core, in milliseconds.
    pub(crate) fn into_served_ms(self) -> Vec<f64> {
        self.served_ms
    }

    /// Runs `request` and records its latency.
    pub(crate) fn measure<T>(&mut self, queue: &RunQueue, request: impl FnOnce() -> Result<T>) -> Result<T> {
        let waited_ns = queue.wait_ns()?;
        let began = Instant::now();
        let result = request()?;
        let whole_ms = began.elapsed().as_secs_f64() * 1000.0;
        let own_wait_ms = queue.wait_ns()?.saturating_sub(waited_ns) as f64 / 1e6;
        self.own_wait_ms.push(own_wait_ms);
        self.served_ms.push((whole_ms - own_wait_ms).max(0.0));
        Ok(result)
    }
}

/// Queries of a dashboard, past the cache of results; each selector has `matcher`, unless that is empty.
pub(super) fn panels(start_ms: i64, matcher: &str) -> [String; 4] {
    let end_ms = start_ms + HISTORY_STEPS as i64 * STEP_MS;
    let hour = (start_ms, end_ms, 60);
    let [cpu, disk] = ["node_cpu_seconds_0_total", "node_disk_seconds_0_current"]
        .map(|name| format!("{name}{{{matcher}}}"));
    [
        query_path(&format!("sum({cpu})"), end_ms - STEP_MS),
        range_path(&format!("sum by (mode) (rate({cpu}[5m]))"), hour),
        range_path(&format!("max by (namespace) ({{__name__=~\"node_.*_current\",{matcher}}})"), hour),
        range_path(&disk, hour),
    ]
}

/// Panels one after the other: latencies, and how many were refused.
pub(super) fn dashboard(port: u16, panels: &[String], end: Instant) -> Result<(Latencies, u64)> {
    let mut connection = QueryConnection::open_as(port, SMALL)?;
    let queue = RunQueue::of_this_thread()?;
    let mut latencies = Latencies::default();
    let mut refused = 0;
    for panel in panels.iter().cycle() {
        if Instant::now() >= end {
            break;
        }
        let (status, body) = latencies.measure(&queue, || connection.get(panel))?;
        refused += u64::from(is_refusal(status));
        ensure!(status == 200 || is_refusal(status), "HTTP {status}: {body:.300}");
        std::thread::sleep(SMALL_PAUSE);
    }
    Ok((latencies, refused))
}

pub(crate) fn is_refusal(status: u16) -> bool {
    matches!(status, 429 | 503)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ClientPriority {
    /// As the server's.
    Usual,
    /// Below the server's.
    Low,
}

impl ClientPriority {
    /// Sets the priority of this thread.
    pub(crate) fn take(self) {
        if self == ClientPriority::Low {
            thread::lower_priority_of_long_work(0);
        }
    }
}
