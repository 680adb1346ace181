//! Contract with the caller: storage of a test, parts that tests share, the outcome.

use chronolith_promql::parser::ParserOptions;

use super::test_file::{TestFile, TestedGroup};
use crate::file::FileError;
use crate::round::{Evaluate, Record};
use crate::template_engine::TemplateEngine;

/// Rounds of one test.
pub const ROUNDS_MAX: i64 = 10_000_000;

/// Storage of one test: samples that are recorded are read by the queries that follow.
pub struct TestStorage {
    /// Queries.
    pub queries: Box<dyn Evaluate>,
    /// Input series and results of rules. A sample before the last one of its series is refused, and so is
    /// another value at its time.
    pub samples: Box<dyn Record>,
}

/// Creates the storage of each test.
pub trait CreateStorage {
    /// Returns an empty storage. Subqueries without a step have `subquery_step_ms`.
    fn create(&self, subquery_step_ms: i64) -> TestStorage;
}

/// Parts that all tests of a file share.
#[derive(Clone, Copy)]
pub struct TestContext<'a> {
    /// The file of the test.
    pub file: &'a TestFile,
    /// Groups in the order of their evaluation (`group_eval_order`), or errors of the rule files.
    pub groups: Result<&'a [TestedGroup], &'a [FileError]>,
    /// Storage of the tests.
    pub storage: &'a dyn CreateStorage,
    /// Parser and expansion of templates.
    pub templates: &'a dyn TemplateEngine,
    /// Experimental parts of PromQL that are enabled.
    pub parser: ParserOptions,
    /// True to return all samples at the end (`--debug`).
    pub has_dump: bool,
    /// True to show differences line by line (`--diff`).
    pub has_diff: bool,
}

/// Result of a test.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestOutcome {
    /// One text per expectation that is not met; empty for a test that passes.
    pub failures: Vec<String>,
    /// All samples at the end, on request.
    pub dump: Option<String>,
}
