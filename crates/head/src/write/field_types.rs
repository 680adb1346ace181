//! Refuses samples of a field that has another type in their shard group, for protocols with types.
//!
//! Invariants: only series that are not found by their wire key are checked; series of a field with several
//! kinds are never found, and series of a field that gets its second kind by the batch are checked with it.
//! No lock of the index is held while blocks are asked. A row of the batch is refused as a whole, and all
//! rows of a shard group in which the batch gives a new field two kinds.
//! Not here: the record of fields (`index::field_types`).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use chronolith_base::hash::{HashMap, HashSet};
use chronolith_model::batch::FieldConflict;
use chronolith_model::index::select_refs;
use chronolith_model::{
    FIELD_LABEL, KIND_LABEL, LabelsBuilder, METRIC_NAME, Matcher, Reject, TimeRange, WordKind,
};

use super::job::{AppendJob, AppendScratch, series_text};
use crate::field_history::FieldHistory;
use crate::index::field_types::{FieldKey, KindSet};
use crate::index::series_keys::ID_NONE;
use crate::index::tenant::TenantHead;
use crate::series::page_runs;

/// A field with its measurement.
struct Field<'a> {
    measurement: &'a str,
    name: &'a str,
    key: FieldKey,
}

/// Checks the series of the batch that are not known, before they are resolved: removes those that are
/// refused, and the others of their rows, from the batch, and counts their samples.
///
/// As in InfluxDB, all rows are compared with the kinds stored before the batch, and only then do the new
/// fields of the others get their kinds, in the order of the batch.
pub(super) fn check_field_types(job: &mut AppendJob<'_>, scratch: &mut AppendScratch) {
    if !job.batch.source.is_typed || scratch.misses.is_empty() {
        return;
    }
    forget_hits_of_second_kinds(job, scratch);
    let mut refused: Vec<u32> = Vec::new();
    refuse_stored_conflicts(job, scratch, &mut refused);
    let groups = claim_kinds(job, scratch);
    if !groups.is_empty() {
        refuse_groups(job, &mut scratch.ids, &groups, &mut refused);
    }
    scratch.misses.retain(|idx| refused.binary_search(idx).is_err());
}

/// Refuses rows with a field that has another kind in their shard group; `scratch.fields` becomes the fields
/// of the other series that are not known.
fn refuse_stored_conflicts(job: &mut AppendJob<'_>, scratch: &mut AppendScratch, refused: &mut Vec<u32>) {
    scratch.fields.clear();
    let mut builder = LabelsBuilder::new();
    for &idx in &scratch.misses {
        if refused.binary_search(&idx).is_ok() {
            continue;
        }
        let mut found = None;
        with_field(job, idx, &mut builder, |field| {
            let kind = job.batch.kind_of(idx as usize);
            let conflict = stored_conflict(job, field, idx).map(|existing| FieldConflict {
                measurement: field.measurement.to_owned(),
                field: field.name.to_owned(),
                kind,
                existing,
            });
            found = Some((field.key, conflict));
        });
        match found {
            Some((_, Some(conflict))) => refuse_row(job, &mut scratch.ids, idx, conflict, refused),
            Some((key, None)) => scratch.fields.push((idx, key)),
            None => {}
        }
    }
    scratch.fields.retain(|(idx, _)| refused.binary_search(idx).is_err());
}

/// Gives the fields of the batch their kinds in shard groups where they have none; returns the starts of
/// groups in which a field of the batch would get two.
fn claim_kinds(job: &AppendJob<'_>, scratch: &AppendScratch) -> HashSet<i64> {
    let mut builder = LabelsBuilder::new();
    // The fields of a batch are few, and each has many series.
    let mut noted: HashSet<(FieldKey, WordKind)> = HashSet::default();
    let mut refused: HashSet<i64> = HashSet::default();
    for &(idx, key) in &scratch.fields {
        let kind = job.batch.kind_of(idx as usize);
        for group in groups_of(job, idx) {
            // Fields after the first conflict of a group stay new there.
            if !refused.contains(&group.start)
                && job.tenant.field_types.lock().claim(key, group.start, kind) != kind
            {
                refused.insert(group.start);
            }
        }
        if noted.insert((key, kind)) {
            with_field(job, idx, &mut builder, |field| note_kind(job, field, kind));
        }
    }
    refused
}

