//! Single requests under faults: exact bytes, errors, deadlines, retry budget, hedges, limits.

use std::sync::atomic::Ordering;

use super::*;
use crate::error::BucketError;
use crate::store::CreateOutcome;
use crate::store::list::ListOptions;
use crate::store::meter::MeterSnapshot;
use crate::store::read::{Piece, ReadRange};
use crate::store::request::Operation;
use crate::store::retry::{Outcome, RETRY_PERCENT};

async fn read(rig: &Rig, key: &str, range: ReadRange, etag: Option<&str>) -> Result<Bytes, BucketError> {
    rig.store.read(&rig.query(600_000), key, range, etag).await.map(|found| found.bytes)
}

async fn check_reads(backend: Arc<dyn Backend>) {
    let rig = Rig::over(backend, FaultPlan::default(), 3);
    let body = pattern(1, 3_000_000);
    rig.store.put(&rig.query(600_000), "a/b", body.clone()).await.unwrap();
    let found = rig.store.read(&rig.query(600_000), "a/b", ReadRange::Whole, None).await.unwrap();
    assert_eq!((&found.bytes, found.offset, found.object_bytes), (&body, 0, 3_000_000));
    let etag = found.etag;
    assert!(etag.is_some());
    for range in [0..1, 17..2_999_999, 2_999_999..3_000_000] {
        let want = body.slice(range.start as usize..range.end as usize);
        assert_eq!(
            read(&rig, "a/b", ReadRange::Exact(range.clone()), etag.as_deref()).await,
            Ok(want.clone())
        );
        let mut out = vec![0; want.len()];
        rig.store
            .read_into(
                &rig.query(600_000),
                Piece { key: "a/b", object_bytes: None, offset: range.start, out: &mut out, etag: &mut None },
            )
            .await
            .unwrap();
        assert_eq!(out, want);
    }
    assert_eq!(read(&rig, "a/b", ReadRange::Suffix(5), None).await, Ok(body.slice(2_999_995..)));
    assert_eq!(read(&rig, "a/b", ReadRange::Suffix(4_000_000), None).await, Ok(body.clone()));
    for range in [2_999_999..3_000_001, 3_000_000..3_000_001, 9_000_000..9_000_001] {
        let beyond = read(&rig, "a/b", ReadRange::Exact(range.clone()), None).await;
        assert!(
            matches!(beyond, Err(BucketError::Corrupt { .. } | BucketError::Refused { .. })),
            "{beyond:?}"
        );
    }
    let changed = read(&rig, "a/b", ReadRange::Whole, Some("\"other\"")).await;
    assert_eq!(changed, Err(BucketError::Changed { key: "a/b".to_owned() }));
    for key in ["a/c", "a", "a/b/c"] {
        let absent = read(&rig, key, ReadRange::Whole, None).await;
        assert_eq!(absent, Err(BucketError::NotFound { key: key.to_owned() }));
    }
    for key in ["", "../x", "a/../b", "/a", "a//b", "a/", "a/\n"] {
        let refused = read(&rig, key, ReadRange::Whole, None).await;
        assert!(matches!(refused, Err(BucketError::Config { setting: "key", .. })), "{key}: {refused:?}");
    }
    let head = rig.store.head(&rig.query(600_000), "a/b").await.unwrap();
    assert_eq!((head.object_bytes, head.etag), (3_000_000, etag));
    rig.store.remove(&rig.query(600_000), "a/b").await.unwrap();
    rig.store.remove(&rig.query(600_000), "a/b").await.unwrap();
    assert!(matches!(rig.store.head(&rig.query(600_000), "a/b").await, Err(BucketError::NotFound { .. })));
}

