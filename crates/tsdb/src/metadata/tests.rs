//! Bounds and order of kept entries, known entries.

use super::*;
use chronolith_model::MetricKind;
use chronolith_model::TenantId;

fn entry(metric: &str, help: impl ToString) -> MetadataEntry {
    MetadataEntry {
        metric: metric.to_owned(),
        kind: MetricKind::Counter,
        help: help.to_string(),
        unit: String::new(),
    }
}

fn store() -> MetadataStore {
    let (env, _, disk) = Env::fake(0, 1);
    chronolith_base::Disk::create_dir_all(&*disk, "/data".as_ref()).expect("a directory");
    let mut notes = Vec::new();
    let (dir, mut repaired) = (std::path::Path::new("/data"), Vec::new());
    let mut findings = Findings { notes: &mut notes, repaired: &mut repaired };
    let store = MetadataStore::open(&env, dir, SyncMode::Fsync, &mut findings).expect("opens");
    assert!(notes.is_empty(), "{notes:?}");
    store
}

#[test]
fn entries_of_one_metric_are_bounded_and_newest_first() {
    let (store, tenant) = (store(), StoreId::anonymous());
    for help in 0..20 {
        store.wait(store.keep(&tenant, &[entry("m", help)])).expect("stored");
    }
    let all = store.list(&tenant, Some("m"), 0);
    assert_eq!((all.len(), &*all[0].help), (ENTRIES_PER_METRIC_MAX, "19"));
    assert!(store.list(&StoreId::from(TenantId::new("other").expect("a name")), None, 0).is_empty());
}

#[test]
fn text_is_bounded() {
    let hasher = FixedState::with_seed(1);
    let mut kept = TenantMetadata::default();
    let keep = |kept: &mut TenantMetadata, metric: usize, bytes: usize, room: usize| {
        kept.keep(&entry(&format!("{metric:08}"), "x".repeat(bytes)), &hasher, room)
    };
    assert_eq!(
        keep(&mut kept, 0, TEXT_BYTES_PER_ENTRY_MAX, usize::MAX),
        Fate::Refused,
        "too large a help text"
    );
    assert_eq!(keep(&mut kept, 0, 10, 17), Fate::Refused, "what all tenants may have is used up");
    assert_eq!(keep(&mut kept, 0, 10, 18), Fate::Added);
    assert_eq!(keep(&mut kept, 0, 10, 0), Fate::Known);
    let mut kept = TenantMetadata::default();
    let large = TEXT_BYTES_PER_ENTRY_MAX - 8;
    for metric in 0..5000 {
        keep(&mut kept, metric, large, usize::MAX);
    }
    assert_eq!(kept.metrics.len(), TEXT_BYTES_PER_TENANT_MAX / TEXT_BYTES_PER_ENTRY_MAX);
    assert_eq!(kept.text_bytes, TEXT_BYTES_PER_TENANT_MAX);
    // Entries that make room give their bytes back.
    let mut kept = TenantMetadata::default();
    for bytes in 0..20 {
        keep(&mut kept, 1, bytes, usize::MAX);
    }
    let all = kept.metrics.values().flatten().map(text_bytes).sum::<usize>();
    assert_eq!((kept.text_bytes, kept.metrics["00000001"].len()), (all, ENTRIES_PER_METRIC_MAX));
    assert_eq!(kept.newest.len(), 1);
}

#[test]
fn what_is_known_changes_nothing() {
    let (store, tenant) = (store(), StoreId::anonymous());
    let (one, two) = (entry("m", "one"), entry("m", "two"));
    let first = store.keep(&tenant, &[one.clone(), two.clone()]);
    store.wait(first).expect("stored");
    assert!(!store.log.is_unsynced(), "what is acknowledged is synced");
    assert_eq!(store.keep(&tenant, std::slice::from_ref(&two)), first, "the newest again");
    // An entry that comes back is the newest; the file hears of it later.
    assert_eq!(store.keep(&tenant, std::slice::from_ref(&one)), first);
    assert_eq!(store.list(&tenant, None, 0), [one, two]);
    assert_eq!(store.log.entries().tenants[&tenant].moved.len(), 1);
    store.write_order().expect("stored");
    assert!(store.log.entries().tenants[&tenant].moved.is_empty());
    // The same entry of another tenant is not known.
    let other = StoreId::from(TenantId::new("other").expect("a name"));
    assert_ne!(store.keep(&other, &[entry("m", "one")]), first);
}
