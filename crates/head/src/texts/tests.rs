//! Dictionaries: equal texts have equal ids, all dictionaries in use share one budget.

use chronolith_model::{Labels, StoreId, TenantLimits, WriteBatch};

use super::*;
use crate::head::Head;
use crate::options::HeadOptions;
use crate::recovery::progress::ReplayProgress;
use crate::text_cleanup::unused;

fn id_of(interned: Interned) -> u64 {
    match interned {
        Interned::Known(id) | Interned::Added(id) => id,
        Interned::Refused => panic!("refused"),
    }
}

#[test]
fn equal_texts_have_equal_ids_in_every_window() {
    let (budget, texts) = (TextBudget::new(1 << 20), TenantTexts::default());
    let first = texts.get_or_create(0, &budget);
    let second = texts.get_or_create(100, &budget);
    for text in [&b""[..], b"up", b"a\0\n\xff"] {
        let id = id_of(first.intern(&mut first.lock(), 7, text));
        assert!(matches!(first.intern(&mut first.lock(), 7, text), Interned::Known(known) if known == id));
        assert_eq!(id_of(second.intern(&mut second.lock(), 7, text)), id);
        let snapshot = texts.snapshot().expect("dictionaries");
        for time in [0, 99, 100, 5000] {
            assert_eq!(snapshot.get(time, id).as_deref(), Some(text));
        }
        assert!(snapshot.get(-1, id).is_none() && snapshot.get(0, id ^ 1).is_none());
    }
    assert_eq!(first.take_unsaved().len(), 3);
    assert!(budget.has_unsaved());
    let saved = second.take_unsaved();
    assert!(!budget.has_unsaved());
    second.put_back(&saved);
    assert!(budget.has_unsaved());
}

#[test]
fn texts_with_one_hash_have_different_ids() {
    let dictionary = TextDictionary::new(TextBudget::new(1 << 20));
    let id = id_of(dictionary.intern(&mut dictionary.lock(), 7, b"a"));
    dictionary.restore(id.wrapping_add(1), b"c", true);
    // A text that has taken the id of another one.
    let of_b = xxh3_64_with_seed(b"b", 7);
    dictionary.restore(of_b, b"other", true);
    let found = id_of(dictionary.intern(&mut dictionary.lock(), 7, b"b"));
    assert_eq!((found, dictionary.get(found).as_deref()), (of_b.wrapping_add(1), Some(&b"b"[..])));
    assert!(matches!(dictionary.intern(&mut dictionary.lock(), 7, b"b"), Interned::Known(id) if id == found));
}

#[test]
fn the_budget_is_given_back_with_the_dictionary() {
    let (budget, texts) = (TextBudget::new(300), TenantTexts::default());
    let dictionary = texts.get_or_create(0, &budget);
    let long = [b'x'; 200];
    assert!(matches!(dictionary.intern(&mut dictionary.lock(), 7, &long), Interned::Added(_)));
    assert!(matches!(dictionary.intern(&mut dictionary.lock(), 7, b"y"), Interned::Added(_)));
    assert!(matches!(dictionary.intern(&mut dictionary.lock(), 7, b"z"), Interned::Refused));
    assert!(matches!(dictionary.intern(&mut dictionary.lock(), 7, &long), Interned::Known(_)));
    assert_eq!((budget.used_bytes(), dictionary.bytes()), (297, 297));
    drop((dictionary, texts));
    assert_eq!((budget.used_bytes(), budget.has_unsaved()), (0, false));
}

/// Regression: the sweep waited for the index while it kept the dictionaries to itself, and a selection waits
/// for them while it holds the index. With a write between the two, all three waited for ever.
#[test]
fn dictionaries_are_free_while_the_sweep_waits_for_the_index() {
    let (env, _, _) = chronolith_base::Env::fake(1000, 1);
    let options = HeadOptions { free_bytes_min: 0, ..HeadOptions::new("/d".into()) };
    let (head, _) = Head::open(&env, options, &ReplayProgress::default()).expect("opens");
    let mut batch = WriteBatch::from_labels();
    batch.push_labels(&Labels::from_pairs([("__name__", "up")]), &[(1000, 1.0)]);
    let id = StoreId::anonymous();
    let (_, position) = head.append(&id, &TenantLimits::default(), 1000, &batch).expect("appends");
    head.wait(position).expect("synced");
    let tenant = head.state().index.tenant(&id).expect("a tenant");
    tenant.texts.get_or_create(0, &head.state().texts.budget);
    let index = tenant.tables.write();
    std::thread::scope(|scope| {
        let sweep = scope.spawn(|| unused::free_unused(head.state(), &tenant));
        for _ in 0..100 {
            assert!(tenant.texts.in_use.try_read().is_some());
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(!sweep.is_finished(), "it needs the index");
        drop(index);
        assert_eq!(sweep.join().expect("no panic"), 1);
    });
}
