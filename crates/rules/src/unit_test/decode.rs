//! Fields of a test file, as promtool decodes them from YAML 1.1: a null in a list is an element with no
//! fields.

use std::collections::BTreeMap;

use chronolith_base::utc::parse_rfc3339_ms;

use super::test_file::{AlertTest, ExpectedAlert, ExpectedSample, ExprTest, InputSeries, Test, TestFile};
use crate::faults::{Faults, quoted};
use crate::yaml::{Node, NodeKind};
use crate::yaml_fields::{Field, FieldReader};

/// `evaluation_interval` by default.
const INTERVAL_MS: i64 = 60_000;
const NS_PER_MS: i64 = 1_000_000;
const NS_PER_SECOND: f64 = 1e9;
/// Seconds around 1970 that fit a time in nanoseconds.
const SECONDS_MAX: f64 = 9e9;

/// Decodes a document; faults are added to `faults`.
pub(super) fn test_file(root: Option<&Node>, faults: &mut Faults) -> TestFile {
    const TYPE: &str = "main.unitTestFile";
    let mut decoder = Decoder { reader: FieldReader { faults } };
    let mut file = TestFile {
        rule_files: Vec::new(),
        interval_ms: 0,
        group_order: BTreeMap::new(),
        is_fuzzy: false,
        tests: Vec::new(),
    };
    for field in root.map(|root| decoder.reader.fields(root, TYPE)).unwrap_or_default() {
        let value = &field.value;
        match field.name.as_str() {
            "rule_files" => file.rule_files = decoder.list(value, "[]string", Decoder::text),
            "evaluation_interval" => file.interval_ms = decoder.duration_ms(value),
            "group_eval_order" => file.group_order = decoder.group_order(value),
            "tests" => file.tests = decoder.list(value, "[]main.testGroup", Decoder::test),
            "fuzzy_compare" => file.is_fuzzy = decoder.boolean(value),
            _ => decoder.unknown(&field, TYPE),
        }
    }
    if file.interval_ms == 0 {
        file.interval_ms = INTERVAL_MS;
    }
    for test in file.tests.iter_mut().filter(|test| test.interval_ms == 0) {
        test.interval_ms = file.interval_ms;
    }
    file
}

struct Decoder<'a> {
    reader: FieldReader<'a>,
}

