//! Tests of the database catalogue's file: durability, damage of one copy or both, limits of stores.

use chronolith_base::MemDisk;
use chronolith_model::databases::{HOUR_NS, PolicyOptions};

use super::*;

fn create(name: &str) -> CatalogChange {
    CatalogChange::CreateDatabase { name: name.to_owned(), policy: None }
}

fn fixture() -> (Env, Arc<MemDisk>, PathBuf) {
    let (env, _, disk) = Env::fake(0, 1);
    let data_dir = PathBuf::from("/data");
    env.disk.create_dir_all(&data_dir).expect("a directory");
    (env, disk, data_dir)
}

fn names(store: &DatabaseStore) -> Vec<String> {
    let catalog = store.catalog();
    let own = catalog.of(&TenantId::anonymous()).map(|own| own.databases.clone()).unwrap_or_default();
    own.into_iter().map(|database| database.name).collect()
}

#[test]
fn a_change_survives_a_power_cut() {
    let (env, disk, data_dir) = fixture();
    let store = DatabaseStore::open(&env, &data_dir, &mut Vec::new()).expect("opens");
    for name in ["a", "b"] {
        store.change(&TenantId::anonymous(), &create(name)).expect("is applied");
    }
    disk.crash();
    let mut repaired = Vec::new();
    let store = DatabaseStore::open(&env, &data_dir, &mut repaired).expect("opens");
    assert_eq!((names(&store), repaired), (vec!["a".to_owned(), "b".to_owned()], Vec::new()));
}

/// Whichever copy is damaged or missing, the other one has the last change, and replaces it.
#[test]
fn a_damaged_copy_is_replaced_by_the_other_one() {
    for (damaged, other) in [(0, 1), (1, 0)] {
        let (env, _, data_dir) = fixture();
        let store = DatabaseStore::open(&env, &data_dir, &mut Vec::new()).expect("opens");
        store.change(&TenantId::anonymous(), &create("a")).expect("is applied");
        let path = data_dir.join(FILE_NAMES[damaged]);
        let mut bytes = env.disk.read(&path).expect("reads");
        bytes[10] ^= 1;
        env.disk.write_atomic(&path, &bytes).expect("writes");
        let mut repaired = Vec::new();
        let store = DatabaseStore::open(&env, &data_dir, &mut repaired).expect("opens");
        assert_eq!((names(&store), repaired.len()), (vec!["a".to_owned()], 1));
        env.disk.remove_file(&data_dir.join(FILE_NAMES[other])).expect("removes");
        let store = DatabaseStore::open(&env, &data_dir, &mut Vec::new()).expect("opens");
        assert_eq!(names(&store), ["a"]);
    }
}

#[test]
fn a_start_without_an_intact_copy_names_the_file() {
    let (env, _, data_dir) = fixture();
    let store = DatabaseStore::open(&env, &data_dir, &mut Vec::new()).expect("opens");
    store.change(&TenantId::anonymous(), &create("a")).expect("is applied");
    for name in FILE_NAMES {
        env.disk.write_atomic(&data_dir.join(name), b"CLDB").expect("writes");
    }
    let error = DatabaseStore::open(&env, &data_dir, &mut Vec::new()).err().expect("an error");
    assert!(error.to_string().contains("/data/databases"), "{error}");
}

#[test]
fn a_store_has_the_retention_of_its_policy_and_other_limits_of_its_owner() {
    let (env, _, data_dir) = fixture();
    let store = DatabaseStore::open(&env, &data_dir, &mut Vec::new()).expect("opens");
    let options = PolicyOptions { duration_ns: Some(2 * HOUR_NS), ..PolicyOptions::default() };
    let change =
        CatalogChange::CreateDatabase { name: "a".to_owned(), policy: Some(("p".to_owned(), options)) };
    store.change(&TenantId::anonymous(), &change).expect("is applied");
    let catalog = store.catalog();
    let (owner, policy) = catalog.policies().next().expect("a policy");
    let of_owner = |asked: &TenantId| {
        assert_eq!(asked, owner);
        TenantLimits { series_max: 7, ..TenantLimits::default() }
    };
    let limits = store.limits_of(&policy.store, of_owner).expect("limits");
    assert_eq!((limits.retention_ms, limits.series_max), (7_200_000, 7));
    assert_eq!((limits.duplicates, limits.future_ms_max), (DuplicatePolicy::LastWins, 0));
    assert!(store.has_retention());
    assert_eq!(store.owner_of(&policy.store).as_ref(), Some(owner));
    store.change(owner, &CatalogChange::DropDatabase { name: "a".to_owned() }).expect("is applied");
    assert_eq!((store.catalog().dropped.len(), store.owner_of(&policy.store)), (1, None));
    store.forget_dropped(std::slice::from_ref(&policy.store)).expect("is durable");
    assert!(store.catalog().dropped.is_empty());
}
