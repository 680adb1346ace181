//! Verdicts, bound and generations of the key memory; distinct identities.

use super::*;

fn memory(bytes_max: usize) -> KeyMemory {
    KeyMemory::new(bytes_max, 3)
}

fn identity(memory: &KeyMemory, number: u64) -> Identity {
    memory.identity(Part::Attributes, &number.to_le_bytes())
}

#[test]
fn verdicts_are_found_until_the_version_changes() {
    let mut memory = memory(1 << 20);
    memory.set_version(1);
    let [key, dropped, none] = [1, 2, 3].map(|number| identity(&memory, number));
    memory.insert(key, Verdict::Key(b"key"));
    memory.insert(dropped, Verdict::Dropped(300));
    memory.set_version(1);
    assert_eq!(memory.find(key), Some(Verdict::Key(b"key")));
    assert_eq!(memory.find(dropped), Some(Verdict::Dropped(300)));
    assert_eq!(memory.find(none), None);
    assert_eq!(memory.lookup_counts(), (2, 1));
    memory.set_version(2);
    assert_eq!(memory.find(key), None);
    assert_eq!(memory.bytes(), 0);
}

/// Entries in use survive a stream of new ones; the memory stays within its bound.
#[test]
fn used_entries_stay_and_the_memory_is_bounded() {
    let mut memory = memory(64 << 10);
    let used: Vec<Identity> = (0..20).map(|number| identity(&memory, number)).collect();
    for (number, used) in used.iter().enumerate() {
        memory.insert(*used, Verdict::Key(format!("key {number}").as_bytes()));
    }
    for number in 1_000..20_000 {
        let new = identity(&memory, number);
        memory.insert(new, Verdict::Key(&[7; 100]));
        assert!(memory.bytes() <= 64 << 10, "{} bytes", memory.bytes());
        if number % 50 == 0 {
            for (idx, used) in used.iter().enumerate() {
                assert_eq!(memory.find(*used), Some(Verdict::Key(format!("key {idx}").as_bytes())));
            }
        }
    }
    let old = identity(&memory, 1_001);
    assert_eq!(memory.find(old), None);
}

#[test]
fn keys_that_would_push_all_others_out_are_not_kept() {
    let mut memory = memory(64 << 10);
    let large = identity(&memory, 1);
    memory.insert(large, Verdict::Key(&vec![1; 20 << 10]));
    assert_eq!(memory.find(large), None);
    assert_eq!(memory.bytes(), 0);
}

/// A dropped series takes less than 64 bytes, so that a million fits in 64 MiB.
#[test]
fn dropped_series_are_small() {
    let mut memory = memory(128 << 20);
    for number in 0..100_000 {
        let dropped = identity(&memory, number);
        memory.insert(dropped, Verdict::Dropped(RULE_NUMBER_MIN));
    }
    assert!(memory.bytes() <= 100_000 * 64, "{} bytes", memory.bytes());
    let first = identity(&memory, 0);
    assert_eq!(memory.find(first), Some(Verdict::Dropped(RULE_NUMBER_MIN)));
}

#[test]
fn equal_bytes_of_other_parts_and_parents_are_other_identities() {
    let memory = memory(1 << 20);
    let parent = memory.identity(Part::Resource, b"a");
    let other = memory.identity(Part::Resource, b"b");
    let found = [
        parent,
        other,
        memory.identity(Part::Scope, b"a"),
        memory.within(parent, Part::Scope, b"a"),
        memory.within(other, Part::Scope, b"a"),
        memory.within(parent, Part::Unit, b"a"),
        KeyMemory::new(1 << 20, 4).identity(Part::Resource, b"a"),
    ];
    for (at, identity) in found.iter().enumerate() {
        assert!(!found[..at].contains(identity), "{at}");
    }
}
