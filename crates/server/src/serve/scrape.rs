//! Self-scrape: stores the server's own metrics as series, so that their history can be queried.
//! Invariants: a scrape has a permit and a deadline, and stands in the list of active queries, where it can
//! be killed; a failed one is counted and logged, never retried; the thread ends with the server.

use std::sync::Arc;
use std::time::Duration;

use chronolith_model::{Labels, LabelsBuilder, METRIC_NAME, TenantId, WriteBatch};
use chronolith_service::access::Identity;
use chronolith_service::activity::active_queries::StartedQuery;
use chronolith_service::activity::top_queries::QueryLanguage;
use chronolith_service::evaluation::running::RunningQuery;
use chronolith_service::write::destination::Destination;
use chronolith_service::write::{TargetStore, WriteTarget};
use chronolith_tsdb::Writer;

use crate::exposition::gather::gather;
use crate::serve::rounds::guarded;
use crate::serve::stop::Stop;
use crate::web::Web;

/// Pause between two checks whether the store is open; the first round follows at once, so that there is
/// something to see.
const OPEN_PAUSE: Duration = Duration::from_millis(20);

/// Longest run of a scrape until its samples are handed to the store.
const TIMEOUT_MS: u64 = 10_000;

/// Runs until stopped. `instance` is the address of the server.
pub(crate) fn run(web: &Arc<Web>, instance: &str, stop: &Stop) {
    let pause = Duration::from_millis(web.options.self_scrape_interval_ms);
    let mut batch = WriteBatch::from_labels();
    while web.service.lifecycle.destination().is_err() {
        if stop.wait(OPEN_PAUSE) {
            return;
        }
    }
    loop {
        guarded(web, "self-scrape", || round(web, instance, &mut batch));
        if stop.wait(pause) {
            return;
        }
    }
}

/// Stores all metrics once.
pub(crate) fn round(web: &Web, instance: &str, batch: &mut WriteBatch) {
    let service = &web.service;
    let tenant = TenantId::anonymous();
    let identity = Identity::internal(&tenant);
    let Ok(destination) = service.lifecycle.destination() else { return };
    let class = &service.admission.self_scrape;
    let Some(admitted) = service.try_admit(class, &identity, TIMEOUT_MS) else { return };
    let time_ms = service.env.clock.now_ms();
    let running = RunningQuery::begin(
        service,
        StartedQuery {
            tenant: &tenant,
            language: QueryLanguage::Internal,
            text: "self-scrape",
            times_ms: (time_ms, time_ms, 0),
            ctx: admitted.ctx(),
            trace: Arc::default(),
        },
    );
    fill(web, instance, time_ms, batch);
    let seconds = running.duration_ns() as f64 / 1e9;
    batch.push_labels(&plain("up", instance), &[(time_ms, 1.0)]);
    batch.push_labels(&plain("scrape_duration_seconds", instance), &[(time_ms, seconds)]);
    let ended = admitted.ctx().check().map_err(|ended| ended.to_string());
    if let Err(error) = ended.and_then(|()| store_round(web, &destination, &identity, batch)) {
        web.metrics.background.scrape_failures.add(1);
        tracing::warn!(error, "self-scrape failed");
    }
}

fn store_round(
    web: &Web,
    destination: &Destination,
    identity: &Identity,
    batch: &mut WriteBatch,
) -> Result<(), String> {
    let target = WriteTarget { identity, store: TargetStore::Default, writer: Writer::Client };
    let mut writing = web.service.writes.begin(destination, target);
    writing.apply_batch(batch).map_err(|failure| failure.to_string())?;
    let outcome = writing.wait(|_| {}).map_err(|failure| failure.to_string())?.outcome;
    match outcome.first_reject {
        None => Ok(()),
        Some(first) => Err(format!("samples rejected, the first: {first:?}")),
    }
}

fn fill(web: &Web, instance: &str, time_ms: i64, batch: &mut WriteBatch) {
    batch.clear();
    let mut labels = LabelsBuilder::new();
    for family in gather(web) {
        // Every round: a family that comes later has its entry then, and a known entry costs one hash.
        batch.metadata.push(family.metadata());
        for sample in &family.samples {
            labels.clear();
            labels.push(METRIC_NAME, &format!("{}{}", family.name, sample.suffix));
            labels.push("job", "chronolith");
            labels.push("instance", instance);
            if web.service.options.features.type_and_unit_labels {
                labels.push("__type__", family.kind.as_str());
            }
            for (name, value) in &sample.labels {
                labels.push(name, value);
            }
            batch.push_labels(&labels.finish(), &[(time_ms, sample.value)]);
        }
    }
}

fn plain(name: &str, instance: &str) -> Labels {
    Labels::from_pairs([(METRIC_NAME, name), ("job", "chronolith"), ("instance", instance)])
}
