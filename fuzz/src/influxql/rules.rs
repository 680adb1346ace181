//! Rules that explain a difference: what InfluxDB 1.6.7 does, what happens here, why, and the evidence.
//!
//! Invariants: each rule is documented in docs/influxql-differences.md; a rule that explains nothing in a
//! long run fails it.

use crate::compare::Difference;
use crate::runner::Finding;

/// What a rule looks at.
pub(crate) struct Evidence<'e> {
    /// Statement or body of the step that differs.
    pub(crate) text: &'e str,
    /// Statements of the case before it, one per line.
    pub(crate) before: &'e str,
    /// Bodies written by the case.
    pub(crate) bodies: &'e str,
    pub(crate) finding: &'e Finding,
}

impl Evidence<'_> {
    fn difference(&self) -> &Difference {
        &self.finding.difference
    }

    fn kind_has(&self, part: &str) -> bool {
        self.difference().kind.contains(part)
    }

    /// Returns true if the difference is in what is listed or which tags and columns there are.
    fn is_of_names(&self) -> bool {
        let error = self.kind_has("error");
        !error && (self.text.starts_with("SHOW") || self.text.contains('*') || self.kind_has("columns"))
    }

    /// Returns true if one side has rows or an error and the other has no series.
    fn is_of_no_series(&self) -> bool {
        self.kind_has("members statement_id") || self.kind_has("error")
    }

    fn deletes(&self) -> bool {
        ["DELETE", "DROP SERIES", "DROP MEASUREMENT"].iter().any(|word| self.before.contains(word))
    }
}

/// Explanation of a kind of difference.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) applies: fn(&Evidence<'_>) -> bool,
}

const fn rule(name: &'static str, applies: fn(&Evidence<'_>) -> bool) -> Rule {
    Rule { name, applies }
}

