//! Reads and listings whose answers are damaged in the same way each time: they are confirmed by requests of
//! another kind, or refused.

use std::collections::BTreeMap;

use super::*;
use crate::error::BucketError;
use crate::store::faults::MemoryBucket;
use crate::store::faults::answers::{AnswerDamage, AnswerFaults, AnswerWay};
use crate::store::list::{ListOptions, ListPage};
use crate::store::read::ReadRange;

const OBJECTS: [&str; 4] = ["a/x", "a/b/y", "c/z", "c/d/z"];

/// A store whose answers can be damaged.
async fn damaged_store() -> (Store, Arc<AnswerFaults>, RequestContext) {
    let env = Env::real();
    let (client, answers) = MemoryBucket::new().connect_damaged(BTreeMap::new());
    let store = Store::simulated(client.clone(), &env, Handle::current());
    let tenant = TenantId::anonymous();
    let timeout = Duration::from_secs(60);
    let request = RequestContext::with_timeout(&*env.clock, tenant, timeout, Purpose::Query);
    for name in OBJECTS {
        client.inner_put(name, Bytes::from(format!("content of {name}"))).await;
    }
    (store, answers, request)
}

/// Damages all answers to requests of one kind.
fn damage(answers: &AnswerFaults, operation: &'static str, way: AnswerWay) {
    let matches = Box::new(move |sent: &crate::store::faults::answers::SentRead| sent.operation == operation);
    answers.set(Some(AnswerDamage { way, matches, count_max: u64::MAX, seed: 7 }));
}

/// Covers a regression: a listing that was empty every time hid all blocks of a tenant without a catalogue,
/// and so did the listing of another folder.
#[tokio::test]
async fn an_empty_listing_is_compared_with_one_of_the_other_form() {
    let (store, answers, request) = damaged_store().await;
    for (is_delimited, operation) in [(false, "list"), (true, "list-directory")] {
        let options =
            |prefix: &str| ListOptions { prefix: prefix.to_owned(), is_delimited, ..ListOptions::default() };
        for prefix in ["", "a", "c", "a/b", "c/d"] {
            answers.set(None);
            let full = store.list_confirmed(&request, &options(prefix)).await.expect("a listing");
            assert!(full != ListPage::default(), "{operation} {prefix}");
            for way in [AnswerWay::Empty, AnswerWay::Other] {
                damage(&answers, operation, way);
                let error = store.list_confirmed(&request, &options(prefix)).await.expect_err("damage");
                assert!(matches!(error, BucketError::Unavailable { .. }), "{operation} {prefix}: {error}");
            }
        }
        answers.set(None);
        let empty = store.list_confirmed(&request, &options("d")).await.expect("a listing");
        assert_eq!(empty, ListPage::default(), "{operation}");
    }
    let after = ListOptions { prefix: "a".to_owned(), after: Some("a/x".to_owned()), ..Default::default() };
    assert_eq!(store.list_confirmed(&request, &after).await.expect("a listing"), ListPage::default());
}

#[tokio::test]
async fn an_object_without_a_checksum_is_read_until_two_answers_are_equal() {
    let (store, answers, request) = damaged_store().await;
    for key in OBJECTS {
        let read = store.read_confirmed(&request, key).await.expect("read").expect("there");
        assert_eq!(read.bytes, format!("content of {key}"));
        // The earlier time has no objects: the content is gone, and its head is there.
        for way in [AnswerWay::Bit, AnswerWay::Older, AnswerWay::Longer] {
            damage(&answers, "get", way);
            let error = store.read_confirmed(&request, key).await.expect_err("damage");
            assert!(matches!(error, BucketError::Unavailable { .. }), "{key} {way:?}: {error}");
            answers.set(None);
        }
    }
    assert_eq!(store.read_confirmed(&request, "gone").await.expect("an answer"), None);
}

/// Covers a proxy that mixes up answers: the object that it sends has another length in most cases.
#[tokio::test]
async fn a_part_of_an_object_of_another_length_is_damage() {
    let (store, answers, request) = damaged_store().await;
    for key in OBJECTS {
        let object_bytes = format!("content of {key}").len() as u64;
        for range in [0..1, 0..object_bytes, 3..9, object_bytes - 1..object_bytes] {
            let part = |object_bytes| ReadRange::Part { range: range.clone(), object_bytes };
            let read = store.read(&request, key, part(object_bytes), None).await.expect("read");
            assert_eq!(read.bytes, format!("content of {key}")[range.start as usize..range.end as usize]);
            for other in [object_bytes - 1, object_bytes + 1, 0, u64::MAX] {
                let error = store.read(&request, key, part(other), None).await.expect_err("another length");
                assert!(matches!(error, BucketError::Corrupt { .. }), "{error}");
            }
        }
    }
    damage(&answers, "get", AnswerWay::Other);
    let part = ReadRange::Part { range: 0..4, object_bytes: 14 };
    let error = store.read(&request, "a/x", part, None).await.expect_err("that of another object");
    assert!(matches!(error, BucketError::Corrupt { .. }), "{error}");
}