/// Refuses all series of the batch that have samples in these shard groups, known or not.
fn refuse_groups(job: &mut AppendJob<'_>, ids: &mut [u32], groups: &HashSet<i64>, refused: &mut Vec<u32>) {
    let batch = job.batch;
    job.outcome.has_refused_shard_group = true;
    for idx in 0..batch.series.len() as u32 {
        let is_meant = groups_of(job, idx).any(|group| groups.contains(&group.start));
        if let Some(Err(at)) = is_meant.then(|| refused.binary_search(&idx)) {
            refuse_series(job, ids, idx, idx);
            refused.insert(at, idx);
        }
    }
}

/// Treats series of the batch that were found by their wire keys as not found if the batch has another kind
/// of their field: the first of both in a shard group has it, whether its series is known or not.
fn forget_hits_of_second_kinds(job: &AppendJob<'_>, scratch: &mut AppendScratch) {
    let batch = job.batch;
    if scratch.misses.len() == batch.series.len() {
        return;
    }
    let mut builder = LabelsBuilder::new();
    let mut seen: HashSet<(FieldKey, WordKind)> = HashSet::default();
    let mut contested: HashSet<FieldKey> = HashSet::default();
    for &idx in &scratch.misses {
        let kind = batch.kind_of(idx as usize);
        with_field(job, idx, &mut builder, |field| {
            if seen.insert((field.key, kind)) {
                let known = kinds_of(job, field);
                if known != KindSet::default() && !known.contains(kind) {
                    contested.insert(field.key);
                }
            }
        });
    }
    if contested.is_empty() {
        return;
    }
    for idx in 0..batch.series.len() as u32 {
        if scratch.ids[idx as usize] != ID_NONE {
            with_field(job, idx, &mut builder, |field| {
                if contested.contains(&field.key) {
                    scratch.ids[idx as usize] = ID_NONE;
                    scratch.misses.push(idx);
                }
            });
        }
    }
    scratch.misses.sort_unstable();
}

/// Calls `visit` with the field of a series of the batch, if it has one.
fn with_field(job: &AppendJob<'_>, idx: u32, builder: &mut LabelsBuilder, visit: impl FnOnce(&Field<'_>)) {
    builder.clear();
    if (job.batch.source.parse)(job.batch.key_of(idx as usize), builder).is_err() {
        return;
    }
    let value_of = |name: &str| builder.iter().find(|(one, _)| *one == name).map(|(_, value)| value);
    if let (Some(measurement), Some(name)) = (value_of(METRIC_NAME), value_of(FIELD_LABEL)) {
        visit(&Field { measurement, name, key: FieldKey::new(job.state.texts.seed, measurement, name) });
    }
}

/// Returns the kind that the field had before the batch in a shard group of the samples, if it differs from
/// the kind of the series.
fn stored_conflict(job: &AppendJob<'_>, field: &Field<'_>, idx: u32) -> Option<WordKind> {
    let kind = job.batch.kind_of(idx as usize);
    for group in groups_of(job, idx) {
        let known = job.tenant.field_types.lock().kind_in(field.key, group.start);
        let owner = match known {
            Some(owner) => owner,
            None => match stored_kind(job, field, group) {
                Some(found) => job.tenant.field_types.lock().claim(field.key, group.start, found),
                None => continue,
            },
        };
        if owner != kind {
            return Some(owner);
        }
    }
    None
}

