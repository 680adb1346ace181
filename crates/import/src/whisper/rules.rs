//! Comparison of files with storage-schemas.conf and storage-aggregation.conf: carbon applies a rule when it
//! creates a file, so that files keep the rule of that time.
//!
//! Invariant: every file is compared with the rules that carbon would apply to its path.
//! Not here: the configuration files (`ingest::carbon`).

use chronolith_ingest::carbon::{
    AggregationMethod, AggregationRules, Archive, Schemas, X_FILES_FACTOR_DEFAULT,
};

use super::header::Header;

/// Files with other archives or methods than their rules that are listed.
pub const RULE_DIFFERENCES_NAMED_MAX: usize = 100;

/// Rules to compare files with.
#[derive(Debug, Default)]
pub struct Rules {
    /// Rules of archives.
    pub schemas: Option<Schemas>,
    /// Rules of methods.
    pub aggregations: Option<AggregationRules>,
}

/// Files by their difference from the rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleReport {
    /// Files that no rule of archives matches.
    pub without_schema: u64,
    /// Files with other archives.
    pub other_archives: u64,
    /// Files with another method.
    pub other_method: u64,
    /// Files with another xFilesFactor.
    pub other_factor: u64,
    /// Path, content and rule of the first files that differ.
    pub named: Vec<String>,
    /// Differences beyond [`RULE_DIFFERENCES_NAMED_MAX`].
    pub unnamed: u64,
}

/// Returns the archives as a list.
#[must_use]
pub fn archives_text(archives: impl IntoIterator<Item = Archive>) -> String {
    archives.into_iter().map(|archive| archive.to_string()).collect::<Vec<_>>().join(", ")
}

impl Header {
    /// Steps and numbers of slots of all archives.
    pub fn layout(&self) -> impl Iterator<Item = Archive> {
        self.archives.iter().map(|stored| stored.archive)
    }

    /// Returns method, xFilesFactor and archives as text.
    #[must_use]
    pub fn describe(&self) -> String {
        let Header { method, x_files_factor, .. } = self;
        format!("{method}, xFilesFactor {x_files_factor}, {}", archives_text(self.layout()))
    }
}

impl Rules {
    /// Compares a file with the rules of its canonical path.
    pub(crate) fn compare(&self, path: &str, header: &Header, report: &mut RuleReport) {
        if let Some(schemas) = &self.schemas {
            match schemas.match_path(path) {
                None => report.without_schema += 1,
                Some(rule) if header.layout().eq(rule.archives().iter().copied()) => {}
                Some(rule) => {
                    report.other_archives += 1;
                    let own = archives_text(header.layout());
                    let wanted = archives_text(rule.archives().iter().copied());
                    report.name(format!("{path}: archives {own}; rule [{}]: {wanted}", rule.name()));
                }
            }
        }
        if let Some(aggregations) = &self.aggregations {
            let rule = aggregations.match_path(path);
            let name = rule.map_or("carbon's default".to_owned(), |rule| format!("rule [{}]", rule.name()));
            let methods = rule.map_or(&[AggregationMethod::Average][..], |rule| rule.methods());
            let factor = rule.map_or(X_FILES_FACTOR_DEFAULT, |rule| rule.x_files_factor());
            if !methods.contains(&header.method) {
                report.other_method += 1;
                let wanted: Vec<&str> = methods.iter().map(|method| method.name()).collect();
                let wanted = wanted.join(",");
                report.name(format!("{path}: method {}; {name}: {wanted}", header.method));
            }
            // Files have 32 bits.
            if factor as f32 != header.x_files_factor {
                report.other_factor += 1;
                report.name(format!("{path}: xFilesFactor {}; {name}: {factor}", header.x_files_factor));
            }
        }
    }
}

impl RuleReport {
    fn name(&mut self, difference: String) {
        if self.named.len() < RULE_DIFFERENCES_NAMED_MAX {
            self.named.push(difference);
        } else {
            self.unnamed += 1;
        }
    }

    /// Adds the report of other files.
    pub(crate) fn add(&mut self, other: RuleReport) {
        self.without_schema += other.without_schema;
        self.other_archives += other.other_archives;
        self.other_method += other.other_method;
        self.other_factor += other.other_factor;
        other.named.into_iter().for_each(|difference| self.name(difference));
        self.unnamed += other.unnamed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whisper::FileBuilder;

    #[track_caller]
    fn check(path: &str, method: AggregationMethod, want: &[&str]) {
        let schemas =
            "[web]\npattern = ^web\\.\nretentions = 10s:1m,1m:5m\n[db]\npattern = ^db\nretentions = 60:5";
        let aggregations = "[sums]\npattern = \\.count$\naggregationMethod = sum,max\nxFilesFactor = 0.1";
        let rules = Rules {
            schemas: Some(Schemas::parse(schemas).unwrap().0),
            aggregations: Some(AggregationRules::parse(aggregations).unwrap().0),
        };
        let archives = [Archive { step_s: 10, point_count: 6 }, Archive { step_s: 60, point_count: 5 }];
        let bytes = FileBuilder::new(method, 0.1, &archives).unwrap().into_bytes();
        let mut report = RuleReport::default();
        rules.compare(path, &Header::decode(&bytes).unwrap(), &mut report);
        let mut found = report.named.clone();
        if report.without_schema > 0 {
            found.push("no schema".to_owned());
        }
        assert_eq!(found, want, "{path}");
    }

    #[test]
    fn files_that_differ_from_their_rules_are_named() {
        check("web.count", AggregationMethod::Sum, &[]);
        check("web.count", AggregationMethod::Max, &[]);
        check("web.count", AggregationMethod::Last, &["web.count: method last; rule [sums]: sum,max"]);
        check(
            "db.x",
            AggregationMethod::Sum,
            &[
                "db.x: archives 10s:1m (6 points), 1m:5m (5 points); rule [db]: 1m:5m (5 points)",
                "db.x: method sum; carbon's default: average",
                "db.x: xFilesFactor 0.1; carbon's default: 0.5",
            ],
        );
        check("other.count", AggregationMethod::Sum, &["no schema"]);
    }
}
