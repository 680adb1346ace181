//! Lists of groups by tenant.

use std::sync::Arc;

use chronolith_model::TenantId;
use chronolith_promql::parser::ParserOptions;
use chronolith_rules::file::{self, FileLimits, FileOptions, UnknownFields};
use chronolith_rules::group::{Group, GroupDefaults, GroupKey};
use chronolith_rules::prometheus_templates::PrometheusTemplates;
use chronolith_rules::status::GroupStatus;

use super::GroupStatuses;

fn status(file: &str, name: &str) -> Arc<GroupStatus> {
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
    Arc::new(GroupStatus::new(Arc::new(Group::new(file, entry, defaults))))
}

#[test]
fn groups_are_listed_by_tenant_in_order_and_can_be_removed() {
    let statuses = GroupStatuses::default();
    let (one, two) = (TenantId::new("one").expect("a name"), TenantId::new("two").expect("a name"));
    for (tenant, file, name) in
        [(&one, "b.yml", "first"), (&one, "a.yml", "second"), (&one, "a.yml", "first"), (&two, "a", "x")]
    {
        statuses.put(tenant, status(file, name));
    }
    let keys = |tenant| -> Vec<String> {
        let groups = statuses.groups(tenant);
        groups.iter().map(|one| format!("{} {}", one.group.key.file, one.group.key.name)).collect()
    };
    assert_eq!(keys(&one), ["a.yml first", "a.yml second", "b.yml first"]);
    assert_eq!(statuses.all().len(), 4);
    statuses.remove(&two, &GroupKey { file: "a".to_owned(), name: "x".to_owned() });
    assert!(keys(&two).is_empty());
    assert_eq!(statuses.all().len(), 3);
}