/// Returns the shard groups of the samples of a series of the batch, each once if its samples ascend; samples
/// that are refused for their time have none.
fn groups_of<'j>(job: &'j AppendJob<'_>, idx: u32) -> impl Iterator<Item = TimeRange> + use<'j> {
    let series = &job.batch.series[idx as usize];
    let times = &job.batch.times[series.samples.start as usize..series.samples.end as usize];
    let bounds = job.bounds;
    let unit = job.tenant.unit;
    let width_ms = job.limits.databases.shard_group_ms;
    let group_of = move |time: i64| match width_ms > 0 {
        true => unit.shard_group_of(time, unit.from_ms(width_ms)),
        false => TimeRange::ALL,
    };
    let mut last_group = None;
    let valid = times.iter().filter(move |&&time| bounds.refuse(time).is_none());
    valid.map(move |&time| group_of(time)).filter(move |group| last_group.replace(*group) != Some(*group))
}

/// Returns the kind of the samples of a field in a shard group, in the head or in blocks.
fn stored_kind(job: &AppendJob<'_>, field: &Field<'_>, group: TimeRange) -> Option<WordKind> {
    let state = job.state;
    let in_head = WordKind::ALL.into_iter().find(|&kind| {
        let ids = ids_of(job.tenant, field, Some(kind));
        page_runs(&ids).any(|run| {
            let stripe = state.series.lock(run[0]);
            run.iter().any(|&id| stripe.overlaps(id, group))
        })
    });
    let history = || state.field_history.get();
    in_head.or_else(|| history()?.kind_in(&job.tenant.id, field.measurement, field.name, group))
}

/// Returns the ids of the series of a field in the head, of one kind or all.
fn ids_of(tenant: &TenantHead, field: &Field<'_>, kind: Option<WordKind>) -> Vec<u32> {
    let name = Matcher::equal(METRIC_NAME, field.measurement);
    let mut matchers = vec![name, Matcher::equal(FIELD_LABEL, field.name)];
    matchers.extend(kind.map(kind_matcher));
    select_refs(&*tenant.tables.read(), &matchers).expect("lookups in memory do not fail")
}

/// Returns the kinds of the series of a field in the head and in blocks.
fn kinds_of(job: &AppendJob<'_>, field: &Field<'_>) -> KindSet {
    let tenant = job.tenant;
    let known = tenant.field_types.lock().kinds(field.key);
    known.unwrap_or_else(|| {
        let of_name = tenant.field_types.lock().kinds_of_name(field.name);
        let asked = tenant.field_types.lock().asked();
        let is_in_blocks = |kind| {
            measurements_in_blocks(job, field.name, kind, &asked).iter().any(|name| name == field.measurement)
        };
        let mut kinds = KindSet::default();
        let all = WordKind::ALL.into_iter().filter(|&one| of_name.contains(one));
        all.filter(|&one| !ids_of(tenant, field, Some(one)).is_empty() || is_in_blocks(one))
            .for_each(|one| kinds.insert(one));
        kinds
    })
}

/// Adds a kind to a field. The wire keys of its series are forgotten when the second kind comes.
fn note_kind(job: &AppendJob<'_>, field: &Field<'_>, kind: WordKind) {
    let tenant = job.tenant;
    let mut kinds = kinds_of(job, field);
    kinds.insert(kind);
    let is_new = {
        let mut types = tenant.field_types.lock();
        types.add_kinds_of_name(field.name, KindSet::of(kind));
        types.set_kinds(field.key, kinds)
    };
    if is_new {
        let mut ids = ids_of(tenant, field, None);
        ids.sort_unstable();
        job.state.index.remove_keys_of(&ids);
    }
}

/// Returns the blocks that may have other kinds of a field than the head. Without shard groups a field has
/// one kind for ever, so no block has a second one.
fn history_of<'j>(job: &AppendJob<'j>) -> Option<&'j dyn FieldHistory> {
    let history = job.state.field_history.get().map(|history| &**history);
    history.filter(|_| job.limits.databases.shard_group_ms > 0)
}

