//! Racing creators of numbered objects: each reads the newest and creates the next, as a catalogue does.

use super::*;
use crate::error::BucketError;
use crate::store::CreateOutcome;
use crate::store::list::ListOptions;
use crate::store::read::ReadRange;

const CREATORS: usize = 32;

/// Adds one numbered object that names `writer`; returns its number.
async fn update(rig: &Rig, store: &Store, writer: usize) -> usize {
    let body = Bytes::from(format!("writer {writer}"));
    let context = rig.query(600_000);
    let mut number = newest(rig, store).await + 1;
    loop {
        let created = store.create(&context, &key(number), body.clone()).await;
        match created {
            Ok(CreateOutcome::Created) => return number,
            Ok(CreateOutcome::Exists(_)) => number += 1,
            // Not settled: the same number again.
            Err(BucketError::Unavailable { .. }) => {}
            Err(error) => panic!("writer {writer}: {error}"),
        }
    }
}

fn key(number: usize) -> String {
    format!("catalog/{number:020}")
}

async fn newest(rig: &Rig, store: &Store) -> usize {
    let options = ListOptions { prefix: "catalog".to_owned(), ..ListOptions::default() };
    loop {
        match store.list(&rig.query(600_000), &options).await {
            Ok(page) => {
                let last = page.objects.last().map(|last| last.key.trim_start_matches("catalog/"));
                return last.map_or(0, |number| number.parse().unwrap());
            }
            Err(BucketError::Unavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

async fn check_races(backend: Arc<dyn Backend>, seed: u64) {
    let plan = FaultPlan {
        unavailable: 100,
        cut: 100,
        lost_answer: 200,
        conflict: 100,
        delayed: 500,
        delay_ms: 4,
        ..FaultPlan::default()
    };
    let rig = Arc::new(Rig::over(backend, plan, seed));
    let mut creators = tokio::task::JoinSet::new();
    for writer in 0..CREATORS {
        let rig = Arc::clone(&rig);
        creators.spawn(async move { (update(&rig, &rig.store, writer).await, writer) });
    }
    let mut writers = creators.join_all().await;
    writers.sort_unstable();
    let numbers: Vec<usize> = writers.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=CREATORS).collect::<Vec<_>>(), "one update each, no number twice");
    rig.faults.set_plan(FaultPlan::default());
    for (number, writer) in writers {
        let (context, key) = (rig.query(600_000), key(number));
        let found = rig.store.read(&context, &key, ReadRange::Whole, None).await.unwrap();
        assert_eq!(found.bytes, format!("writer {writer}"), "number {number}");
    }
    assert!(rig.faults.injected.load(std::sync::atomic::Ordering::Relaxed) > CREATORS as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_update_is_lost_in_memory() {
    for seed in 0..8 {
        check_races(Arc::new(InMemory::new()), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_update_is_lost_in_a_directory() {
    for seed in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        check_races(local_backend(dir.path()), seed).await;
    }
}
