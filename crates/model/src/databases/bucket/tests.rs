//! Tests of the rules by which the local catalogue and its copy in a bucket follow each other.

use super::*;
use crate::databases::{CatalogChange, PolicyOptions};

const NOW_MS: i64 = 1000;

fn owner() -> TenantId {
    TenantId::anonymous()
}

fn id(byte: u8) -> BucketStoreId {
    BucketStoreId::from_bytes([byte; 16])
}

/// A local catalogue and its copy.
#[derive(Default)]
struct Pair {
    local: DatabaseCatalog,
    copy: BucketDatabases,
}

impl Pair {
    fn change(&mut self, change: CatalogChange) {
        self.local.apply(&owner(), &change).expect("is applied");
    }

    fn create(&mut self, name: &str) {
        self.change(CatalogChange::CreateDatabase { name: name.to_owned(), policy: None });
    }

    fn drop_database(&mut self, name: &str) {
        self.change(CatalogChange::DropDatabase { name: name.to_owned() });
    }

    /// Gives the next stores the ids from `first` on, and records the local catalogue in the copy.
    fn record(&mut self, mut first: u8) -> Recorded {
        self.local.assign_bucket_ids(&owner(), || {
            first += 1;
            id(first - 1)
        });
        let drops: Vec<BucketStoreId> = self.local.bucket_drops.iter().map(|drop| drop.id).collect();
        let own = self.local.of(&owner()).cloned().unwrap_or_default();
        self.copy.record(&own, &drops, NOW_MS)
    }

    fn names(&self) -> Vec<(&str, BucketStoreId)> {
        let of = |database: &'_ BucketDatabase| database.policies.first().map(|policy| policy.id);
        let named = self.copy.databases.iter().filter_map(|one| Some((one.name.as_str(), of(one)?)));
        named.collect()
    }
}

#[test]
fn the_copy_follows_and_a_repeated_recording_changes_nothing() {
    let mut pair = Pair::default();
    pair.create("a");
    pair.create("b");
    assert_eq!(pair.record(1), Recorded { is_changed: true, displaced: vec![] });
    assert_eq!(pair.names(), [("a", id(1)), ("b", id(2))]);
    assert_eq!(pair.record(9), Recorded::default());
    let options = PolicyOptions { duration_ns: Some(1_209_600_000_000_000), ..PolicyOptions::default() };
    let (database, name) = ("a".to_owned(), "autogen".to_owned());
    pair.change(CatalogChange::AlterPolicy { database, name, options, is_default: true });
    assert!(pair.record(9).is_changed);
    assert_eq!(pair.copy.databases[0].policies[0].duration_ns, 1_209_600_000_000_000);
}

#[test]
fn a_database_that_is_created_again_has_another_store() {
    let mut pair = Pair::default();
    pair.create("a");
    pair.record(1);
    pair.drop_database("a");
    pair.create("a");
    assert_eq!(pair.record(5), Recorded { is_changed: true, displaced: vec![] });
    assert_eq!(pair.names(), [("a", id(5))]);
    assert_eq!(pair.copy.dropped, [DroppedStore { id: id(1), dropped_ms: NOW_MS }]);
    assert_eq!(pair.record(9), Recorded::default(), "the time of the drop stays");
}

#[test]
fn a_dropped_database_leaves_the_copy_and_is_not_adopted_before() {
    let mut pair = Pair::default();
    pair.create("a");
    pair.create("b");
    pair.record(1);
    pair.drop_database("a");
    let copy = pair.copy.clone();
    assert_eq!(pair.local.adopt(&owner(), &copy), Adopted::default());
    assert!(pair.local.of(&owner()).is_some_and(|own| own.database("a").is_none()));
    pair.record(9);
    assert_eq!(pair.names(), [("b", id(2))]);
}