/// Returns the measurements that have a field of a kind in blocks of these shard groups.
fn measurements_in_blocks(
    job: &AppendJob<'_>,
    name: &str,
    kind: WordKind,
    groups: &[TimeRange],
) -> BTreeSet<String> {
    let Some(history) = history_of(job) else { return BTreeSet::new() };
    groups.iter().flat_map(|group| history.measurements_of(&job.tenant.id, name, kind, *group)).collect()
}

/// Returns the shard groups of the times of a batch whose blocks have not been asked; none if there are no
/// blocks to ask. Cost: a pass over the times.
fn groups_to_ask(job: &AppendJob<'_>) -> Vec<TimeRange> {
    let mut found: Vec<TimeRange> = Vec::new();
    if history_of(job).is_none() {
        return found;
    }
    let unit = job.tenant.unit;
    let width = unit.from_ms(job.limits.databases.shard_group_ms);
    let mut last: Option<TimeRange> = None;
    for &time in &job.batch.times {
        if last.is_some_and(|group| group.contains(time)) || job.bounds.refuse(time).is_some() {
            continue;
        }
        let group = unit.shard_group_of(time, width);
        last = Some(group);
        found.push(group);
    }
    found.sort_unstable_by_key(|group| group.start);
    found.dedup();
    let types = job.tenant.field_types.lock();
    found.retain(|group| !types.has_asked(*group));
    found
}

/// Finds the fields that have several kinds since before the start, whose wire keys the checkpoint has kept:
/// in the head with the first typed batch of a tenant, in blocks with the first one that has times of their
/// shard groups. A known series is checked only if its field has several kinds, and a kind that is in other
/// shard groups alone is no conflict. Cost: postings of fields and kinds, in the head and in each block of
/// the groups; for names of fields with several kinds, also their series there.
pub(super) fn find_contested(job: &AppendJob<'_>) {
    let tenant = job.tenant;
    let groups = groups_to_ask(job);
    let is_first = !tenant.has_field_types.load(Ordering::Acquire);
    if !is_first && groups.is_empty() {
        return;
    }
    let mut by_name: HashMap<String, KindSet> =
        if is_first { kinds_by_name_in_head(tenant) } else { HashMap::default() };
    for group in &groups {
        let of_group = history_of(job).map(|history| history.kinds_by_name(&tenant.id, *group));
        for (name, kinds) in of_group.unwrap_or_default() {
            let known = by_name.entry(name).or_default();
            kinds.into_iter().for_each(|kind| known.insert(kind));
        }
    }
    {
        let mut types = tenant.field_types.lock();
        for (name, kinds) in &mut by_name {
            types.add_kinds_of_name(name, *kinds);
            kinds.merge(types.kinds_of_name(name));
        }
    }
    let several = by_name.iter().filter(|(_, kinds)| kinds.has_several());
    several.for_each(|(name, kinds)| contest_fields(job, name, *kinds, &groups));
    tenant.field_types.lock().set_asked(&groups);
    tenant.has_field_types.store(true, Ordering::Release);
}

/// Notes the fields of a name that have several kinds, in the head and in blocks of `groups` and of those
/// that have been asked before; the wire keys of their series are forgotten.
fn contest_fields(job: &AppendJob<'_>, name: &str, kinds: KindSet, groups: &[TimeRange]) {
    let state = job.state;
    let tenant = job.tenant;
    let mut by_measurement: HashMap<String, KindSet> = HashMap::default();
    for (measurement, kind) in kinds_by_measurement_in_head(tenant, name) {
        by_measurement.entry(measurement).or_default().insert(kind);
    }
    let asked: Vec<TimeRange> = [tenant.field_types.lock().asked(), groups.to_vec()].concat();
    for kind in WordKind::ALL.into_iter().filter(|&kind| kinds.contains(kind)) {
        for measurement in measurements_in_blocks(job, name, kind, &asked) {
            by_measurement.entry(measurement).or_default().insert(kind);
        }
    }
    for (measurement, kinds) in by_measurement.into_iter().filter(|(_, kinds)| kinds.has_several()) {
        let key = FieldKey::new(state.texts.seed, &measurement, name);
        if tenant.field_types.lock().set_kinds(key, kinds) {
            let mut ids = ids_of(tenant, &Field { measurement: &measurement, name, key }, None);
            ids.sort_unstable();
            state.index.remove_keys_of(&ids);
        }
    }
}

