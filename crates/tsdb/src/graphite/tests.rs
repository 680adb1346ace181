//! Events and rules: selection, limits, restarts, copies.

use std::collections::BTreeSet;

use chronolith_base::Disk as _;

use super::tenant::{EVENT_BYTES_PER_TENANT_MAX, EVENTS_PER_TENANT_MAX};
use super::*;

const DIR: &str = "/data";

struct Fixture {
    env: Env,
    disk: Arc<chronolith_base::MemDisk>,
}

impl Fixture {
    fn new() -> Fixture {
        let (env, _, disk) = Env::fake(0, 1);
        disk.create_dir_all(DIR.as_ref()).expect("a directory");
        Fixture { env, disk }
    }

    /// Opens the log; returns the notes and repairs, too.
    fn open(&self) -> (GraphiteLog, Vec<String>, Vec<String>) {
        let (mut notes, mut repaired) = (Vec::new(), Vec::new());
        let mut findings = Findings { notes: &mut notes, repaired: &mut repaired };
        let log = GraphiteLog::open(&self.env, DIR.as_ref(), SyncMode::Fsync, &mut findings).expect("opens");
        (log, notes, repaired)
    }

    fn whole(&self) -> GraphiteLog {
        let (log, notes, repaired) = self.open();
        assert!(notes.is_empty() && repaired.is_empty(), "{notes:?} {repaired:?}");
        log
    }
}

fn tenant() -> TenantId {
    TenantId::anonymous()
}

fn event(when_s: i64, tags: &str) -> GraphiteEvent {
    let tags = tags.split_whitespace().map(str::to_owned).collect();
    GraphiteEvent { when_s, what: format!("at {when_s}"), tags, data: String::new() }
}

fn rule(tag: &str) -> StoredMetaTags {
    StoredMetaTags { tags: vec![tag.to_owned()], expressions: vec!["a=b".to_owned()] }
}

fn ids(log: &GraphiteLog, range_s: RangeInclusive<i64>, tags: EventTags<'_>) -> Vec<u64> {
    log.events(&tenant(), range_s, tags).into_iter().map(|event| event.id).collect()
}

#[test]
fn events_are_selected_by_time_and_tags() {
    let log = Fixture::new().whole();
    for (when_s, tags) in [(30, "a b"), (10, "a"), (20, "b c"), (20, "")] {
        log.add_event(&tenant(), event(when_s, tags)).expect("stored");
    }
    let check = |range_s: RangeInclusive<i64>, tags: EventTags<'_>, want: &[u64]| {
        assert_eq!(ids(&log, range_s.clone(), tags), want, "{range_s:?} {tags:?}");
    };
    let texts = |tags: &str| tags.split(' ').map(str::to_owned).collect::<Vec<_>>();
    check(i64::MIN..=i64::MAX, EventTags::Any, &[2, 3, 4, 1]);
    check(10..=20, EventTags::Any, &[2, 3, 4]);
    check(11..=19, EventTags::Any, &[]);
    check(RangeInclusive::new(20, 10), EventTags::Any, &[]);
    check(0..=99, EventTags::OneOf(&texts("a c")), &[2, 3, 1]);
    check(0..=99, EventTags::AllOf(&texts("a b")), &[1]);
    check(0..=99, EventTags::AllOf(&texts("a x")), &[]);
    check(0..=99, EventTags::KnownOf(&texts("a x")), &[2, 1]);
    check(0..=99, EventTags::KnownOf(&texts("x")), &[]);
    assert_eq!(log.event_times(&tenant(), 0..=99, EventTags::Any), [10, 20, 20, 30]);
    assert_eq!(log.event(&tenant(), 3).map(|event| event.what), Some("at 20".to_owned()));
    assert_eq!(log.event(&tenant(), 9), None);
    let other = TenantId::new("other").expect("a name");
    assert!(log.events(&other, 0..=99, EventTags::Any).is_empty());
}

#[test]
fn acknowledged_changes_survive_a_power_cut() {
    let fixture = Fixture::new();
    let log = fixture.whole();
    log.add_event(&tenant(), event(5, "a")).expect("stored");
    log.change_meta_tags(&tenant(), |rules| rules.extend([rule("x=1"), rule("y=1")])).expect("stored");
    log.add_event(&tenant(), event(6, "b")).expect("stored");
    log.change_meta_tags(&tenant(), |rules| rules.truncate(1)).expect("stored");
    fixture.disk.crash();
    let log = fixture.whole();
    assert_eq!(ids(&log, 0..=99, EventTags::Any), [1, 2]);
    assert_eq!(log.meta_tags(&tenant())[..], [rule("x=1")]);
    // Ids continue, also after the file was written as a whole.
    assert_eq!(log.add_event(&tenant(), event(7, "")).expect("stored"), 3);
    let bytes = log.file_of(&[tenant()]).expect("entries");
    for name in [FILE_NAME, MIRROR_NAME] {
        fixture.disk.write_atomic(&Path::new(DIR).join(name), &bytes).expect("written");
    }
    let log = fixture.whole();
    assert_eq!(log.add_event(&tenant(), event(8, "")).expect("stored"), 4);
    assert!(log.file_of(&[TenantId::new("other").expect("a name")]).is_none());
}

