//! Rules of a process of a cluster: the thread that keeps the lease under which rounds are evaluated.
//!
//! Invariants: the lease is asked for again and again, so that another process takes rules over from one that
//! has ended; a stop gives it back once rounds have ended and their states are in the bucket.
//! Not here: the lease (`cluster::rule_lease`), rounds (`scheduler`, `service`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_cluster::options::Role;
use chronolith_cluster::rule_lease::RuleLease;
use chronolith_service::evaluation::rules::lease;
use chronolith_tsdb::Bucket;
use tokio::runtime::Handle;

use super::rounds::repeat;
use super::stop::Stop;
use crate::web::Web;

/// Takes the lease of rules into use, if the process has rule files, and reads and writes. Sends no request.
pub(crate) fn open(web: &Web, bucket: &Bucket, handle: Handle) {
    let service = &web.service;
    let roles = service.lifecycle.roles.roles();
    if service.options.rules.files.is_empty() || !(roles.has(Role::Gateway) && roles.has(Role::Query)) {
        return;
    }
    let duration = service.options.rules.lease_duration;
    let lease = RuleLease::new(bucket.store().clone(), &service.env, handle, duration);
    service.lifecycle.roles.set_rule_lease(Arc::new(lease));
}

/// Keeps the lease until the stop.
pub(super) fn run(web: &Web, pause: Duration, stop: &Stop) {
    let mut fault = None;
    repeat(web, stop, "rule-lease", pause, || round(web, &mut fault));
    lease::end(&web.service);
}

/// Runs one round; `fault` has the failure of the last one, so that a lasting failure is logged once.
pub(crate) fn round(web: &Web, fault: &mut Option<String>) {
    let found = lease::keep(&web.service).err();
    match (&found, fault.as_ref()) {
        (Some(why), before) if before != Some(why) => tracing::warn!(why, "lease of rules, retrying"),
        (None, Some(_)) => tracing::info!("the lease of rules can be asked for again"),
        _ => {}
    }
    *fault = found;
}
