//! InfluxDB 1.x as a peer: its configuration file, and InfluxQL for it and for Chronolith.
//!
//! Invariants: limits of series are off and logs are quiet; everything else is its default.

mod line_writer;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

pub(crate) use line_writer::LineWriter;

use crate::http;

/// Writes the configuration below `dir` and returns the arguments of the program; `data` holds further lines
/// of the section of that name, `index` is the form of the index.
pub(crate) fn args(index: &str, dir: &Path, address: &str, data: &str) -> Result<Vec<String>> {
    let config = dir.join("influxdb.conf");
    let data_dir = dir.join("data").display().to_string();
    let rpc = format!("127.0.0.1:{}", http::free_port()?);
    let text = format!(
        "reporting-disabled = true\nbind-address = \"{rpc}\"\n\
         [meta]\ndir = \"{data_dir}/meta\"\n\
         [data]\ndir = \"{data_dir}/data\"\nwal-dir = \"{data_dir}/wal\"\nindex-version = \"{index}\"\n\
         max-series-per-database = 0\nmax-values-per-tag = 0\nquery-log-enabled = false\n{data}\n\
         [http]\nbind-address = \"{address}\"\nlog-enabled = false\n\
         [monitor]\nstore-enabled = false\n"
    );
    std::fs::write(&config, text)?;
    Ok(vec!["run".into(), "-config".into(), config.display().to_string()])
}

/// Creates a database.
pub(crate) fn create_database(port: u16, name: &str) -> Result<()> {
    execute(port, &format!("CREATE DATABASE {name}"))
}

/// Runs a statement that changes something.
pub(crate) fn execute(port: u16, statement: &str) -> Result<()> {
    execute_as(port, "anonymous", statement)
}

/// Runs a statement of `tenant` that changes something.
pub(crate) fn execute_as(port: u16, tenant: &str, statement: &str) -> Result<()> {
    let path = format!("/query?q={}", utf8_percent_encode(statement, NON_ALPHANUMERIC));
    let headers = format!("X-Scope-OrgID: {tenant}\r\n");
    let mut connection = http::WriteConnection::open_with(port, &path, &headers)?;
    let (status, answer) = connection.send(b"")?;
    ensure!(status == 200 && !answer.contains("error"), "{statement}: HTTP {status}: {answer:.200}");
    Ok(())
}

/// Returns the last column of the first row that a statement yields, or `None` if it yields no row.
pub(crate) fn query_number(port: u16, database: &str, statement: &str) -> Result<Option<f64>> {
    let text = utf8_percent_encode(statement, NON_ALPHANUMERIC);
    let (status, body) = http::get(port, &format!("/query?db={database}&epoch=ns&q={text}"))?;
    let answer: Value = serde_json::from_str(&body).with_context(|| format!("HTTP {status}: {body:.200}"))?;
    let result = &answer["results"][0];
    if status != 200 || !result["error"].is_null() {
        bail!("{statement}: HTTP {status}: {body:.300}");
    }
    let row = result["series"][0]["values"][0].as_array();
    Ok(row.and_then(|row| row.last()).and_then(Value::as_f64))
}
