//! Calls that read: permit, deadline, memory and thread for all of them; the evaluation of PromQL; the lists
//! of running and costly queries for all languages.
//! Not here: state that queries share (`query`), the text of answers (`server`).

pub mod call_context;
pub mod influxql;
pub mod plan;
pub mod promql;
pub mod records;
pub mod rules;
pub mod run;
pub mod running;
