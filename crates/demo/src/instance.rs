//! One instance of a service: requests, errors, latency, queue, memory, CPU time, builds.
//!
//! Invariants: counters rise until the process restarts; latency, errors and queue of a service follow the
//! incident by its impact.

use std::sync::Arc;

use crate::catalog::{Placement, Service};
use crate::column::{Column, Source};
use crate::distribution::{Bounded, Exponential, Observed};
use crate::draws::Draws;
use crate::metric::{self, Metric};
use crate::tenant::Tenant;
use crate::timeline::{SLOW_STEP_MS, STEP_MS, Step};

const STEP_S: f64 = STEP_MS as f64 / 1000.0;
const PATHS: [&str; 2] = ["/api/items", "/api/search"];
/// Part of the requests that ask for the first path.
const FIRST_PATH_SHARE: f64 = 0.7;
const CODES: [&str; 2] = ["200", "500"];
const QUEUE_LENGTH_MAX: f64 = 5000.0;
/// A step with an exemplar in quiet times: one in 20 is one in five minutes.
const EXEMPLAR_EVERY: usize = 20;
const QUERY_BOUNDS_S: [f64; 9] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];
const SIZE_BOUNDS: [f64; 7] = [256.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0];
const PAGE_BYTES: f64 = 4096.0;

// Positions in the columns; optional histograms follow.
const UP: usize = 0;
const REQUESTS: usize = 1;
const ERRORS: usize = REQUESTS + PATHS.len() * CODES.len();
const QUEUE: usize = ERRORS + 1;
const MEMORY: usize = ERRORS + 2;
const CPU: usize = ERRORS + 3;
const BUILD: usize = ERRORS + 4;
const LATENCY: usize = ERRORS + 5;
const COUNT: usize = ERRORS + 6;

/// A classic or custom histogram and the position of its first column.
struct Extra {
    observations: Bounded,
    column_idx: usize,
}

/// State of one instance.
pub(crate) struct Instance {
    service: Arc<Service>,
    draws: Draws,
    columns: Vec<Column>,
    /// Values of the counters of requests, by path, then code.
    requests: [f64; PATHS.len() * CODES.len()],
    errors: f64,
    cpu_s: f64,
    queue: f64,
    memory_bytes: f64,
    latency: Exponential,
    queries: Option<Extra>,
    sizes: Option<Extra>,
    /// Returns true for the instance that is restarted at the end of the incident.
    is_restarted: bool,
}

impl Instance {
    pub(crate) fn new(seed: u64, service: &Arc<Service>, idx: usize) -> Instance {
        let placement = &service.instances[idx];
        let mut draws = Draws::new(seed, &format!("{} {}", service.name, placement.instance));
        let mut columns = base_columns(service, placement);
        debug_assert_eq!(columns.len(), COUNT);
        let queries = service.has_database.then(|| {
            let column_idx = columns.len();
            columns.extend(query_columns(service, placement));
            Extra { observations: Bounded::new(&QUERY_BOUNDS_S), column_idx }
        });
        let sizes = service.has_sizes.then(|| {
            let column_idx = columns.len();
            columns.push(Column::new(&metric::SIZES, &labels(service, placement, &[])));
            Extra { observations: Bounded::new(&SIZE_BOUNDS), column_idx }
        });
        Instance {
            service: service.clone(),
            columns,
            requests: [0.0; PATHS.len() * CODES.len()],
            errors: 0.0,
            cpu_s: 0.0,
            queue: 0.0,
            memory_bytes: (draws.between(200.0, 900.0) * 1e6 / PAGE_BYTES).floor() * PAGE_BYTES,
            latency: Exponential::new(),
            queries,
            sizes,
            is_restarted: service.impact == 1.0 && idx == 0,
            draws,
        }
    }

    /// Resets the counters to zero, as a new process does.
    fn restart(&mut self) {
        self.requests.fill(0.0);
        self.errors = 0.0;
        self.cpu_s = 0.0;
        self.queue = 0.0;
        self.latency.reset();
        for extra in [&mut self.queries, &mut self.sizes].into_iter().flatten() {
            extra.observations.reset();
        }
    }

    fn count_requests(&mut self, step: &Step, request_count: f64) {
        let impact = step.incident * self.service.impact;
        let overflow = self.queue / QUEUE_LENGTH_MAX;
        let error_share = 0.001 + 0.2 * impact + 0.15 * overflow;
        let first_count = (request_count * FIRST_PATH_SHARE).round();
        for (path_idx, count) in [first_count, request_count - first_count].into_iter().enumerate() {
            let failed = self.draws.poisson(count * error_share).min(count);
            self.requests[path_idx * CODES.len()] += count - failed;
            self.requests[path_idx * CODES.len() + 1] += failed;
            self.errors += failed;
        }
        for (idx, value) in self.requests.iter().enumerate() {
            self.columns[REQUESTS + idx].push(step.time_ms, *value);
        }
        self.columns[ERRORS].push(step.time_ms, self.errors);
    }

    /// Fills the queue while an instance serves fewer requests than arrive.
    fn wait_in_queue(&mut self, step: &Step, request_count: f64) {
        let noon_count = self.service.request_rate * STEP_S;
        let served_count = noon_count * (1.4 - 1.25 * step.incident * self.service.impact);
        let waiting = self.queue + request_count - served_count;
        self.queue = waiting.clamp(0.0, QUEUE_LENGTH_MAX).round();
        let shown = if self.queue > 0.0 { self.queue } else { self.draws.poisson(1.5 * step.load) };
        self.columns[QUEUE].push(step.time_ms, shown);
    }