impl Decoder<'_> {
    fn test(&mut self, node: &Node) -> Test {
        const TYPE: &str = "main.testGroup";
        let mut test = Test::default();
        for field in self.reader.fields(node, TYPE) {
            let value = &field.value;
            match field.name.as_str() {
                "name" => test.name = self.text(value),
                "interval" => test.interval_ms = self.duration_ms(value),
                "start_timestamp" => test.start_ns = self.time_ns(value),
                "input_series" => test.input_series = self.list(value, "[]main.series", Decoder::series),
                "alert_rule_test" => {
                    test.alert_tests = self.list(value, "[]main.alertTestCase", Decoder::alert_test);
                }
                "promql_expr_test" => {
                    test.expr_tests = self.list(value, "[]main.promqlTestCase", Decoder::expr_test);
                }
                "external_labels" => test.external_labels = self.texts(value),
                "external_url" => test.external_url = self.text(value),
                _ => self.unknown(&field, TYPE),
            }
        }
        test
    }

    fn series(&mut self, node: &Node) -> InputSeries {
        const TYPE: &str = "main.series";
        let mut series = InputSeries::default();
        for field in self.reader.fields(node, TYPE) {
            match field.name.as_str() {
                "series" => series.series = self.text(&field.value),
                "values" => series.values = self.text(&field.value),
                _ => self.unknown(&field, TYPE),
            }
        }
        series
    }

    fn alert_test(&mut self, node: &Node) -> AlertTest {
        const TYPE: &str = "main.alertTestCase";
        let mut test = AlertTest::default();
        for field in self.reader.fields(node, TYPE) {
            match field.name.as_str() {
                "eval_time" => test.eval_time_ms = self.duration_ms(&field.value),
                "alertname" => test.alert_name = self.text(&field.value),
                "exp_alerts" => test.alerts = self.list(&field.value, "[]main.alert", Decoder::alert),
                _ => self.unknown(&field, TYPE),
            }
        }
        test
    }

    fn alert(&mut self, node: &Node) -> ExpectedAlert {
        const TYPE: &str = "main.alert";
        let mut alert = ExpectedAlert::default();
        for field in self.reader.fields(node, TYPE) {
            match field.name.as_str() {
                "exp_labels" => alert.labels = self.texts(&field.value),
                "exp_annotations" => alert.annotations = self.texts(&field.value),
                _ => self.unknown(&field, TYPE),
            }
        }
        alert
    }

    fn expr_test(&mut self, node: &Node) -> ExprTest {
        const TYPE: &str = "main.promqlTestCase";
        let mut test = ExprTest::default();
        for field in self.reader.fields(node, TYPE) {
            match field.name.as_str() {
                "expr" => test.expr = self.text(&field.value),
                "eval_time" => test.eval_time_ms = self.duration_ms(&field.value),
                "exp_samples" => test.samples = self.list(&field.value, "[]main.sample", Decoder::sample),
                _ => self.unknown(&field, TYPE),
            }
        }
        test
    }

    fn sample(&mut self, node: &Node) -> ExpectedSample {
        const TYPE: &str = "main.sample";
        let mut sample = ExpectedSample::default();
        for field in self.reader.fields(node, TYPE) {
            match field.name.as_str() {
                "labels" => sample.labels = self.text(&field.value),
                "value" => sample.value = self.number(&field.value),
                "histogram" => sample.histogram = self.text(&field.value),
                _ => self.unknown(&field, TYPE),
            }
        }
        sample
    }

    fn unknown(&mut self, field: &Field, type_name: &str) {
        let message = format!("field {} not found in type {type_name}", field.name);
        self.reader.faults.add(field.position, message);
    }

    /// Items of a list; null has none.
    fn list<T>(&mut self, node: &Node, type_name: &str, decode: impl Fn(&mut Self, &Node) -> T) -> Vec<T> {
        match &node.kind {
            NodeKind::Sequence(items) => items.iter().map(|item| decode(self, item)).collect(),
            _ if node.is_null() => Vec::new(),
            _ => {
                self.reader.mismatch(node, type_name);
                Vec::new()
            }
        }
    }

    fn group_order(&mut self, node: &Node) -> BTreeMap<String, usize> {
        let names = self.list(node, "[]string", Decoder::text);
        let mut order = BTreeMap::new();
        for (idx, name) in names.into_iter().enumerate() {
            if order.contains_key(&name) {
                let message = format!("group name repeated in evaluation order: {name}");
                self.reader.faults.add(node.position, message);
            }
            order.insert(name, idx);
        }
        order
    }

    fn text(&mut self, node: &Node) -> String {
        self.reader.text(node).text
    }

    fn texts(&mut self, node: &Node) -> BTreeMap<String, String> {
        self.reader.entries(node).into_iter().map(|entry| (entry.name, entry.value)).collect()
    }

    fn duration_ms(&mut self, node: &Node) -> i64 {
        self.reader.duration_ms(node).unwrap_or(0)
    }

    fn number(&mut self, node: &Node) -> f64 {
        let number = match &node.kind {
            NodeKind::Scalar(scalar) => scalar.integer().map(|integer| integer as f64).or(scalar.float()),
            _ => None,
        };
        if number.is_none() && !node.is_null() {
            self.reader.mismatch(node, "float64");
        }
        number.unwrap_or(0.0)
    }

    fn boolean(&mut self, node: &Node) -> bool {
        let boolean = match &node.kind {
            NodeKind::Scalar(scalar) => scalar.boolean(),
            _ => None,
        };
        if boolean.is_none() && !node.is_null() {
            self.reader.mismatch(node, "bool");
        }
        boolean.unwrap_or(false)
    }

    /// A time as seconds since 1970 or RFC 3339.
    fn time_ns(&mut self, node: &Node) -> i64 {
        if node.is_null() {
            return 0;
        }
        let text = self.text(node);
        let parsed = match text.parse::<f64>() {
            Ok(seconds) if seconds.abs() <= SECONDS_MAX => Some((seconds * NS_PER_SECOND) as i64),
            Ok(_) => None,
            Err(_) => parse_rfc3339_ms(&text).and_then(|ms| ms.checked_mul(NS_PER_MS)),
        };
        parsed.unwrap_or_else(|| {
            let message = format!("cannot parse {} to a valid timestamp", quoted(&text));
            self.reader.faults.add(node.position, message);
            0
        })
    }
}
