//! Reads that name the offsets of a write, on another node.
//!
//! Invariant: a read counts as right only if it has the value that was written just before.
//! Not here: the load (`fleet`).

use std::time::Instant;

use anyhow::{Result, ensure};
use chronolith_base::{Clock, SystemClock};

use super::nodes::Nodes;
use crate::body::Body;
use crate::http::{self, QueryConnection, WriteConnection};

/// Reads of own writes.
pub(super) struct OwnWrites {
    /// Milliseconds of each read, the wait for the owner included.
    pub(super) read_ms: Vec<f64>,
    /// Reads without the value.
    pub(super) missing: usize,
}

/// Writes a value `count` times through a gateway, and reads it each time through a query node.
pub(super) fn measure(nodes: &Nodes, count: usize) -> Result<OwnWrites> {
    let mut writer = WriteConnection::open(nodes.gateway_ports[0])?;
    let mut reader = QueryConnection::open(nodes.query_ports[0])?;
    let mut body =
        Body::new(std::iter::once([("__name__", "own_write".to_owned()), ("job", "bench".to_owned())]));
    let start_ms = SystemClock::new().now_ms() - count as i64;
    let mut found = OwnWrites { read_ms: Vec::with_capacity(count), missing: 0 };
    for step in 0..count {
        let time_ms = start_ms + step as i64;
        body.set(time_ms, std::iter::once(step as f64));
        writer.post(body.bytes())?;
        ensure!(!writer.offsets().is_empty(), "the answer to a write names no offsets");
        reader.set_min_offsets(writer.offsets());
        let start = Instant::now();
        let (status, answer) = reader.get(&http::query_path("own_write", time_ms))?;
        found.read_ms.push(start.elapsed().as_secs_f64() * 1e3);
        let is_found = http::number_of(status, &answer).is_ok_and(|value| value == step as f64);
        found.missing += usize::from(!is_found);
    }
    Ok(found)
}
