//! Sends a corpus by remote write, in order of time, and gives blocks to a server that takes no old samples.
//! Invariants: requests have about [`SAMPLES_PER_REQUEST`] samples; a series is never before another by more
//! than [`STEPS_PER_ROUND`].

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use chronolith_ingest::remote_write::encode::RequestEncoder;

use super::corpus::Corpus;
use crate::http::{self, WriteConnection};
use crate::server::Server;

const SAMPLES_PER_REQUEST: usize = 10_000;
const STEPS_PER_ROUND: usize = 20;
const FLUSH_WAIT: Duration = Duration::from_secs(600);
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(500);

/// Sends all samples; gives the seconds it took.
pub(super) fn send(corpus: &Corpus, server: &Server) -> Result<f64> {
    let started = Instant::now();
    let mut connection = WriteConnection::open(server.port)?;
    let per_request = SAMPLES_PER_REQUEST / STEPS_PER_ROUND;
    let series_count = corpus.series_count();
    let mut told = started;
    for first_step in (0..corpus.step_count).step_by(STEPS_PER_ROUND) {
        if told.elapsed() > PROGRESS_EVERY {
            let samples = (first_step * series_count) as f64 / 1e6;
            let percent = first_step * 100 / corpus.step_count;
            println!("  {percent} %: {samples:.0} M samples after {:.0} s", started.elapsed().as_secs_f64());
            told = Instant::now();
        }
        let end_step = corpus.step_count.min(first_step + STEPS_PER_ROUND);
        for first in (0..series_count).step_by(per_request) {
            let mut encoder = RequestEncoder::new();
            for series in first..series_count.min(first + per_request) {
                push(corpus, series, first_step..end_step, &mut encoder);
            }
            connection.post(&encoder.compressed()).with_context(|| format!("step {first_step}"))?;
        }
    }
    Ok(started.elapsed().as_secs_f64())
}

fn push(corpus: &Corpus, series: usize, steps: std::ops::Range<usize>, encoder: &mut RequestEncoder) {
    let mut step = steps.start;
    while step < steps.end {
        let until = steps.end.min(step + corpus.steady_steps(series, step));
        let labels = corpus.labels(series, step);
        let samples: Vec<(i64, f64)> =
            (step..until).map(|step| (corpus.time_ms(step), corpus.value(series, step))).collect();
        encoder.push_series(labels.iter().map(|(name, value)| (*name, value.as_str())), &samples);
        step = until;
    }
}

/// Sends further series with one sample each.
pub(super) fn send_idle(count: usize, time_ms: i64, server: &Server) -> Result<()> {
    let mut connection = WriteConnection::open(server.port)?;
    for first in (0..count).step_by(SAMPLES_PER_REQUEST) {
        let mut encoder = RequestEncoder::new();
        for idx in first..count.min(first + SAMPLES_PER_REQUEST) {
            let idx = idx.to_string();
            encoder.push_series([("__name__", "idle"), ("idx", &*idx)], &[(time_ms, 1.0)]);
        }
        connection.post(&encoder.compressed()).context("idle series")?;
    }
    Ok(())
}

/// Waits until a Chronolith server has all of its samples in blocks.
pub(super) fn wait_flushed(server: &mut Server) -> Result<()> {
    server.wait_for("the flush of all samples", POLL, FLUSH_WAIT, |server| {
        let status = http::ok(http::get(server.port, "/api/v1/status/storage")?)?;
        Ok((status["data"]["headSeries"] == 0).then_some(()))
    })
}

/// Copies the blocks of a stopped Chronolith server to the directory of another; gives how many.
pub(super) fn copy_blocks(from: &Path, to: &Path) -> Result<usize> {
    let blocks = from.join("tenants/anonymous");
    let mut count = 0;
    for entry in std::fs::read_dir(&blocks).with_context(|| blocks.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name();
        // Directories under construction have a suffix; whole ones are named by a ULID.
        if entry.path().join("meta.json").is_file() && !name.to_string_lossy().contains('.') {
            copy_dir(&entry.path(), &to.join(&name))?;
            count += 1;
        }
    }
    Ok(count)
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
