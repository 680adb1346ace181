//! Writes of a repair: one correction of the store, and one write of the samples that had no value before.
//!
//! Not here: what differs (`pass`).

use std::collections::BTreeMap;

use chronolith_model::{Deletion, Matcher, StoreId, TenantId, TimeRange, WriteBatch};
use chronolith_rules::repair::{Correction, RemovedSample};
use chronolith_rules::round::RuleSample;

use crate::access::Identity;
use crate::evaluation::rules::recording::{RuleWriter, push_sample};
use crate::rules::round_permit::RoundPermit;
use crate::service::Service;
use crate::write::destination::Destination;

/// Stores a correction; returns the number of its samples.
///
/// # Errors
/// The text of the failure; part of the correction may be stored.
pub(super) fn write(service: &Service, tenant: &TenantId, written: &Correction) -> Result<u64, String> {
    if written.is_empty() {
        return Ok(0);
    }
    let store = service.lifecycle.store().map_err(|refusal| refusal.to_string())?;
    let id = StoreId::from(tenant);
    let removed = deletions(&id, written);
    if !written.replaced.is_empty() || !removed.is_empty() {
        let mut batch = WriteBatch::from_labels();
        written.replaced.iter().for_each(|sample| push_sample(&mut batch, sample));
        store.correct(&id, &batch, &removed).map_err(|error| error.to_string())?;
    }
    let identity = Identity::internal(tenant);
    let added: Vec<&RuleSample> = written.added.iter().collect();
    if !added.is_empty() {
        let writer = RuleWriter { service, identity: &identity, permit: &RoundPermit::Unlimited };
        writer.add(&Destination::Store(store.clone()), &added)?;
    }
    Ok((written.replaced.len() + written.added.len() + written.removed.len()) as u64)
}

/// One deletion per time. A selector names the labels too that the series does not have and others do.
fn deletions(store: &StoreId, written: &Correction) -> Vec<Deletion> {
    let mut by_time: BTreeMap<i64, Vec<Vec<Matcher>>> = BTreeMap::new();
    for RemovedSample { labels, time_ms, absent_labels } in &written.removed {
        let present = labels.iter().map(|(name, value)| Matcher::equal(name, value));
        let absent = absent_labels.iter().map(|name| Matcher::equal(name, ""));
        by_time.entry(*time_ms).or_default().push(present.chain(absent).collect());
    }
    let deletion = |(time_ms, selectors)| Deletion {
        store: store.clone(),
        selectors,
        range: TimeRange::inclusive(time_ms, time_ms),
    };
    by_time.into_iter().map(deletion).collect()
}
