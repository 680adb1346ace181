//! Tests of changes of the catalogue.

use super::*;

struct Catalog(DatabaseCatalog);

impl Catalog {
    fn new() -> Catalog {
        Catalog(DatabaseCatalog::default())
    }

    #[track_caller]
    fn change(&mut self, change: CatalogChange) -> &mut Catalog {
        self.0.apply(&TenantId::anonymous(), &change).expect("is applied");
        self
    }

    #[track_caller]
    fn refuses(&mut self, change: CatalogChange, why: &str) -> &mut Catalog {
        let before = self.0.clone();
        let error = self.0.apply(&TenantId::anonymous(), &change).expect_err("is refused");
        assert_eq!(error.to_string(), why);
        assert_eq!(self.0, before);
        self
    }

    fn database(&self, name: &str) -> &Database {
        self.0.of(&TenantId::anonymous()).and_then(|own| own.database(name)).expect("a database")
    }
}

fn create(name: &str) -> CatalogChange {
    CatalogChange::CreateDatabase { name: name.to_owned(), policy: None }
}

fn drop_database(name: &str) -> CatalogChange {
    CatalogChange::DropDatabase { name: name.to_owned() }
}

fn policy(database: &str, name: &str, duration_ns: i64, is_default: bool) -> CatalogChange {
    let options = PolicyOptions { duration_ns: Some(duration_ns), ..PolicyOptions::default() };
    CatalogChange::CreatePolicy { database: database.to_owned(), name: name.to_owned(), options, is_default }
}

#[test]
fn a_database_has_an_infinite_default_policy() {
    let mut catalog = Catalog::new();
    catalog.change(create("db")).change(create("db"));
    let database = catalog.database("db");
    assert_eq!((database.default_policy.as_str(), database.policies.len()), (AUTOGEN, 1));
    let default = database.policy("").expect("the default policy");
    assert_eq!((default.duration_ns, default.shard_group_ns, default.replica_count), (0, 7 * DAY_NS, 1));
    assert_eq!(default.store, StoreId::Database { number: 0 });
    for name in ["", ".", "..", "a/b", "a\\b", "a\nb"] {
        catalog.refuses(create(name), "invalid name");
    }
    let longest = "a".repeat(255);
    catalog.refuses(create(&format!("{longest}a")), "name too long").change(create(&longest));
    catalog.refuses(policy("db", &"b".repeat(256), DAY_NS, false), "name too long");
}

#[test]
fn a_dropped_database_leaves_its_stores_and_a_new_one_has_others() {
    let mut catalog = Catalog::new();
    catalog.change(create("db")).change(policy("db", "week", 7 * DAY_NS, false));
    catalog.change(drop_database("db")).change(drop_database("db")).change(create("db"));
    let stores = [0, 1].map(|number| StoreId::Database { number });
    assert_eq!(catalog.0.dropped, stores);
    assert_eq!(catalog.database("db").policies[0].store, StoreId::Database { number: 2 });
}

#[test]
fn shard_groups_follow_the_duration() {
    let mut catalog = Catalog::new();
    catalog.change(create("db"));
    for (name, duration_ns, want_ns) in [
        ("hour", HOUR_NS, HOUR_NS),
        ("two_days", 2 * DAY_NS, DAY_NS),
        ("half_year", 180 * DAY_NS, 7 * DAY_NS),
        ("infinite", 0, 7 * DAY_NS),
    ] {
        catalog.change(policy("db", name, duration_ns, false)).change(policy("db", name, duration_ns, false));
        let found = catalog.database("db").policy(name).expect("a policy");
        assert_eq!(found.shard_group_ns, want_ns, "{name}");
    }
    let too_short = "retention policy duration must be at least 1h0m0s";
    catalog
        .refuses(policy("db", "hour", DAY_NS, false), "retention policy already exists")
        .refuses(policy("db", "minute", HOUR_NS / 60, false), too_short)
        .refuses(policy("nope", "hour", HOUR_NS, false), "database not found: nope");
    let long_groups = CatalogChange::AlterPolicy {
        database: "db".to_owned(),
        name: "hour".to_owned(),
        options: PolicyOptions { shard_group_ns: Some(DAY_NS), ..PolicyOptions::default() },
        is_default: false,
    };
    catalog.refuses(long_groups, "retention policy duration must be greater than the shard duration");
}