/// All rules; the first one that applies explains.
pub(crate) const RULES: [Rule; 38] = [
    rule("InfluxDB contradicts itself", |e| e.finding.contradicts_itself),
    rule("order of points of one time", |e| {
        e.finding.agrees_apart || e.kind_has("order of rows of one time")
    }),
    rule("OFFSET without LIMIT, SOFFSET without SLIMIT", |e| {
        has_alone(e.text, " OFFSET", " LIMIT") || has_alone(e.text, " SOFFSET", " SLIMIT")
    }),
    rule("infinite values", |e| {
        e.difference().theirs.contains("unsupported value: ")
            || e.kind_has("csv") && e.difference().ours.contains("Inf")
            || e.kind_has("null here")
                && ["inf]", "e+308"].iter().any(|end| e.difference().theirs.contains(end))
    }),
    rule("InfluxDB panics", |e| e.difference().theirs.contains("[panic:")),
    rule("errors of statements in CSV", |e| {
        e.kind_has("csv")
            && e.difference().ours.starts_with("error")
            && !e.difference().theirs.starts_with("error")
    }),
    rule("not executed in place of an error", |e| e.difference().theirs == "not executed"),
    rule("types that change within one write", |e| {
        let theirs = &e.difference().theirs;
        theirs == "field type conflict" || theirs.contains("\"error\":\"field type conflict\"")
    }),
    rule("points refused in several shard groups of one write", |e| {
        let conflict = |text: &str| text.contains("partial write: ") && !text.contains("dropped=0");
        conflict(&e.difference().ours) && conflict(&e.difference().theirs)
    }),
    rule("names that are not UTF-8", |e| {
        let texts = [&e.difference().ours, &e.difference().theirs];
        texts.iter().any(|text| text.contains("invalid UTF-8")) || e.bodies.contains('\u{fffd}')
    }),
    rule("series of points without a field", |e| e.bodies.contains(" time=") && e.is_of_names()),
    rule("series of refused points", |e| e.finding.has_refused_write && e.is_of_names()),
    rule("names after a deletion", |e| {
        e.deletes() && (e.is_of_names() || e.difference().ours.contains("during deletion"))
    }),
    rule("number for nulls of texts and booleans", |e| {
        (e.kind_has("cell: null here") || e.kind_has("csv")) && e.text.contains("fill(")
    }),
    rule("cardinality of several shards", |e| e.text.contains("CARDINALITY") && !e.kind_has("error")),
    rule("error of a shard", |e| e.difference().theirs.starts_with("shard ")),
    rule("DROP SHARD", |e| e.text.starts_with("DROP SHARD")),
    rule("chunks of SHOW", |e| e.text.starts_with("SHOW") && e.kind_has("partial /")),
    rule("replicaN in CSV", |e| e.kind_has("csv") && e.text.contains("RETENTION POLICIES")),
    rule("time and mode among equal values", |e| {
        (e.text.contains("mode(") || e.text.contains("percentile("))
            && ["another value", "another number", "csv"].iter().any(|part| e.kind_has(part))
    }),
    rule("windows after one without a percentile", |e| {
        e.text.contains("percentile(") && e.text.contains("time(")
    }),
    rule("time of an integral without windows", |e| {
        e.text.contains("integral(") && !e.text.contains("time(") && !e.kind_has("error")
    }),
    rule("integral of integers at borders of windows", |e| {
        e.text.contains("integral(") && e.text.contains("time(") && !e.kind_has("error")
    }),
    rule("abs of negative integers", |e| e.text.contains("abs(") && e.kind_has("another number")),
    rule("transformation of a transformation with windows", |e| {
        e.text.contains("time(") && e.kind_has("number of rows") && e.text.matches("(").count() > 2
    }),
    rule("top and bottom with LIMIT", |e| {
        (e.text.contains("top(") || e.text.contains("bottom(")) && e.text.contains(" LIMIT")
    }),
    rule("transformation of stddev", |e| {
        e.text.contains("(stddev(") && (e.kind_has("null in") || e.kind_has("another number"))
    }),
    rule("fields in WHERE of SHOW", |e| {
        e.text.contains("SHOW ") && e.text.contains("WHERE") && !e.kind_has("cell")
    }),
    rule("type errors where no series is selected", |e| {
        let texts = [&e.difference().ours, &e.difference().theirs];
        let is_of_types = |text: &&String| text.contains("iterator type") || text.contains("type error: ");
        texts.iter().any(is_of_types) && e.is_of_no_series()
    }),
    rule("GROUP BY of cardinalities", |e| e.text.contains("CARDINALITY") && e.text.contains("GROUP BY")),
    rule("retention policies in FROM of SHOW", |e| {
        e.text.starts_with("SHOW") && (e.text.contains("autogen.") || e.text.contains("norp."))
    }),
    rule("tag keys of other retention policies", |e| {
        let is_of_tags = e.kind_has("members") && !e.kind_has("statement_id");
        is_of_tags && e.text.contains("GROUP BY") && (e.text.contains('/') || e.text.contains('*'))
    }),
    rule("fill in subqueries per shard", |e| {
        e.text.contains("FROM (SELECT") && e.text.contains("fill(") && e.kind_has("number of rows")
    }),
    rule("partial after the last chunk", |e| e.difference().kind.ends_with("series,partial")),
    rule("open: rows of a subquery on one side only", |e| {
        let is_open = e.is_of_no_series()
            || e.kind_has("number of series")
            || e.kind_has("null in InfluxDB")
            || e.kind_has("host: ")
            || e.kind_has("csv");
        e.text.contains("FROM (SELECT") && is_open
    }),
    rule("the same user again", |e| e.difference().ours.contains("user already exists")),
    rule("bound parameter of no type", |e| e.difference().theirs.contains("with type <nil>")),
    rule("windows up to the present", |e| {
        let texts = [&e.difference().ours, &e.difference().theirs];
        texts.iter().any(|text| text.contains("max-select-bucket"))
    }),
];

/// Returns true if `text` has the clause `clause` and not the clause `other`.
fn has_alone(text: &str, clause: &str, other: &str) -> bool {
    text.contains(clause) && !text.contains(other)
}

/// Returns the index of the rule that explains a difference.
pub(crate) fn explain(evidence: &Evidence<'_>) -> Option<usize> {
    RULES.iter().position(|rule| (rule.applies)(evidence))
}
