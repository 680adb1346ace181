//! Metadata of the family that the series of a metric name belong to: `x_bucket` is a series of the histogram
//! `x`.
//!
//! Invariants: metadata of the name itself comes first; a type has the suffixes that Prometheus knows for it.

use chronolith_model::{MetadataEntry, MetricKind};

/// Returns the metadata of `metric` or of its family; `stored` returns the metadata of one name, the newest
/// first.
#[must_use]
pub fn metadata_of(metric: &str, stored: impl Fn(&str) -> Vec<MetadataEntry>) -> Option<MetadataEntry> {
    if let Some(own) = stored(metric).into_iter().next() {
        return Some(own);
    }
    let (family, suffix) = metric.rsplit_once('_')?;
    // The series of a family with this suffix have its name.
    if matches!(suffix, "total" | "info") && family.rsplit('_').next() == Some(suffix) && family.contains('_')
    {
        return None;
    }
    stored(family).into_iter().find(|entry| has_suffix(entry.kind, suffix))
}

/// Suffixes of names of series.
const SUFFIXES: [&str; 7] = ["total", "bucket", "sum", "count", "gsum", "gcount", "info"];

/// Returns true if the metric of `entry` is the family of a series whose name `has_name` knows.
pub(crate) fn has_series(entry: &MetadataEntry, has_name: impl Fn(&str) -> bool) -> bool {
    let of_suffix =
        |suffix: &&str| has_suffix(entry.kind, suffix) && has_name(&format!("{}_{suffix}", entry.metric));
    has_name(&entry.metric) || SUFFIXES.iter().any(of_suffix)
}

fn has_suffix(kind: MetricKind, suffix: &str) -> bool {
    use MetricKind::{Counter, GaugeHistogram, Histogram, Info, Summary};
    match suffix {
        "total" => kind == Counter,
        "bucket" => matches!(kind, Histogram | GaugeHistogram),
        "sum" | "count" => matches!(kind, Histogram | GaugeHistogram | Summary),
        "gsum" | "gcount" => kind == GaugeHistogram,
        "info" => kind == Info,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: [(&str, MetricKind); 9] = [
        ("h", MetricKind::Histogram),
        ("s", MetricKind::Summary),
        ("c", MetricKind::Counter),
        ("c_total", MetricKind::Counter),
        ("g", MetricKind::Gauge),
        ("gh", MetricKind::GaugeHistogram),
        ("i", MetricKind::Info),
        ("h_x", MetricKind::Histogram),
        ("two", MetricKind::Gauge),
    ];

    fn entry(metric: &str, kind: MetricKind) -> MetadataEntry {
        MetadataEntry { metric: metric.to_owned(), kind, help: String::new(), unit: String::new() }
    }

    #[track_caller]
    fn check(metric: &str, want: Option<&str>) {
        let stored = |name: &str| {
            let of_name = STORED.iter().filter(|(stored, _)| *stored == name);
            let mut entries: Vec<MetadataEntry> = of_name.map(|(name, kind)| entry(name, *kind)).collect();
            // An older type.
            if name == "two" {
                entries.push(entry("two", MetricKind::Summary));
            }
            entries
        };
        assert_eq!(metadata_of(metric, stored).map(|entry| entry.metric).as_deref(), want, "{metric}");
    }

    #[test]
    fn series_have_the_metadata_of_their_family() {
        for metric in ["h", "h_bucket", "h_sum", "h_count"] {
            check(metric, Some("h"));
        }
        for metric in ["s", "s_sum", "s_count"] {
            check(metric, Some("s"));
        }
        for metric in ["gh_bucket", "gh_gsum", "gh_gcount", "gh_sum", "gh_count"] {
            check(metric, Some("gh"));
        }
        check("c_total", Some("c_total"));
        check("i_info", Some("i"));
        check("h_x_bucket", Some("h_x"));
        check("two_count", Some("two"));
    }

    #[test]
    fn other_suffixes_are_names_of_their_own() {
        for metric in [
            "s_bucket",
            "c_sum",
            "c_bucket",
            "g_total",
            "g_count",
            "h_total",
            "h_created",
            "h_gsum",
            "c_total_total",
            "h_",
            "_bucket",
            "bucket",
            "hbucket",
            "h_bucket_sum",
            "i_total",
            "nope_count",
        ] {
            check(metric, None);
        }
    }
}
