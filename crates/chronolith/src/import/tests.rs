//! Report of an import from Prometheus.

use chronolith_import::SkippedSamples;

use super::*;

/// "left out: 133361 samples of series that no record names" of an import without any loss read like one.
#[test]
fn the_report_tells_what_is_stored_elsewhere_from_what_is_not_imported() {
    let mut report = ImportReport::default();
    let clean = show(Path::new("p"), &report);
    assert!(!clean.contains("skipped") && !clean.contains("not imported"), "{clean}");
    report.blocks_replaced = 1;
    let skipped = &mut report.head.skipped;
    (skipped.in_block, skipped.mapped, skipped.repeated, skipped.dropped_series) = (2, 3, 4, 5);
    (skipped.unknown_series, report.head.metadata) = (6, 7);
    let text = show(Path::new("p"), &report);
    for (count, what) in
        [(1, "blocks"), (2, "WAL"), (3, "WAL"), (4, "WAL"), (5, "WAL"), (6, "WAL"), (7, "metadata")]
    {
        assert!(text.contains(&format!("skipped without loss: {count} {what}")), "{text}");
    }
    assert!(!text.contains("not imported"), "{text}");

    report.head.skipped =
        SkippedSamples { conflicting: 1, out_of_bounds: 2, invalid_histograms: 3, ..Default::default() };
    (report.head.exemplars, report.head.rejected_series, report.head.unknown_chunks) = (4, 5, 7);
    report.head.unknown_records = 6;
    report.head.unknown_record_types = [15, 77].into();
    let text = show(Path::new("p"), &report);
    let whats = [
        "samples",
        "samples",
        "native",
        "exemplars",
        "series",
        "WAL records of the types 15, 77,",
        "m-mapped",
    ];
    for (count, what) in (1..).zip(whats) {
        assert!(text.contains(&format!("not imported: {count} {what}")), "{text}");
    }
}
