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

/// An empty listing hid all blocks of a tenant without a catalogue if it was empty every time; so did the
/// listing of another folder.
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

/// A proxy that mixes up answers sends those of another object, whose length is another one in most cases.
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