#[test]
fn an_empty_catalogue_adopts_all_and_its_stores_keep_their_ids() {
    let mut pair = Pair::default();
    pair.create("a");
    pair.create("b");
    pair.record(1);
    let mut fresh = DatabaseCatalog::default();
    assert_eq!(fresh.adopt(&owner(), &pair.copy), Adopted { policy_count: 2, conflicts: vec![] });
    let ids: Vec<_> = fresh.policies().map(|(_, policy)| policy.bucket_id).collect();
    assert_eq!(ids, [Some(id(1)), Some(id(2))]);
    let stores: Vec<_> = fresh.policies().map(|(_, policy)| policy.store.clone()).collect();
    assert!(stores[0] != stores[1] && fresh.next_store == 2, "stores of their own");
    assert_eq!(fresh.adopt(&owner(), &pair.copy), Adopted::default(), "once");
}

#[test]
fn a_local_database_of_the_same_name_is_kept_and_named() {
    let mut pair = Pair::default();
    pair.create("a");
    pair.create("only there");
    pair.record(1);
    let mut other = Pair { local: DatabaseCatalog::default(), copy: pair.copy };
    other.create("a");
    let conflict = ("a".to_owned(), "autogen".to_owned(), id(1));
    let copy = other.copy.clone();
    let adopted = other.local.adopt(&owner(), &copy);
    assert_eq!(adopted, Adopted { policy_count: 1, conflicts: vec![conflict.clone()] });
    assert_eq!(other.record(7), Recorded { is_changed: true, displaced: vec![conflict] });
    assert_eq!(other.names(), [("a", id(7)), ("only there", id(2))]);
    assert!(other.copy.dropped.is_empty(), "nothing of the other store is removed");
}

#[test]
fn a_graphite_store_joins_that_of_the_bucket() {
    let mut pair = Pair::default();
    pair.change(CatalogChange::CreateGraphiteStore);
    assert_eq!(pair.record(1), Recorded { is_changed: true, displaced: vec![] });
    assert_eq!(pair.copy.ids().collect::<Vec<_>>(), [BucketStoreId::GRAPHITE]);
    assert_eq!(pair.record(2), Recorded::default());

    let graphite = |catalog: &DatabaseCatalog| catalog.of(&owner()).and_then(|own| own.graphite.clone());
    let mut fresh = DatabaseCatalog::default();
    assert_eq!(fresh.adopt(&owner(), &pair.copy), Adopted { policy_count: 1, conflicts: vec![] });
    let adopted = graphite(&fresh).expect("a Graphite store");
    assert_eq!((adopted.bucket_id, adopted.store.is_graphite()), (Some(BucketStoreId::GRAPHITE), true));

    let mut other = Pair { local: DatabaseCatalog::default(), copy: pair.copy };
    other.change(CatalogChange::CreateGraphiteStore);
    let copy = other.copy.clone();
    assert_eq!(other.local.adopt(&owner(), &copy), Adopted::default());
    assert_eq!(graphite(&other.local).and_then(|policy| policy.bucket_id), Some(BucketStoreId::GRAPHITE));
    // A server without Graphite clients leaves the store of another one.
    let mut without = Pair { local: DatabaseCatalog::default(), copy };
    without.create("a");
    without.record(5);
    assert!(without.copy.has_graphite);
}

/// Applies a change to the original of a cluster; new stores get the ids from `first` on.
fn apply(copy: &mut BucketDatabases, change: &CatalogChange, first: u8) -> Result<bool, CatalogError> {
    let mut next = first;
    let new_id = || {
        next += 1;
        id(next - 1)
    };
    copy.apply(change, new_id, NOW_MS)
}

fn create_change(name: &str) -> CatalogChange {
    CatalogChange::CreateDatabase { name: name.to_owned(), policy: None }
}

