//! Events and rules: selection, limits, restarts, copies.

use std::collections::BTreeSet;
use std::path::Path;

use chronolith_base::Disk as _;

use super::*;
use crate::limits::LimitsTable;
use chronolith_model::TenantLimits;

const DIR: &str = "/data";
/// The defaults.
const LIMITS: AnnotationLimits = AnnotationLimits::DEFAULT;

struct Fixture {
    env: Env,
    disk: Arc<chronolith_base::MemDisk>,
    options: TsdbOptions,
}

impl Fixture {
    fn new() -> Fixture {
        let (env, _, disk) = Env::fake(0, 1);
        disk.create_dir_all(DIR.as_ref()).expect("a directory");
        Fixture { env, disk, options: TsdbOptions::new(DIR.into()) }
    }

    /// Opens the log; returns the notes and repairs, too.
    fn open(&self) -> (GraphiteLog, Vec<String>, Vec<String>) {
        let (mut notes, mut repaired) = (Vec::new(), Vec::new());
        let mut findings = Findings { notes: &mut notes, repaired: &mut repaired };
        let log = GraphiteLog::open(&self.env, &self.options, &mut findings).expect("opens");
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
        log.add_event(&tenant(), &LIMITS, event(when_s, tags)).expect("stored");
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
    log.add_event(&tenant(), &LIMITS, event(5, "a")).expect("stored");
    log.change_meta_tags(&tenant(), &LIMITS, |rules| rules.extend([rule("x=1"), rule("y=1")]))
        .expect("stored");
    log.add_event(&tenant(), &LIMITS, event(6, "b")).expect("stored");
    log.change_meta_tags(&tenant(), &LIMITS, |rules| rules.truncate(1)).expect("stored");
    fixture.disk.crash();
    let log = fixture.whole();
    assert_eq!(ids(&log, 0..=99, EventTags::Any), [1, 2]);
    assert_eq!(log.meta_tags(&tenant())[..], [rule("x=1")]);
    // Ids continue, also after the file was written as a whole.
    assert_eq!(log.add_event(&tenant(), &LIMITS, event(7, "")).expect("stored"), 3);
    let bytes = log.file_of(&[tenant()]).expect("entries");
    for name in FORMAT.names {
        fixture.disk.write_atomic(&Path::new(DIR).join(name), &bytes).expect("written");
    }
    let log = fixture.whole();
    assert_eq!(log.add_event(&tenant(), &LIMITS, event(8, "")).expect("stored"), 4);
    assert!(log.file_of(&[TenantId::new("other").expect("a name")]).is_none());
}

#[test]
fn a_damaged_copy_is_replaced() {
    let fixture = Fixture::new();
    let log = fixture.whole();
    log.add_event(&tenant(), &LIMITS, event(5, "a")).expect("stored");
    drop(log);
    let path = Path::new(DIR).join(FORMAT.names[0]);
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
    log.add_event(&tenant(), &LIMITS, event(5, "a")).expect("stored");
    drop(log);
    for name in FORMAT.names {
        let path = Path::new(DIR).join(name);
        let mut bytes = fixture.disk.read(&path).expect("read");
        bytes[4] = 2;
        let sum = chronolith_base::crc::crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&sum.to_le_bytes());
        fixture.disk.write_atomic(&path, &bytes).expect("written");
    }
    let mut findings = Findings { notes: &mut Vec::new(), repaired: &mut Vec::new() };
    let opened = GraphiteLog::open(&fixture.env, &fixture.options, &mut findings);
    assert!(matches!(opened, Err(OpenError::Corrupt { .. })));
}

fn stored(id: u64, when_s: i64, bytes: usize) -> Entry {
    let tags = vec![format!("t{id}")];
    Entry::Event(StoredEvent { id, when_s, what: String::new(), tags, data: "x".repeat(bytes) })
}

