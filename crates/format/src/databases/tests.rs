//! Tests of the file of the database catalogue: round trip, golden file, damage at every bit and length.

use super::*;

fn catalog() -> CatalogFile {
    let policy = |name: &str, number| RetentionPolicy {
        name: name.to_owned(),
        duration_ns: 3_600_000_000_000,
        shard_group_ns: 3_600_000_000_000,
        replica_count: 2,
        store: StoreId::Database { number },
        bucket_id: (number > 0).then_some(BucketStoreId::from_bytes([5; 16])),
    };
    let query = |name: &str, last_run_ns| ContinuousQuery {
        name: name.to_owned(),
        text: "CREATE CONTINUOUS QUERY \"ä\" ON db BEGIN SELECT mean(v) INTO x FROM m GROUP BY time(1m) END"
            .to_owned(),
        last_run_ns,
    };
    let database = Database {
        name: "my db".to_owned(),
        default_policy: "autogen".to_owned(),
        policies: vec![policy("autogen", 0), policy("\u{1f600}", 300)],
        continuous_queries: vec![query("a", None), query("b", Some(-5))],
    };
    let user = User {
        name: "u".to_owned(),
        password_hash: "$argon2id$...".to_owned(),
        is_admin: false,
        privileges: BTreeMap::from([("my db".to_owned(), Privilege::Write)]),
    };
    let store = StoreId::Graphite { number: 299 };
    let graphite = RetentionPolicy::of_graphite(store, Some(BucketStoreId::from_bytes([9; 16])));
    let own = TenantCatalog { databases: vec![database], users: vec![user], graphite: Some(graphite) };
    let catalog = DatabaseCatalog {
        tenants: BTreeMap::from([(TenantId::anonymous(), Arc::new(own))]),
        next_store: 301,
        dropped: vec![StoreId::Database { number: 7 }],
        bucket_drops: vec![BucketDrop {
            owner: TenantId::anonymous(),
            id: BucketStoreId::from_bytes([6; 16]),
        }],
    };
    CatalogFile { sequence: 12, catalog }
}

fn encoded() -> Vec<u8> {
    let mut bytes = Vec::new();
    catalog().encode(&mut bytes);
    bytes
}

#[test]
fn comes_back_and_any_damage_is_found() {
    let bytes = encoded();
    assert_eq!(CatalogFile::decode(&bytes).unwrap(), catalog());
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(CatalogFile::decode(&damaged).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(CatalogFile::decode(&bytes[..len]).is_err(), "{len} bytes");
    }
}

/// A checksum that matches must not make a reader trust lengths and numbers.
#[test]
fn forged_bytes_never_panic() {
    let bytes = encoded();
    for at in 0..bytes.len() - 4 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut forged = bytes.clone();
            forged[at] = value;
            let end = forged.len() - 4;
            let crc = crc32c(&forged[..end]);
            forged[end..].copy_from_slice(&crc.to_le_bytes());
            let _ = CatalogFile::decode(&forged);
        }
    }
}

#[test]
fn the_golden_file_is_read_and_written() {
    let golden = include_bytes!("../../testdata/databases/v3.databases");
    assert_eq!(CatalogFile::decode(golden).unwrap(), catalog());
    assert_eq!(encoded(), golden);
}

/// The content of the files of versions without Graphite stores.
fn without_graphite() -> CatalogFile {
    let mut without = catalog();
    without.catalog.tenants.values_mut().for_each(|own| Arc::make_mut(own).graphite = None);
    without
}

#[test]
fn a_file_without_graphite_stores_is_read() {
    let golden = include_bytes!("../../testdata/databases/v2.databases");
    assert_eq!(CatalogFile::decode(golden).unwrap(), without_graphite());
}

#[test]
fn two_graphite_stores_and_one_in_nanoseconds_are_refused() {
    let bytes = encoded();
    let store = StoreId::Graphite { number: 299 };
    let at = bytes.windows(21).position(|window| *window == *store_name(&store).as_bytes()).unwrap();
    let mut in_ns = bytes.clone();
    in_ns[at..at + 5].copy_from_slice(b"__ns-");
    let end = bytes.len() - 4;
    let mut two = bytes[..at - 2].to_vec();
    two.push(2);
    two.extend_from_slice(&bytes[at - 1..end]);
    two.extend_from_slice(&bytes[at - 1..]);
    for mut forged in [in_ns, two] {
        let end = forged.len() - 4;
        let crc = crc32c(&forged[..end]);
        forged[end..].copy_from_slice(&crc.to_le_bytes());
        let error = CatalogFile::decode(&forged).unwrap_err().to_string();
        assert!(error.contains("Graphite store"), "{error}");
    }
}

#[test]
fn a_file_without_ids_is_read() {
    let mut without_ids = without_graphite();
    without_ids.catalog.bucket_drops.clear();
    for own in without_ids.catalog.tenants.values_mut() {
        let databases = &mut Arc::make_mut(own).databases;
        let policies = databases.iter_mut().flat_map(|database| &mut database.policies);
        policies.for_each(|policy| policy.bucket_id = None);
    }
    let golden = include_bytes!("../../testdata/databases/v1.databases");
    assert_eq!(CatalogFile::decode(golden).unwrap(), without_ids);
}
