//! Runs jobs of `tools/graphite-oracle`.
//!
//! Invariant: one Python process per job.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::AnyError;
use crate::dataset::Entry;
use crate::generate::Request;

fn script() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tools/graphite-oracle/run.sh")
}

/// Returns true if the oracle reads whisper files.
pub(crate) fn is_whisper() -> bool {
    std::env::var("ORACLE_BACKEND").is_ok_and(|backend| backend == "whisper")
}

/// Answers of graphite-web, one per request.
pub(crate) fn answers(entries: &[Entry], requests: &[Request]) -> Result<Vec<Value>, AnyError> {
    let series: Vec<Value> = entries
        .iter()
        .map(|entry| json!({"name": entry.name, "start": entry.start, "step": entry.step, "values": entry.values}))
        .collect();
    let requests: Vec<Value> = requests.iter().map(Request::to_json).collect();
    let job = json!({"series": series, "requests": requests}).to_string();
    let mut child = Command::new(script())
        .arg("eval")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("no stdin")?;
    let writer = std::thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut stdin, job.as_bytes()));
        child.wait_with_output()
    })?;
    if !writer.status.success() {
        return Err(format!("the oracle ended with {}; `run.sh setup` says why", writer.status).into());
    }
    let answers: Value = serde_json::from_slice(&writer.stdout)?;
    Ok(answers.as_array().cloned().unwrap_or_default())
}
