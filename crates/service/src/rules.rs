//! Rule groups of all tenants, with the status of each.
//!
//! Invariants: a group is known by tenant, file and name; lists of groups are ordered by file and name.
//! Not here: rule files, rounds and alerts (`chronolith-rules`), pages (`server`).

pub mod configured;

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::TenantId;
use chronolith_rules::group::GroupKey;
use chronolith_rules::status::GroupStatus;
use parking_lot::RwLock;

/// Status of all groups. Readers never wait for a round.
#[derive(Default)]
pub struct RuleStatuses {
    groups: RwLock<BTreeMap<TenantId, BTreeMap<GroupKey, Arc<GroupStatus>>>>,
}

impl RuleStatuses {
    /// Groups of a tenant in order of file and name.
    #[must_use]
    pub fn groups(&self, tenant: &TenantId) -> Vec<Arc<GroupStatus>> {
        let groups = self.groups.read();
        groups.get(tenant).map(|groups| groups.values().cloned().collect()).unwrap_or_default()
    }

    /// Groups of all tenants in order of tenant, file and name.
    #[must_use]
    pub fn all(&self) -> Vec<(TenantId, Arc<GroupStatus>)> {
        let groups = self.groups.read();
        let of_tenant = |(tenant, groups): (&TenantId, &BTreeMap<GroupKey, Arc<GroupStatus>>)| {
            groups.values().map(|status| (tenant.clone(), status.clone())).collect::<Vec<_>>()
        };
        groups.iter().flat_map(of_tenant).collect()
    }

    /// Adds a group, or replaces its status.
    pub fn put(&self, tenant: &TenantId, status: Arc<GroupStatus>) {
        let key = status.group.key.clone();
        self.groups.write().entry(tenant.clone()).or_default().insert(key, status);
    }

    /// Removes a group.
    pub fn remove(&self, tenant: &TenantId, key: &GroupKey) {
        let mut groups = self.groups.write();
        let Some(own) = groups.get_mut(tenant) else { return };
        own.remove(key);
        if own.is_empty() {
            groups.remove(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chronolith_model::TenantId;
    use chronolith_promql::parser::ParserOptions;
    use chronolith_rules::file::{self, FileLimits, FileOptions, UnknownFields};
    use chronolith_rules::group::{Group, GroupDefaults, GroupKey};
    use chronolith_rules::prometheus_templates::PrometheusTemplates;
    use chronolith_rules::status::GroupStatus;

    use super::RuleStatuses;

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
        let statuses = RuleStatuses::default();
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
}