#[test]
fn the_earliest_events_leave_at_the_limit() {
    let mut entries = TenantEntries::default();
    let count = LIMITS.event_count_max;
    let mut dropped_count = 0;
    for id in 1..=count as u64 + 2 {
        // The second one has the earliest time.
        let when_s = if id == 2 { -5 } else { id.cast_signed() };
        dropped_count += entries.apply(stored(id, when_s, 0), &LIMITS);
    }
    assert_eq!((dropped_count, entries.event_count()), (2, count));
    assert!(entries.event(2).is_none() && entries.event(1).is_none() && entries.event(3).is_some());
    let tags = |tag: &str| [tag.to_owned()];
    assert!(entries.event_times(0..=i64::MAX, EventTags::KnownOf(&tags("t2"))).is_empty());

    let mut entries = TenantEntries::default();
    for id in 1..=2000 {
        entries.apply(stored(id, 0, LIMITS.event_bytes_max - 100), &LIMITS);
        assert!(entries.text_bytes() <= LIMITS.all_events_bytes_max);
    }
    let kept: BTreeSet<u64> = entries.events(0..=0, EventTags::Any).iter().map(|event| event.id).collect();
    assert_eq!(kept.last(), Some(&2000));
    assert!((1020..1030).contains(&kept.len()), "{}", kept.len());
}

/// Lowered limits apply from the next event on, and at a start.
#[test]
fn lowered_limits_of_events_remove_the_earliest() {
    let mut fixture = Fixture::new();
    let log = fixture.whole();
    for when_s in 1..=5 {
        log.add_event(&tenant(), &LIMITS, event(when_s, "a")).expect("stored");
    }
    let fewer = AnnotationLimits { event_count_max: 3, ..LIMITS };
    log.add_event(&tenant(), &fewer, event(6, "a")).expect("stored");
    assert_eq!((ids(&log, 0..=99, EventTags::Any), log.dropped_count()), (vec![4, 5, 6], 3));
    drop(log);
    let limits = TenantLimits { annotations: fewer, ..TenantLimits::default() };
    fixture.options.limits = LimitsTable::from(limits);
    assert_eq!(ids(&fixture.whole(), 0..=99, EventTags::Any), [4, 5, 6]);
}

#[test]
fn what_exceeds_a_limit_is_refused_and_changes_nothing() {
    let mut fixture = Fixture::new();
    fixture.options.texts.annotation_bytes_max = 1500;
    let log = fixture.whole();
    let limits = AnnotationLimits {
        event_bytes_max: 300,
        rule_count_max: 10,
        all_rules_bytes_max: 1000,
        ..AnnotationLimits::default()
    };
    let add = |data_bytes: usize| {
        let large = GraphiteEvent { data: "x".repeat(data_bytes), ..event(1, "a") };
        log.add_event(&tenant(), &limits, large).map_err(|error| error.to_string())
    };
    let refused = "bytes of the event: 329 exceed the limit of 300 (graphite.max-event-size)";
    assert_eq!(add(300), Err(refused.to_owned()));
    let set = |limits: &AnnotationLimits, rules: Vec<StoredMetaTags>| {
        log.change_meta_tags(&tenant(), limits, |stored| *stored = rules).map_err(|error| error.to_string())
    };
    set(&limits, vec![rule("x=1"); 10]).expect("at the limit");
    let refused = "meta tag rules: 11 exceed the limit of 10 (graphite.max-meta-tags)";
    assert_eq!(set(&limits, vec![rule("x=1"); 11]), Err(refused.to_owned()));
    let long = set(&limits, vec![rule(&"x".repeat(1000))]);
    let refused = "bytes of meta tag rules: 1051 exceed the limit of 1000 (graphite.max-meta-tags-size)";
    assert_eq!(long, Err(refused.to_owned()));
    assert_eq!(log.meta_tags(&tenant()).len(), 10);
    assert!(ids(&log, 0..=99, EventTags::Any).is_empty());
    // The rules have 540 bytes, an event 279.
    assert_eq!((add(250), add(250), add(250)), (Ok(1), Ok(2), Ok(3)));
    let refused = "bytes of events and meta tags of all tenants: 1656 exceed the limit of 1500 \
                   (graphite.events-memory)";
    assert_eq!(add(250), Err(refused.to_owned()));
    // Above a lowered limit, rules may get fewer and not more.
    let lowered = AnnotationLimits { rule_count_max: 5, ..limits };
    assert!(set(&lowered, vec![rule("x=1"); 10]).is_err());
    set(&lowered, vec![rule("x=1"); 9]).expect("fewer than before");
    assert_eq!(log.meta_tags(&tenant()).len(), 9);
}