/// Returns the kinds of each name of a field in the head.
fn kinds_by_name_in_head(tenant: &TenantHead) -> HashMap<String, KindSet> {
    let tables = tenant.tables.read();
    let mut by_name = HashMap::default();
    for name in tables.values(FIELD_LABEL, usize::MAX) {
        let mut kinds = KindSet::default();
        for kind in WordKind::ALL {
            let matchers = [Matcher::equal(FIELD_LABEL, &name), kind_matcher(kind)];
            if !select_refs(&*tables, &matchers).expect("lookups in memory do not fail").is_empty() {
                kinds.insert(kind);
            }
        }
        by_name.insert(name, kinds);
    }
    by_name
}

/// Returns measurement and kind of the series of a field name in the head.
fn kinds_by_measurement_in_head(tenant: &TenantHead, name: &str) -> HashSet<(String, WordKind)> {
    let tables = tenant.tables.read();
    let ids =
        select_refs(&*tables, &[Matcher::equal(FIELD_LABEL, name)]).expect("lookups in memory do not fail");
    let mut found: HashSet<(String, WordKind)> = HashSet::default();
    let mut builder = LabelsBuilder::new();
    for labels in ids.into_iter().filter_map(|id| tables.labels(id, &mut builder)) {
        let measurement = labels.get(METRIC_NAME).unwrap_or("");
        found.insert((measurement.to_owned(), WordKind::of(&labels)));
    }
    found
}

/// Selects series of a kind; floats have an empty value.
fn kind_matcher(kind: WordKind) -> Matcher {
    Matcher::equal(KIND_LABEL, kind.label_value())
}

/// Counts the samples of a series and of the others of its row as refused, and leaves them out of the batch.
fn refuse_row(
    job: &mut AppendJob<'_>,
    ids: &mut [u32],
    idx: u32,
    conflict: FieldConflict,
    refused: &mut Vec<u32>,
) {
    let batch = job.batch;
    let row = batch.rows.get(idx as usize);
    let is_in_row = |other: &u32| *other == idx || (row.is_some() && batch.rows.get(*other as usize) == row);
    let mut others: Vec<u32> = vec![idx];
    if row.is_some() {
        let before = (0..idx).rev().take_while(is_in_row);
        let after = (idx + 1..batch.series.len() as u32).take_while(is_in_row);
        others.extend(before.chain(after));
    }
    let is_counted = row.is_some() && others.iter().any(|other| refused.binary_search(other).is_ok());
    if !is_counted {
        job.outcome.conflict_point_count += 1;
    }
    for other in others {
        let Err(at) = refused.binary_search(&other) else { continue };
        refuse_series(job, ids, other, idx);
        refused.insert(at, other);
    }
    job.outcome.field_conflict.get_or_insert(conflict);
}

/// Counts the samples of a series of the batch as refused, and leaves it out; the first reject names `named`.
fn refuse_series(job: &mut AppendJob<'_>, ids: &mut [u32], idx: u32, named: u32) {
    let batch = job.batch;
    let samples = &batch.series[idx as usize].samples;
    for &time in &batch.times[samples.start as usize..samples.end as usize] {
        job.outcome.reject(Reject::FieldTypeConflict, 1, time, || series_text(batch, named));
    }
    ids[idx as usize] = ID_NONE;
}
