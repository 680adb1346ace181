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
