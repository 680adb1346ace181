//! Changes for an empty catalogue, and for one that has some of it.

use std::sync::Arc;

use chronolith_model::TenantId;
use chronolith_model::databases::{DAY_NS, DatabaseCatalog, HOUR_NS};

use super::*;

fn policy(name: &str, duration_ns: i64) -> MetaPolicy {
    let shard_group_ns = HOUR_NS;
    MetaPolicy { name: name.to_owned(), duration_ns, shard_group_ns, replica_count: 1, shards: Vec::new() }
}

fn meta() -> Meta {
    let database = |name: &str, default: &str, policies| MetaDatabase {
        name: name.to_owned(),
        default_policy: default.to_owned(),
        policies,
        continuous_queries: vec![("cq".to_owned(), "CREATE CONTINUOUS QUERY cq ...".to_owned())],
    };
    let privileges = ["d", "gone", INTERNAL_DATABASE].map(|name| (name.to_owned(), 1)).to_vec();
    Meta {
        databases: vec![
            database("d", "two", vec![policy("autogen", 0), policy("two", DAY_NS)]),
            database(INTERNAL_DATABASE, "monitor", vec![policy("monitor", DAY_NS)]),
            database("none", "", Vec::new()),
        ],
        users: vec![MetaUser { name: "ada".to_owned(), is_admin: true, privileges }],
    }
}

fn apply(catalog: &mut DatabaseCatalog, changes: &[CatalogChange]) -> TenantCatalog {
    let tenant = TenantId::anonymous();
    for change in changes {
        catalog.apply(&tenant, change).unwrap();
    }
    catalog.of(&tenant).map(|own| TenantCatalog::clone(own)).unwrap_or_default()
}

#[test]
fn an_empty_catalogue_gets_everything_once() {
    let mut catalog = DatabaseCatalog::default();
    let (changes, notes) = meta().changes(&TenantCatalog::default());
    assert!(notes.len() == 1 && notes[0].contains("\"ada\""), "{notes:?}");
    let own = apply(&mut catalog, &changes);
    let database = own.database("d").unwrap();
    let policies = database.policies.iter().map(|policy| (policy.name.as_str(), policy.duration_ns));
    assert_eq!(policies.collect::<Vec<_>>(), [("two", DAY_NS), ("autogen", 0)]);
    assert_eq!((database.default_policy.as_str(), database.continuous_queries.len()), ("two", 1));
    assert_eq!(own.database("none").unwrap().default_policy, "autogen");
    assert!(own.database(INTERNAL_DATABASE).is_none());
    let user = own.user("ada").unwrap();
    assert!(user.is_admin && user.password_hash.is_empty());
    assert_eq!(user.privileges.iter().collect::<Vec<_>>(), [(&"d".to_owned(), &Privilege::Read)]);
    assert_eq!(meta().changes(&own), (Vec::new(), Vec::new()));
}

#[test]
fn what_exists_stays() {
    let mut catalog = DatabaseCatalog::default();
    let tenant = TenantId::anonymous();
    let (changes, _) = meta().changes(&TenantCatalog::default());
    apply(&mut catalog, &changes);
    let mut other = TenantCatalog::clone(catalog.of(&tenant).unwrap());
    other.databases[0].policies[1].duration_ns = 5 * DAY_NS;
    other.databases[0].continuous_queries[0].text = "another".to_owned();
    other.databases[0].policies.remove(0);
    catalog.tenants.insert(tenant, Arc::new(other.clone()));
    let (changes, notes) = meta().changes(&other);
    assert_eq!(notes.len(), 2, "{notes:?}");
    let own = apply(&mut catalog, &changes);
    let durations = own.databases[0].policies.iter().map(|policy| policy.duration_ns);
    assert_eq!(durations.collect::<Vec<_>>(), [5 * DAY_NS, DAY_NS]);
    assert_eq!(own.databases[0].continuous_queries[0].text, "another");
}
