//! Lists of groups by tenant.

use std::sync::Arc;

use chronolith_model::TenantId;
use chronolith_promql::parser::ParserOptions;
use chronolith_rules::file::{self, FileLimits, FileOptions, UnknownFields};
use chronolith_rules::group::{Group, GroupDefaults, GroupKey, Origin};
use chronolith_rules::prometheus_templates::PrometheusTemplates;
use chronolith_rules::status::GroupStatus;

use super::super::group_id::GroupId;
use super::GroupStatuses;

fn status(file: &str, name: &str, origin: Origin) -> Arc<GroupStatus> {
    let text = format!("groups: [{{name: {name}, rules: [{{record: a, expr: b}}]}}]");
    let options = FileOptions {
        parser: ParserOptions::default(),
        unknown_fields: UnknownFields::Refuse,
        templates: &PrometheusTemplates::default(),
        limits: FileLimits::default(),
    };
    let parsed = file::parse(file, text.as_bytes(), &options).expect("a valid file");
    let defaults = GroupDefaults { interval_ms: 60_000, query_offset_ms: 0 };
    let entry = parsed.groups.into_iter().next().expect("one group");
    Arc::new(GroupStatus::new(Arc::new(Group::new(file, entry, defaults)), origin))
}

#[test]
fn groups_are_listed_by_tenant_in_order_and_can_be_removed() {
    let statuses = GroupStatuses::default();
    let (one, two) = (TenantId::new("one").expect("a name"), TenantId::new("two").expect("a name"));
    for (tenant, file, name) in
        [(&one, "b.yml", "first"), (&one, "a.yml", "second"), (&one, "a.yml", "first"), (&two, "a", "x")]
    {
        statuses.put(tenant, status(file, name, Origin::Files));
    }
    let keys = |tenant| -> Vec<String> {
        let groups = statuses.groups(tenant);
        groups.iter().map(|one| format!("{} {}", one.group.key.file, one.group.key.name)).collect()
    };
    assert_eq!(keys(&one), ["a.yml first", "a.yml second", "b.yml first"]);
    assert_eq!(statuses.all().len(), 4);
    let key = GroupKey { file: "a".to_owned(), name: "x".to_owned() };
    statuses.remove(&GroupId { tenant: two.clone(), origin: Origin::Files, key });
    assert!(keys(&two).is_empty());
    assert_eq!(statuses.all().len(), 3);
}

/// A group of a file and one of the API with the same file and name had one row: rounds of one overwrote the
/// status of the other, and the removal of one hid both.
#[test]
fn equal_keys_of_two_origins_are_two_groups() {
    let statuses = GroupStatuses::default();
    let tenant = TenantId::new("one").expect("a name");
    for origin in [Origin::Configured, Origin::Files] {
        statuses.put(&tenant, status("a.yml", "g", origin));
    }
    let origins = || -> Vec<Origin> { statuses.groups(&tenant).iter().map(|one| one.origin).collect() };
    assert_eq!(origins(), [Origin::Files, Origin::Configured]);
    let key = GroupKey { file: "a.yml".to_owned(), name: "g".to_owned() };
    statuses.remove(&GroupId { tenant: tenant.clone(), origin: Origin::Files, key });
    assert_eq!(origins(), [Origin::Configured]);
}