#[test]
fn a_damaged_copy_is_replaced() {
    let fixture = Fixture::new();
    let log = fixture.whole();
    log.add_event(&tenant(), event(5, "a")).expect("stored");
    drop(log);
    let path = Path::new(DIR).join(FILE_NAME);
    let mut bytes = fixture.disk.read(&path).expect("read");
    bytes[40] ^= 1;
    fixture.disk.write_atomic(&path, &bytes).expect("written");
    let (log, notes, repaired) = fixture.open();
    assert_eq!((notes.len(), repaired.len()), (0, 1), "{notes:?} {repaired:?}");
    assert_eq!(ids(&log, 0..=99, EventTags::Any), [1]);
    drop(log);
    fixture.whole();
}

#[test]
fn a_later_version_is_refused() {
    let fixture = Fixture::new();
    let log = fixture.whole();
    log.add_event(&tenant(), event(5, "a")).expect("stored");
    drop(log);
    for name in [FILE_NAME, MIRROR_NAME] {
        let path = Path::new(DIR).join(name);
        let mut bytes = fixture.disk.read(&path).expect("read");
        bytes[4] = 2;
        let sum = chronolith_base::crc::crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&sum.to_le_bytes());
        fixture.disk.write_atomic(&path, &bytes).expect("written");
    }
    let mut findings = Findings { notes: &mut Vec::new(), repaired: &mut Vec::new() };
    let opened = GraphiteLog::open(&fixture.env, DIR.as_ref(), SyncMode::Fsync, &mut findings);
    assert!(matches!(opened, Err(OpenError::Corrupt { .. })));
}

#[test]
fn the_earliest_events_leave_at_the_limit() {
    let mut entries = TenantEntries::default();
    let stored = |id: u64, when_s: i64, bytes: usize| {
        let tags = vec![format!("t{id}")];
        Entry::Event(StoredEvent { id, when_s, what: String::new(), tags, data: "x".repeat(bytes) })
    };
    let mut dropped_count = 0;
    for id in 1..=EVENTS_PER_TENANT_MAX as u64 + 2 {
        // The second one has the earliest time.
        let when_s = if id == 2 { -5 } else { id.cast_signed() };
        dropped_count += entries.apply(stored(id, when_s, 0));
    }
    assert_eq!((dropped_count, entries.event_count()), (2, EVENTS_PER_TENANT_MAX));
    assert!(entries.event(2).is_none() && entries.event(1).is_none() && entries.event(3).is_some());
    let tags = |tag: &str| [tag.to_owned()];
    assert!(entries.event_times(0..=i64::MAX, EventTags::KnownOf(&tags("t2"))).is_empty());

    let mut entries = TenantEntries::default();
    for id in 1..=2000 {
        entries.apply(stored(id, 0, EVENT_BYTES_MAX - 100));
        assert!(entries.text_bytes() <= EVENT_BYTES_PER_TENANT_MAX);
    }
    let kept: BTreeSet<u64> = entries.events(0..=0, EventTags::Any).iter().map(|event| event.id).collect();
    assert_eq!(kept.last(), Some(&2000));
    assert!((1020..1030).contains(&kept.len()), "{}", kept.len());
}

#[test]
fn what_exceeds_a_limit_is_refused_and_changes_nothing() {
    let log = Fixture::new().whole();
    let large = GraphiteEvent { data: "x".repeat(EVENT_BYTES_MAX), ..event(1, "a") };
    let refused = log.add_event(&tenant(), large).map_err(|error| error.to_string());
    assert_eq!(refused, Err("bytes of the event: 65565 exceed the limit of 65536".to_owned()));
    let many = |count: usize| log.change_meta_tags(&tenant(), |rules| rules.resize(count, rule("x=1")));
    many(META_TAG_RULES_MAX).expect("at the limit");
    let refused = many(META_TAG_RULES_MAX + 1).map_err(|error| error.to_string());
    assert_eq!(refused, Err("meta tag rules: 1001 exceed the limit of 1000".to_owned()));
    let long = log.change_meta_tags(&tenant(), |rules| rules.push(rule(&"x".repeat(META_TAG_BYTES_MAX))));
    assert!(long.is_err());
    assert_eq!(log.meta_tags(&tenant()).len(), META_TAG_RULES_MAX);
    assert!(ids(&log, 0..=99, EventTags::Any).is_empty());
}