#[tokio::test]
async fn reads_return_the_bytes_asked_for_in_memory() {
    check_reads(Arc::new(InMemory::new())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_return_the_bytes_asked_for_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    check_reads(local_backend(dir.path())).await;
}

/// Opens the store as the server does, with files that stay open.
#[tokio::test(flavor = "multi_thread")]
async fn positional_reads_of_a_directory_return_the_bytes_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::memory(FaultPlan::default());
    let config = StoreConfig::new(&format!("file://{}", dir.path().display()));
    let store = Store::open(&config, &rig.env, Handle::current()).unwrap();
    let body = pattern(6, 100_000);
    store.put(&rig.query(600_000), "a/b", body.clone()).await.unwrap();
    for offset in [0, 1, 50_000, 99_000] {
        let mut out = vec![0; 1_000];
        store
            .read_into(
                &rig.query(600_000),
                Piece { key: "a/b", object_bytes: None, offset, out: &mut out, etag: &mut None },
            )
            .await
            .unwrap();
        assert_eq!(out, body.slice(offset as usize..offset as usize + 1_000));
    }
    let read = async |key: &str, offset| {
        let mut out = vec![0; 1_000];
        store
            .read_into(
                &rig.query(600_000),
                Piece { key, object_bytes: None, offset, out: &mut out, etag: &mut None },
            )
            .await
            .unwrap_err()
    };
    let short = read("a/b", 99_500).await;
    let want = "object a/b is corrupt: range, expected 1000 bytes, found 500 bytes";
    assert_eq!(short.to_string(), want);
    assert_eq!(read("a/c", 0).await, BucketError::NotFound { key: "a/c".to_owned() });
    assert_eq!(read("a", 0).await, BucketError::NotFound { key: "a".to_owned() });
    assert!(matches!(read("../a/b", 0).await, BucketError::Refused { .. }));
    store.remove(&rig.query(600_000), "a/b").await.unwrap();
    assert!(matches!(read("a/b", 0).await, BucketError::NotFound { .. }));
    let counters = store.counters();
    assert_eq!(counters.requests(Operation::Get, Outcome::Ok), 4);
    assert_eq!(counters.tenants[0].1.received_bytes, 4_000);
}

#[tokio::test]
async fn keys_are_relative_to_the_prefix() {
    let rig = Rig::memory(FaultPlan::default());
    let config = StoreConfig::new("memory:///some/prefix");
    let store = Store::open(&config, &rig.env, Handle::current()).unwrap();
    for key in ["a/x", "a/y"] {
        store.put(&rig.query(600_000), key, Bytes::from_static(b"x")).await.unwrap();
    }
    let options = ListOptions { keys_max: 1, ..ListOptions::default() };
    let page = store.list(&rig.query(600_000), &options).await.unwrap();
    assert_eq!((page.objects[0].key.as_str(), page.next_after.as_deref()), ("a/x", Some("a/x")));
    let options = ListOptions { after: page.next_after, ..options };
    let page = store.list(&rig.query(600_000), &options).await.unwrap();
    assert_eq!((page.objects[0].key.as_str(), page.next_after), ("a/y", None));
    let options = ListOptions { is_delimited: true, ..ListOptions::default() };
    assert_eq!(store.list(&rig.query(600_000), &options).await.unwrap().prefixes, ["a"]);
}