/// Covers a regression: a cache with answers of an earlier time made an old snapshot the newest one, if the
/// hint was old.
#[tokio::test]
async fn a_snapshot_that_reads_do_not_find_is_found_by_its_head() {
    use chronolith_format::bucket::NumberedSnapshot;
    use chronolith_format::bucket::catalogue::{DeletionMark, Snapshot};

    use crate::snapshots::{Change, Snapshots};

    let env = Env::real();
    let hints = (2u64..7).flat_map(|newest| (1..newest).map(move |hinted| (newest, hinted)));
    let cases =
        hints.flat_map(|(newest, hinted)| (hinted + 1..=newest).map(move |gone| (newest, hinted, gone)));
    for (newest, hinted, gone) in cases {
        let (client, answers) = MemoryBucket::new().connect_damaged(BTreeMap::new());
        let store = Arc::new(Store::simulated(client.clone(), &env, Handle::current()));
        let tenant = TenantId::anonymous();
        let timeout = Duration::from_secs(60);
        let request = RequestContext::with_timeout(&*env.clock, tenant, timeout, Purpose::Query);
        let snapshots: Snapshots = Snapshots::new(store, &env);
        for number in 0..newest {
            let ulid = chronolith_format::block::meta::Ulid::new(number.cast_signed(), 1);
            let add = |snapshot: &mut Snapshot| {
                snapshot.deletion_marks.push(DeletionMark { ulid, marked_ms: 0 });
                Change::Write
            };
            snapshots.update(&request, add).await.expect("written");
        }
        client.inner_put("anonymous/catalog/latest", Snapshot::names().encode_hint(hinted).into()).await;
        let gone_key = format!("anonymous/{}", Snapshot::object_name(gone));
        let matches = Box::new(move |sent: &crate::store::faults::answers::SentRead| {
            sent.operation == "get" && sent.key == gone_key
        });
        answers.set(Some(AnswerDamage { way: AnswerWay::Older, matches, count_max: u64::MAX, seed: 1 }));
        match snapshots.reader().read_latest(&request).await {
            Ok(latest) => assert_eq!(latest.expect("one").snapshot.number, newest, "hint {hinted}"),
            Err(error) => assert!(newest == gone, "{newest} {hinted} {gone}: {error}"),
        }
        assert!(answers.hit_count() > 0);
    }
}

/// A listing of one form that lacked the same key every time made a block vanish in silence.
#[test]
fn a_block_that_one_form_of_listing_lacks_is_read() {
    use super::reading::{World, tenant, window};
    use crate::{BlockCatalog, CatalogOptions};
    use chronolith_model::BlockEncoding;

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (client, answers) = MemoryBucket::new().connect_damaged(BTreeMap::new());
    let rig = {
        let _entered = runtime.enter();
        Rig::over(client, FaultPlan::default(), 3)
    };
    let options = CatalogOptions { poll: Duration::ZERO, ..CatalogOptions::default() };
    let new_catalog = |world: &World| {
        let handle = world.runtime.handle().clone();
        BlockCatalog::new(world.rig.store.clone(), world.rig.env.clock.clone(), handle, &options)
    };
    let catalog =
        BlockCatalog::new(rig.store.clone(), rig.env.clock.clone(), runtime.handle().clone(), &options);
    let (disk, _, _) = Env::fake(window(0).start, 7);
    let mut world = World { runtime, rig, catalog, disk, local: Vec::new() };
    for idx in 0..3 {
        let meta = world.write_block(window(idx), BlockEncoding::Dense);
        world.upload(meta.ulid, &[]);
    }
    let want = world.ulids();
    assert_eq!(want.len(), 3);
    for operation in ["list", "list-directory"] {
        for way in [AnswerWay::Bit, AnswerWay::Cut, AnswerWay::Older, AnswerWay::Broken, AnswerWay::Longer] {
            for seed in 0..8 {
                // Listings of the tenant's folder only: the objects of each block are listed, too.
                let matches = Box::new(move |sent: &crate::store::faults::answers::SentRead| {
                    sent.operation == operation && sent.key == tenant().as_str()
                });
                // An earlier list of the same process, and a new one.
                for is_new in [false, true] {
                    answers.set(None);
                    world.catalog = new_catalog(&world);
                    if !is_new {
                        assert_eq!(world.ulids(), want);
                    }
                    answers.set(Some(AnswerDamage {
                        way,
                        matches: matches.clone(),
                        count_max: u64::MAX,
                        seed,
                    }));
                    let request = world.rig.query(60_000);
                    let deadline_ns = request.deadline_ns;
                    let refreshed =
                        world.runtime.block_on(world.catalog.refresh_now(&request.folder, deadline_ns));
                    drop(refreshed);
                    if let Ok(blocks) = world.blocks() {
                        let found: Vec<_> = blocks.iter().map(|block| block.ulid()).collect();
                        assert_eq!(found, want, "{operation} {way:?} {seed} new: {is_new}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_folder_is_listed_in_both_forms() {
    let (store, answers, request) = damaged_store().await;
    let names = async |folder: &str| {
        let listed = store.list_folder_confirmed(&request, folder).await;
        listed.map(|objects| objects.into_iter().map(|object| object.key).collect::<Vec<_>>())
    };
    assert_eq!(names("a").await.expect("a listing"), ["a/x"]);
    assert_eq!(names("c/d").await.expect("a listing"), ["c/d/z"]);
    assert_eq!(names("none").await.expect("a listing"), Vec::<String>::new());
    for operation in ["list", "list-directory"] {
        for way in [AnswerWay::Empty, AnswerWay::Cut, AnswerWay::Older, AnswerWay::Bit, AnswerWay::Other] {
            for folder in ["a/b", "c/d"] {
                damage(&answers, operation, way);
                let error = names(folder).await.expect_err("damage");
                assert!(
                    matches!(error, BucketError::Unavailable { .. }),
                    "{operation} {way:?} {folder}: {error}"
                );
            }
        }
        answers.set(None);
    }
}
