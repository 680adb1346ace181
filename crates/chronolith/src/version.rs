//! Version of the binary, and the commit it was built from.
//! Not here: finding the commit (`build.rs`).

#[cfg(test)]
mod date;

use chronolith_server::{BuildInfo, VERSION};

/// Optional parts of this build.
const FEATURES: &[&str] = &[
    #[cfg(feature = "azure")]
    "azure",
    #[cfg(feature = "gcs")]
    "gcs",
    #[cfg(feature = "jemalloc")]
    "jemalloc",
    #[cfg(feature = "kafka")]
    "kafka",
    #[cfg(feature = "kafka-librdkafka")]
    "kafka-librdkafka",
    #[cfg(feature = "png")]
    "png",
];

/// Returns the commit and the features of this binary; parts that the build did not know are `unknown`.
pub(crate) fn build_info() -> BuildInfo {
    let unknown = BuildInfo::default();
    BuildInfo {
        revision: option_env!("CHRONOLITH_REVISION").unwrap_or(unknown.revision),
        branch: option_env!("CHRONOLITH_BRANCH").unwrap_or(unknown.branch),
        date: option_env!("CHRONOLITH_BUILD_DATE").unwrap_or(unknown.date),
        features: FEATURES,
    }
}

/// Returns the version as `--version` prints it after the name of the program.
pub(crate) fn text() -> String {
    let BuildInfo { revision, branch, date, features } = build_info();
    let features = if features.is_empty() { "none".to_owned() } else { features.join(" ") };
    format!("{VERSION} (branch: {branch}, revision: {revision}, date: {date}, features: {features})")
}

#[cfg(test)]
mod tests {
    use super::date::utc;
    use super::*;

    #[test]
    fn dates_have_the_form_of_prometheus() {
        for (seconds, want) in [
            (0, "19700101-00:00:00"),
            (86_399, "19700101-23:59:59"),
            (951_782_400, "20000229-00:00:00"),
            (951_868_800, "20000301-00:00:00"),
            (1_077_926_399, "20040227-23:59:59"),
            (1_700_000_000, "20231114-22:13:20"),
            (1_735_689_599, "20241231-23:59:59"),
            (1_735_689_600, "20250101-00:00:00"),
            (4_107_542_400, "21000301-00:00:00"),
            (4_107_542_399, "21000228-23:59:59"),
        ] {
            assert_eq!(utc(seconds), want);
        }
    }

    #[test]
    fn the_features_of_the_build_are_named_in_order() {
        let has = [
            ("azure", cfg!(feature = "azure")),
            ("gcs", cfg!(feature = "gcs")),
            ("jemalloc", cfg!(feature = "jemalloc")),
            ("kafka", cfg!(feature = "kafka")),
            ("kafka-librdkafka", cfg!(feature = "kafka-librdkafka")),
            ("png", cfg!(feature = "png")),
        ];
        let want: Vec<&str> = has.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect();
        assert_eq!(FEATURES, want);
        let shown = if want.is_empty() { "none".to_owned() } else { want.join(" ") };
        assert!(text().ends_with(&format!(", features: {shown})")), "{}", text());
    }

    /// Tests are not compiled again after a commit, so they must not name one.
    #[test]
    fn builds_of_tests_name_no_commit() {
        if cfg!(debug_assertions) {
            assert_eq!(build_info(), BuildInfo { features: FEATURES, ..BuildInfo::default() });
            let unknown = "(branch: unknown, revision: unknown, date: unknown, features: ";
            assert!(text().starts_with(&format!("{VERSION} {unknown}")), "{}", text());
        }
    }
}
