//! Golden files of every kind.

use super::*;

/// A deletion without and with a number, a tick, a cut of all stores and one of a store.
pub(super) fn events() -> [Record; 5] {
    let matcher = |name, op, value| Matcher::new(name, op, value).expect("a matcher");
    let scope = CutScope { tenant: origin().tenant, store: RecordStore::Graphite(BucketStoreId::GRAPHITE) };
    let deletion = |number| Record::Delete {
        origin: RecordOrigin { store: RecordStore::Default, ..origin() },
        number,
        selectors: vec![
            vec![matcher("job", MatchOp::Equal, "api"), matcher("__name__", MatchOp::Regex, "http_.*")],
            vec![matcher("code", MatchOp::NotEqual, "200"), matcher("a", MatchOp::NotRegex, "b|c")],
        ],
        range: TimeRange { start: -1, end: 1_700_000_000_000 },
    };
    [
        deletion(None),
        deletion(Some(300)),
        Record::Tick { arrival_ms: 1_700_000_000_123 },
        Record::Cut(Cut { arrival_ms: 1_700_000_000_123, before_ms: 1_699_999_200_000, scope: None }),
        Record::Cut(Cut { arrival_ms: 1_700_000_000_123, before_ms: 1_699_999_200_000, scope: Some(scope) }),
    ]
}

const SCRAPE: &[u8] = include_bytes!("../../../testdata/record/version-1.scrape");
const LINES: &[u8] = include_bytes!("../../../testdata/record/version-1.lines");
const PATHS: &[u8] = include_bytes!("../../../testdata/record/version-1.paths");
const EVENTS: [&[u8]; 5] = [
    include_bytes!("../../../testdata/record/version-1.delete"),
    include_bytes!("../../../testdata/record/version-1.numbered-delete"),
    include_bytes!("../../../testdata/record/version-1.tick"),
    include_bytes!("../../../testdata/record/version-1.cut"),
    include_bytes!("../../../testdata/record/version-1.cut-of-store"),
];
const PACKED: &[u8] = include_bytes!("../../../testdata/record/version-2.scrape");
const CHANGED: &str = "the bytes that are written have changed: that needs a version";

#[test]
fn golden_files_read_as_ever() {
    for (batch, golden) in [(scrape(), SCRAPE), (lines(), LINES), (paths(), PATHS)] {
        assert_eq!(records_of(&batch), [golden], "{CHANGED}");
        assert_eq!(series_of(&decoded(golden)), series_of(&batch));
    }
    // Bytes of LZ4 may differ from release to release, and mean the same.
    assert_eq!(PACKED[4], 2);
    assert_eq!(series_of(&decoded(PACKED)), series_of(&scrape()));
    for (event, golden) in events().into_iter().zip(EVENTS) {
        let mut out = Vec::new();
        encode_event(&event, &mut out).expect("fits");
        assert_eq!(out, golden, "{CHANGED}");
        assert_eq!(decode_record(golden, source, &mut new_batch()), Ok(event));
    }
}