async fn check_lists(backend: Arc<dyn Backend>) {
    let rig = Rig::over(backend, FaultPlan::default(), 4);
    let keys = ["a-b/x", "a.b", "a/x", "a/y/z", "a/z", "b"];
    for key in keys {
        rig.store.put(&rig.query(600_000), key, Bytes::from_static(b"x")).await.unwrap();
    }
    for keys_max in 1..8 {
        let mut options = ListOptions { keys_max, ..ListOptions::default() };
        let mut found = Vec::new();
        loop {
            let page = rig.store.list(&rig.query(600_000), &options).await.unwrap();
            assert!(page.objects.len() <= keys_max);
            found.extend(page.objects.into_iter().map(|object| object.key));
            options.after = page.next_after;
            if options.after.is_none() {
                break;
            }
        }
        assert_eq!(found, keys, "pages of {keys_max}");
    }
    let list = |prefix: &str, is_delimited| {
        let options = ListOptions { prefix: prefix.to_owned(), is_delimited, ..ListOptions::default() };
        let (store, context) = (Arc::clone(&rig.store), rig.query(600_000));
        async move {
            let page = store.list(&context, &options).await.unwrap();
            let keys: Vec<String> = page.objects.into_iter().map(|object| object.key).collect();
            (page.prefixes, keys)
        }
    };
    assert_eq!(list("a", false).await.1, ["a/x", "a/y/z", "a/z"]);
    assert_eq!(list("a", true).await, (vec!["a/y".to_owned()], vec!["a/x".to_owned(), "a/z".to_owned()]));
    let (prefixes, keys) = list("", true).await;
    assert_eq!((prefixes, keys), (vec!["a".into(), "a-b".into()], vec!["a.b".into(), "b".into()]));
    assert_eq!(list("absent", false).await, (Vec::new(), Vec::new()));
    assert_eq!(list("absent", true).await, (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn listings_ascend_and_continue_in_memory() {
    check_lists(Arc::new(InMemory::new())).await;
}

#[tokio::test]
async fn listings_ascend_and_continue_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    check_lists(local_backend(dir.path())).await;
}

#[tokio::test]
async fn cut_bodies_never_become_wrong_bytes() {
    let rig = Rig::memory(FaultPlan { cut: 400, unavailable: 100, ..FaultPlan::default() });
    let body = pattern(2, 100_000);
    rig.faults.inner_put("x", body.clone()).await;
    let mut answered = 0;
    for i in 0..300_u64 {
        let start = i * 100;
        let range = start..start + 5_000;
        match read(&rig, "x", ReadRange::Exact(range.clone()), None).await {
            Ok(found) => {
                assert_eq!(found, body.slice(range.start as usize..range.end as usize));
                answered += 1;
            }
            Err(BucketError::Unavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(answered > 150, "{answered}");
    let counters = rig.store.counters();
    assert!(counters.requests(Operation::Get, Outcome::Network) > 50);
    assert!(counters.retries > 20, "{}", counters.retries);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds_when_all_requests_fail() {
    let rig = Rig::in_tokio_time(FaultPlan { unavailable: 1000, ..FaultPlan::default() });
    for timeout_ms in [50, 400] {
        let start_ns = rig.env.clock.mono_ns();
        let error = rig.store.read(&rig.query(timeout_ms), "x", ReadRange::Whole, None).await.unwrap_err();
        let took_ms = (rig.env.clock.mono_ns() - start_ns) / 1_000_000;
        assert!(matches!(&error, BucketError::Unavailable { last, .. } if last.contains("503")), "{error}");
        assert!(took_ms <= timeout_ms, "{took_ms} ms of {timeout_ms}");
    }
    let passed = rig.store.read(&rig.query(0), "x", ReadRange::Whole, None).await;
    assert!(matches!(passed, Err(BucketError::Deadline { .. })), "{passed:?}");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds_when_no_answer_comes() {
    let rig = Rig::in_tokio_time(FaultPlan { stalled: 1000, stall_ms: 60_000, ..FaultPlan::default() });
    let start_ns = rig.env.clock.mono_ns();
    let error = read_within(&rig, 100).await.unwrap_err();
    assert!(matches!(error, BucketError::Deadline { .. }), "{error}");
    // Timers of tokio are a millisecond late at most.
    assert!((100_000_000..=101_000_000).contains(&(rig.env.clock.mono_ns() - start_ns)));
    assert_eq!(rig.store.counters().in_flight, 0);
}

async fn read_within(rig: &Rig, timeout_ms: u64) -> Result<Bytes, BucketError> {
    let found = rig.store.read(&rig.query(timeout_ms), "x", ReadRange::Whole, None).await;
    found.map(|found| found.bytes)
}

#[tokio::test(start_paused = true)]
async fn retries_keep_to_their_budget() {
    let rig = Rig::memory(FaultPlan { unavailable: 1000, ..FaultPlan::default() });
    for _ in 0..500 {
        read_within(&rig, 600_000).await.unwrap_err();
    }
    let requests = rig.faults.requests.load(Ordering::Relaxed);
    let most = 500 + 500 * RETRY_PERCENT / 100 + 20;
    assert!((600..=most).contains(&requests), "{requests} requests for 500 reads, at most {most}");
}

#[tokio::test]
async fn a_stalled_read_is_hedged() {
    let rig = Rig::memory(FaultPlan::default());
    rig.faults.inner_put("x", pattern(3, 10_000)).await;
    for _ in 0..200 {
        read_within(&rig, 600_000).await.unwrap();
    }
    // The first request of each read stalls until the test ends: only a hedge can answer.
    rig.faults.set_plan(FaultPlan { stalled: 1000, stall_ms: 3_600_000, ..FaultPlan::default() });
    for _ in 0..3 {
        let before = rig.store.counters();
        rig.faults.stalls_left.store(1, Ordering::Relaxed);
        assert_eq!(read_within(&rig, 600_000).await.unwrap(), pattern(3, 10_000));
        let after = rig.store.counters();
        assert_eq!((after.hedges - before.hedges, after.hedge_wins - before.hedge_wins), (1, 1));
    }
    assert_eq!(hedged_without(&rig, Purpose::Upload).await, 0, "only queries are hedged");
}

async fn hedged_without(rig: &Rig, purpose: Purpose) -> u64 {
    let before = rig.store.counters().hedges;
    rig.faults.set_plan(FaultPlan { stalled: 1000, stall_ms: 50, ..FaultPlan::default() });
    rig.faults.stalls_left.store(u64::MAX, Ordering::Relaxed);
    let context = RequestContext { purpose, ..rig.query(600_000) };
    rig.store.read(&context, "x", ReadRange::Whole, None).await.unwrap();
    rig.store.counters().hedges - before
}

#[tokio::test]
async fn a_creation_is_settled_by_reading_back() {
    let rig = Rig::memory(FaultPlan { lost_answer: 1000, ..FaultPlan::default() });
    let (mine, other) = (Bytes::from_static(b"mine"), Bytes::from_static(b"other"));
    let created = rig.store.create(&rig.query(600_000), "n", mine.clone()).await;
    assert_eq!(created, Ok(CreateOutcome::Created), "the answer was lost, the write was not");
    assert_eq!(rig.store.create(&rig.query(600_000), "n", mine.clone()).await, Ok(CreateOutcome::Created));
    let refused = rig.store.create(&rig.query(600_000), "n", other.clone()).await.unwrap();
    assert!(matches!(refused, CreateOutcome::Exists(found) if found.bytes == mine));
    // 409 without an object: tried again.
    rig.faults.set_plan(FaultPlan { conflict: 500, ..FaultPlan::default() });
    for i in 0..20 {
        let created = rig.store.create(&rig.query(600_000), &format!("m{i}"), other.clone()).await;
        match created {
            Ok(created) => assert_eq!(created, CreateOutcome::Created),
            Err(error) => assert!(matches!(error, BucketError::Unavailable { .. }), "{error}"),
        }
    }
    let counters: MeterSnapshot = rig.store.counters();
    assert!(counters.requests(Operation::Create, Outcome::Exists) > 5, "{counters:?}");
}

#[tokio::test]
async fn requests_at_once_are_limited() {
    let mut config = StoreConfig::new("memory://");
    config.requests_max = 3;
    let rig = Rig::memory(FaultPlan { stalled: 1000, stall_ms: 20, ..FaultPlan::default() });
    rig.faults.inner_put("x", pattern(4, 10)).await;
    let backend = Arc::clone(&rig.faults) as Arc<dyn Backend>;
    let store = Store::with_backend(backend, &config, &rig.env, Handle::current());
    let reads = (0..12).map(|_| {
        let context = rig.query(600_000);
        let store = &store;
        async move {
            let found = store.read(&context, "x", ReadRange::Whole, None).await;
            assert!(store.counters().in_flight < 3, "this one has ended");
            found
        }
    });
    let start_ns = rig.env.clock.mono_ns();
    for found in futures_util::future::join_all(reads).await {
        found.unwrap();
    }
    assert!(rig.env.clock.mono_ns() - start_ns >= 80_000_000, "four rounds of 20 ms");
    assert_eq!(store.counters().waits, 9);
}
