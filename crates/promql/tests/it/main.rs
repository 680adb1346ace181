//! PromQL from outside: the parser, test scripts of Prometheus and ours, and random queries with and without
//! sharing of equal parts.

#[allow(dead_code, reason = "shrinking is the fuzzer's")]
#[path = "../../../../fuzz/src/generate.rs"]
mod generate;
mod parser;
mod promqltest;
#[expect(dead_code, reason = "some of it is the fuzzer's")]
#[path = "../../../../fuzz/src/series.rs"]
mod series;
mod sharing;
#[allow(dead_code, reason = "other programs use the rest")]
#[path = "../support/testing.rs"]
mod testing;