    fn observe_latency(&mut self, step: &Step, request_count: f64) {
        let impact = step.incident * self.service.impact;
        let noise = 1.0 + 0.06 * self.draws.normal();
        let median = self.service.latency_s * (1.0 + 0.25 * step.load + 9.0 * impact) * noise.max(0.5);
        let observed = Observed { count: request_count, median };
        self.latency.observe(observed);
        self.columns[LATENCY].push_histogram(step.time_ms, self.latency.histogram());
        let has_exemplar = impact > 0.0 || self.draws.below(EXEMPLAR_EVERY) == 0;
        let share = self.draws.between(0.3, 0.995);
        if has_exemplar && request_count > 0.0 {
            let value = round_us(observed.quantile(share));
            self.columns[LATENCY].push_exemplar(step.time_ms, value, &mut self.draws);
        }
        self.observe_queries(
            step,
            Observed { count: request_count * 2.0, median: median * 0.2 },
            has_exemplar,
        );
        if let Some(Extra { observations, column_idx }) = &mut self.sizes {
            observations.observe(Observed { count: request_count, median: 9000.0 * noise });
            self.columns[*column_idx].push_histogram(step.time_ms, observations.histogram());
        }
    }

    fn observe_queries(&mut self, step: &Step, observed: Observed, has_exemplar: bool) {
        let Some(Extra { observations, column_idx }) = &mut self.queries else { return };
        observations.observe(observed);
        let mut idx = *column_idx;
        for count in observations.cumulative() {
            self.columns[idx].push(step.time_ms, count);
            idx += 1;
        }
        self.columns[idx].push(step.time_ms, observations.sum());
        let count = observations.cumulative().last().unwrap_or(0.0);
        self.columns[idx + 1].push(step.time_ms, count);
        if has_exemplar && observed.count > 0.0 {
            let value = round_us(observed.quantile(self.draws.between(0.3, 0.99)));
            let bucket = *column_idx + observations.bucket_of(value);
            self.columns[bucket].push_exemplar(step.time_ms, value, &mut self.draws);
        }
    }

    fn use_resources(&mut self, step: &Step, request_count: f64) {
        // 2 ms of CPU time per request, and a little for itself.
        self.cpu_s += 0.002 * request_count + 0.05 * STEP_S * self.draws.unit();
        if !step.is_slow {
            return;
        }
        let drift = (self.draws.normal() * 40.0).round() * PAGE_BYTES;
        self.memory_bytes = (self.memory_bytes + drift).clamp(100e6, 2e9);
        let of_queue = self.queue * 5.0 * PAGE_BYTES;
        let resident = ((self.memory_bytes + of_queue) / PAGE_BYTES).floor() * PAGE_BYTES;
        self.columns[MEMORY].push(step.time_ms, resident);
        self.columns[CPU].push(step.time_ms, (self.cpu_s * 100.0).round() / 100.0);
        self.columns[BUILD].push(step.time_ms, 1.0);
    }
}

impl Source for Instance {
    fn tenant(&self) -> Tenant {
        self.service.tenant
    }

    fn advance(&mut self, step: &Step) {
        let is_down = self.is_restarted && step.is_incident_over;
        self.columns[UP].push(step.time_ms, if is_down { 0.0 } else { 1.0 });
        if is_down {
            self.restart();
            return;
        }
        let request_count = self.draws.poisson(self.service.request_rate * step.load * STEP_S);
        self.wait_in_queue(step, request_count);
        self.count_requests(step, request_count);
        self.observe_latency(step, request_count);
        self.use_resources(step, request_count);
    }

    fn columns(&mut self) -> &mut [Column] {
        &mut self.columns
    }
}

fn base_columns(service: &Service, placement: &Placement) -> Vec<Column> {
    let column = |metric: &'static Metric, more: &[(&'static str, &'static str)]| {
        Column::new(metric, &labels(service, placement, more))
    };
    let mut columns = vec![column(&metric::UP, &[])];
    for path in PATHS {
        columns.extend(CODES.map(|code| column(&metric::REQUESTS, &[("path", path), ("code", code)])));
    }
    columns.push(column(&metric::ERRORS, &[("kind", "timeout")]));
    for metric in [&metric::QUEUE, &metric::MEMORY, &metric::CPU, &metric::BUILD, &metric::LATENCY] {
        columns.push(column(metric, &[]));
    }
    columns
}

/// Buckets, sum and count of the classic histogram.
fn query_columns(service: &Service, placement: &Placement) -> Vec<Column> {
    let bounds = QUERY_BOUNDS_S.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    let column = |suffix: &str, more: &[(&'static str, &str)]| {
        Column::with_suffix(&metric::QUERIES, suffix, &labels(service, placement, more))
    };
    let mut columns: Vec<Column> = bounds.map(|bound| column("_bucket", &[("le", &bound)])).collect();
    columns.push(column("_sum", &[]));
    columns.push(column("_count", &[]));
    columns
}

fn labels<'a>(
    service: &'a Service,
    placement: &'a Placement,
    more: &[(&'static str, &'a str)],
) -> Vec<(&'static str, &'a str)> {
    let own = [
        ("service", service.name),
        ("instance", placement.instance.as_str()),
        ("zone", placement.zone),
        ("version", service.version.as_str()),
    ];
    [&own[..], more].concat()
}

fn round_us(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

const _: () = assert!(SLOW_STEP_MS % STEP_MS == 0, "slow samples fall on steps");