#[test]
fn a_new_default_policy_replaces_the_other_one() {
    let mut catalog = Catalog::new();
    catalog.change(create("db")).change(policy("db", "week", 7 * DAY_NS, true));
    assert_eq!(catalog.database("db").policy("").expect("the default").name, "week");
    let options = PolicyOptions::default();
    let (database, name) = ("db".to_owned(), AUTOGEN.to_owned());
    catalog.change(CatalogChange::AlterPolicy { database, name, options, is_default: true });
    assert_eq!(catalog.database("db").policy("").expect("the default").name, AUTOGEN);
    catalog.change(CatalogChange::DropPolicy { database: "db".to_owned(), name: AUTOGEN.to_owned() });
    assert_eq!(catalog.database("db").policy(""), None);
    assert_eq!(catalog.0.dropped.len(), 1);
}

#[test]
fn create_database_with_a_policy_that_differs_is_a_conflict() {
    let with = |duration_ns| CatalogChange::CreateDatabase {
        name: "db".to_owned(),
        policy: Some((
            "p".to_owned(),
            PolicyOptions { duration_ns: Some(duration_ns), ..Default::default() },
        )),
    };
    let mut catalog = Catalog::new();
    catalog.change(with(DAY_NS)).change(with(DAY_NS));
    assert_eq!(catalog.database("db").default_policy, "p");
    catalog.refuses(with(2 * DAY_NS), "retention policy conflicts with an existing policy");
}

/// CREATE DATABASE with another policy added it to a database that exists, and made it the default: new
/// points went there, and expired. It is a conflict, and nothing changes.
#[test]
fn create_database_does_not_add_a_policy_to_a_database_that_exists() {
    const HOUR_NS: i64 = 3_600_000_000_000;
    let with = |name: &str, options: PolicyOptions| CatalogChange::CreateDatabase {
        name: "db".to_owned(),
        policy: Some((name.to_owned(), options)),
    };
    let lasting = |duration_ns| PolicyOptions { duration_ns: Some(duration_ns), ..Default::default() };
    let replicas = PolicyOptions { replica_count: Some(1), ..Default::default() };
    let refused = [
        with("short", lasting(3 * DAY_NS)),
        with("x", PolicyOptions::default()),
        with("x", replicas.clone()),
        with("x", PolicyOptions { shard_group_ns: Some(HOUR_NS), ..lasting(3 * DAY_NS) }),
        with("x", lasting(0)),
        with("Autogen", PolicyOptions::default()),
        with("", lasting(3 * DAY_NS)),
        with("autogen", lasting(3 * DAY_NS)),
        with("", PolicyOptions { shard_group_ns: Some(HOUR_NS), ..Default::default() }),
        with("second", lasting(DAY_NS)),
    ];
    let mut catalog = Catalog::new();
    catalog.change(create("db")).change(CatalogChange::CreatePolicy {
        database: "db".to_owned(),
        name: "second".to_owned(),
        options: lasting(DAY_NS),
        is_default: false,
    });
    let before = catalog.database("db").clone();
    for change in refused {
        catalog.refuses(change, "retention policy conflicts with an existing policy");
        assert_eq!(*catalog.database("db"), before);
    }
    for same in [create("db"), with("", PolicyOptions::default()), with("autogen", replicas)] {
        catalog.change(same);
        assert_eq!(*catalog.database("db"), before);
    }
}

