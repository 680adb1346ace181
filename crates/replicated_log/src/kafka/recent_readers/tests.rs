//! Tests of the readers that are kept.

use super::*;

#[test]
fn the_least_recently_used_reader_makes_room() {
    let readers = RecentReaders::new();
    for p in 0..READERS_MAX as u32 {
        assert!(readers.add(PartitionId(p), p).1.is_none());
    }
    assert_eq!(readers.get(PartitionId(0)).map(|reader| *reader.lock()), Some(0));
    let (added, dropped) = readers.add(PartitionId(9), 9);
    assert_eq!((*added.lock(), dropped.map(|reader| *reader.lock())), (9, Some(1)));
    assert_eq!(*readers.add(PartitionId(9), 10).0.lock(), 9, "the first one stays");
    readers.remove(PartitionId(9));
    assert!(readers.get(PartitionId(9)).is_none());
    assert_eq!(readers.take_all().len(), READERS_MAX - 1);
    assert!(readers.get(PartitionId(0)).is_none());
}