#[test]
fn statements_change_the_original_of_a_cluster() {
    let mut copy = BucketDatabases::default();
    assert_eq!(apply(&mut copy, &create_change("a"), 1), Ok(true));
    assert_eq!(apply(&mut copy, &create_change("a"), 9), Ok(false), "a repeat changes nothing");
    assert_eq!(apply(&mut copy, &create_change("b"), 2), Ok(true));
    let create = CatalogChange::CreatePolicy {
        database: "a".to_owned(),
        name: "week".to_owned(),
        options: PolicyOptions { duration_ns: Some(604_800_000_000_000), ..PolicyOptions::default() },
        is_default: true,
    };
    assert_eq!(apply(&mut copy, &create, 3), Ok(true));
    let ids: Vec<BucketStoreId> = copy.ids().collect();
    assert_eq!(ids, [id(1), id(3), id(2)], "other stores keep their ids");
    assert_eq!(copy.databases[0].default_policy, "week");
    let drop_policy = CatalogChange::DropPolicy { database: "a".to_owned(), name: "autogen".to_owned() };
    assert_eq!(apply(&mut copy, &drop_policy, 9), Ok(true));
    let drop_database = CatalogChange::DropDatabase { name: "b".to_owned() };
    assert_eq!(apply(&mut copy, &drop_database, 9), Ok(true));
    assert_eq!(apply(&mut copy, &drop_database, 9), Ok(false));
    let dropped = |byte| DroppedStore { id: id(byte), dropped_ms: NOW_MS };
    assert_eq!(copy.dropped, [dropped(1), dropped(2)]);
    assert_eq!(copy.ids().collect::<Vec<_>>(), [id(3)]);
    assert_eq!(apply(&mut copy, &create_change("b"), 7), Ok(true));
    assert_eq!(copy.ids().collect::<Vec<_>>(), [id(3), id(7)], "created again, with another store");
    let wrong = apply(&mut copy, &create_change("x/y"), 8);
    assert_eq!(wrong, Err(CatalogError::InvalidName));
    assert_eq!(copy.databases.len(), 2);
}

#[test]
fn a_catalogue_follows_the_original_of_a_cluster() {
    let mut copy = BucketDatabases::default();
    let mut local = DatabaseCatalog::default();
    for (name, first) in [("a", 1), ("b", 2)] {
        assert_eq!(apply(&mut copy, &create_change(name), first), Ok(true));
    }
    let followed = local.follow(&owner(), &copy);
    assert_eq!(followed, Followed { added_count: 2, dropped_count: 0 });
    let store_of = |local: &DatabaseCatalog, name: &str| {
        let own = local.of(&owner()).expect("databases").database(name).cloned();
        own.expect("the database").policies[0].store.clone()
    };
    let (a, b) = (store_of(&local, "a"), store_of(&local, "b"));
    assert_eq!(local.follow(&owner(), &copy), Followed::default());
    // Another duration, a database less, and one that was created again.
    let options = PolicyOptions { duration_ns: Some(604_800_000_000_000), ..PolicyOptions::default() };
    let (database, name) = ("a".to_owned(), "autogen".to_owned());
    let alter = CatalogChange::AlterPolicy { database, name, options, is_default: true };
    assert_eq!(apply(&mut copy, &alter, 9), Ok(true));
    assert_eq!(apply(&mut copy, &CatalogChange::DropDatabase { name: "b".to_owned() }, 9), Ok(true));
    assert_eq!(apply(&mut copy, &create_change("b"), 5), Ok(true));
    copy.has_graphite = true;
    assert_eq!(local.follow(&owner(), &copy), Followed { added_count: 2, dropped_count: 1 });
    assert_eq!(local.dropped, std::slice::from_ref(&b));
    assert_eq!(store_of(&local, "a"), a, "the store of a policy that stays has its number");
    assert!(store_of(&local, "b") != b);
    let own = local.of(&owner()).expect("databases");
    assert_eq!(own.databases[0].policies[0].duration_ns, 604_800_000_000_000);
    assert_eq!(own.graphite.as_ref().and_then(|policy| policy.bucket_id), Some(BucketStoreId::GRAPHITE));
    assert_eq!(local.bucket_drops, [], "the bucket knows what was dropped");
}