/// Options that CREATE DATABASE did not give were compared, too. Only those that it gives are, and the width
/// of shard groups, which the duration of the policy chooses.
#[test]
fn create_database_compares_the_options_that_it_gives() {
    const HOUR_NS: i64 = 3_600_000_000_000;
    const CONFLICT: &str = "retention policy conflicts with an existing policy";
    let with = |name: &str, days: Option<i64>, shard_hours: Option<i64>, replica_count| {
        let duration_ns = days.map(|days| days * DAY_NS);
        let shard_group_ns = shard_hours.map(|hours| hours * HOUR_NS);
        let options = PolicyOptions { duration_ns, shard_group_ns, replica_count };
        CatalogChange::CreateDatabase { name: "db".to_owned(), policy: Some((name.to_owned(), options)) }
    };
    let mut catalog = Catalog::new();
    catalog.change(with("p", Some(30), None, Some(3)));
    let before = catalog.database("db").clone();
    for same in [
        with("p", None, None, None),
        with("p", Some(30), None, None),
        with("p", None, Some(24), None),
        with("p", None, None, Some(3)),
        with("p", Some(30), Some(24), Some(3)),
    ] {
        catalog.change(same);
        assert_eq!(*catalog.database("db"), before);
    }
    for other in [
        with("p", Some(31), None, None),
        with("p", Some(0), None, None),
        with("p", None, Some(12), None),
        with("p", None, None, Some(1)),
        with("p", Some(30), Some(24), Some(2)),
        with("", Some(30), None, Some(3)),
    ] {
        catalog.refuses(other, CONFLICT);
    }
    catalog.change(CatalogChange::DropPolicy { database: "db".to_owned(), name: "p".to_owned() });
    catalog.change(with("q", Some(5), None, None));
    assert_eq!(catalog.database("db").default_policy, "q", "a database without policies gets it");
    catalog.refuses(with("p", Some(30), None, None), CONFLICT);
}

#[test]
fn users_have_privileges_by_database() {
    let name = || "u".to_owned();
    let user = |is_admin| CatalogChange::CreateUser { name: name(), password_hash: "h".to_owned(), is_admin };
    let grant =
        |privilege| CatalogChange::SetPrivilege { user: name(), database: "db".to_owned(), privilege };
    let mut catalog = Catalog::new();
    catalog.refuses(CatalogChange::DropUser { name: name() }, "user not found");
    catalog.change(create("db")).change(user(false)).refuses(user(true), "user already exists");
    catalog.change(grant(Some(Privilege::Read)));
    let may = |catalog: &Catalog, privilege| {
        catalog.0.of(&TenantId::anonymous()).unwrap().user("u").unwrap().may(privilege, "db")
    };
    assert!(may(&catalog, Privilege::Read) && !may(&catalog, Privilege::Write));
    catalog.change(grant(Some(Privilege::All)));
    assert!(may(&catalog, Privilege::Write));
    catalog.change(grant(None)).change(CatalogChange::SetAdmin { user: name(), is_admin: true });
    assert!(may(&catalog, Privilege::Write));
    catalog.change(CatalogChange::DropUser { name: name() });
}

#[test]
fn continuous_queries_keep_their_progress() {
    let text = "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT mean(v) INTO x FROM m GROUP BY time(1m) END";
    let (database, name) = (|| "db".to_owned(), || "q".to_owned());
    let query = |text: &str| CatalogChange::CreateContinuousQuery {
        database: database(),
        name: name(),
        text: text.to_owned(),
    };
    let mut catalog = Catalog::new();
    catalog.change(create("db")).change(query(text));
    let (database_name, query_name) = (database(), name());
    catalog.change(CatalogChange::SetLastRun { database: database_name, name: query_name, last_run_ns: 7 });
    catalog.change(query(text)).refuses(query("other"), "continuous query already exists");
    assert_eq!(catalog.database("db").continuous_queries[0].last_run_ns, Some(7));
    catalog.change(CatalogChange::DropContinuousQuery { database: database(), name: name() });
    assert!(catalog.database("db").continuous_queries.is_empty());
}
