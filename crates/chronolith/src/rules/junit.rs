//! Results of unit tests as JUnit's XML, with the elements and attributes of promtool.
//!
//! Not here: writing of the file (the caller).

/// Test suites: one per test file.
#[derive(Default)]
pub(super) struct Report {
    pub(super) suites: Vec<Suite>,
}

/// Tests of one file.
pub(super) struct Suite {
    pub(super) name: String,
    /// Time of the run, `2006-01-02T15:04:05`.
    pub(super) timestamp: String,
    pub(super) cases: Vec<Case>,
}

/// Outcome of one test.
#[derive(Default)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) failures: Vec<String>,
    /// The file could not be used.
    pub(super) error: Option<String>,
    /// Reason that something was not tested.
    pub(super) skipped: Option<String>,
}

impl Report {
    /// The report as XML.
    pub(super) fn to_xml(&self) -> String {
        let suites: String = self.suites.iter().map(Suite::to_xml).collect();
        format!("<testsuites>{suites}</testsuites>")
    }
}

impl Suite {
    fn to_xml(&self) -> String {
        let failures: usize = self.cases.iter().map(|case| case.failures.len()).sum();
        let errors = self.cases.iter().filter(|case| case.error.is_some()).count();
        let skipped = self.cases.iter().filter(|case| case.skipped.is_some()).count();
        let cases: String = self.cases.iter().map(Case::to_xml).collect();
        format!(
            "<testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" \
             timestamp=\"{}\">{cases}</testsuite>",
            escaped(&self.name),
            self.cases.len(),
            escaped(&self.timestamp),
        )
    }
}

impl Case {
    fn to_xml(&self) -> String {
        let element = |name: &str, text: &String| format!("<{name}>{}</{name}>", escaped(text));
        let failures: String = self.failures.iter().map(|text| element("failure", text)).collect();
        let error = self.error.as_ref().map(|text| element("error", text)).unwrap_or_default();
        let skipped = self.skipped.as_ref().map(|text| element("skipped", text)).unwrap_or_default();
        format!("<testcase name=\"{}\">{failures}{error}{skipped}</testcase>", escaped(&self.name))
    }
}

/// Text as Go's `encoding/xml` escapes it; characters that XML cannot have are replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\t' => out.push_str("&#x9;"),
            '\n' => out.push_str("&#xA;"),
            '\r' => out.push_str("&#xD;"),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_the_form_of_promtool() {
        let failed = Case {
            name: "a <b>".to_owned(),
            failures: vec!["x\n\"y\"\u{1}".to_owned(), "z".to_owned()],
            ..Case::default()
        };
        let passed = Case { name: "c".to_owned(), ..Case::default() };
        let suite = Suite {
            name: "f.yml".to_owned(),
            timestamp: "2026-01-02T03:04:05".to_owned(),
            cases: vec![failed, passed],
        };
        let want = "<testsuites><testsuite name=\"f.yml\" tests=\"2\" failures=\"2\" errors=\"0\" skipped=\"0\" \
                    timestamp=\"2026-01-02T03:04:05\"><testcase name=\"a &lt;b&gt;\">\
                    <failure>x&#xA;&#34;y&#34;\u{fffd}</failure><failure>z</failure></testcase>\
                    <testcase name=\"c\"></testcase></testsuite></testsuites>";
        assert_eq!(Report { suites: vec![suite] }.to_xml(), want);
    }
}
