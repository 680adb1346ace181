//! Total cost of window drops of many small tenants.

use std::path::PathBuf;

use chronolith_base::Env;
use chronolith_model::{Labels, StoreId, TenantId, TenantLimits, WriteBatch};

use crate::head::Head;
use crate::index::STALE_KEYS_PART;
use crate::options::HeadOptions;
use crate::recovery::progress::ReplayProgress;

/// Regression: each window drop scanned the wire keys of all tenants: 10,000 tenants of 20 series cost 2
/// billion lookups. A departed series costs a bounded number, and its keys are gone after a checkpoint at the
/// latest.
#[test]
fn window_drops_of_many_tenants_do_not_scan_all_keys_for_each() {
    const TENANT_COUNT: usize = 300;
    const SERIES_COUNT: usize = 20;
    let (env, _, _) = Env::fake(1_700_000_000_000, 1);
    let options = HeadOptions { wal_segment_bytes: 1 << 20, ..HeadOptions::new(PathBuf::from("/data")) };
    let (head, _) = Head::open(&env, options, &ReplayProgress::default()).expect("opens");
    for tenant in 0..TENANT_COUNT {
        let mut batch = WriteBatch::from_labels();
        for series in 0..SERIES_COUNT {
            let name = format!("m{series}");
            batch
                .push_labels(&Labels::from_pairs([("__name__", name.as_str())]), &[(1_699_999_000_000, 1.0)]);
        }
        let tenant = StoreId::from(TenantId::new(&format!("t{tenant}")).expect("legal"));
        let appended = head.append(&tenant, &TenantLimits::default(), 1_700_000_000_000, &batch);
        head.wait(appended.expect("appends").1).expect("durable");
    }
    for window in head.windows().list() {
        let snapshot = head.windows().snapshot(&window.tenant, window.range).expect("a snapshot");
        assert_eq!(head.windows().drop(snapshot).series_count, SERIES_COUNT as u64);
    }
    let gone_count = (TENANT_COUNT * SERIES_COUNT) as u64;
    let (stale_count, visit_count) = head.state().index.stale_key_counts();
    assert!(visit_count <= gone_count * (STALE_KEYS_PART as u64 + 1), "{visit_count} keys looked at");
    assert!(stale_count <= gone_count as usize / STALE_KEYS_PART);
    head.checkpointer().checkpoint().expect("a checkpoint");
    assert_eq!(
        (head.state().index.series_keys.read().live_count(), head.state().index.stale_key_counts().0),
        (0, 0)
    );
}
