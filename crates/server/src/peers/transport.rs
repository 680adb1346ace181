//! Calls to the owners of a partition: the first of them that answers, another one when it fails or is slower
//! than usual.
//!
//! Invariants: one node's answer is read, from its first byte to its end; parts that wait have at most
//! [`STREAM_BYTES_MAX`] bytes, which the query has reserved. A call ends when its stream is dropped or when
//! the query has no time left, and with it the work of the other node. Errors name nodes.
//! Not here: owners of partitions (`cluster::peers`), connections (`client`), bytes of calls (`tsdb`).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::Method;
use chronolith_base::{Clock, Reservation};
use chronolith_cluster::peers::{NodeAddress, OwnersOfPartition};
use chronolith_model::{QueryError, ReadContext};
use chronolith_tsdb::{PeerStream, PeerTransport};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, channel as bounded_channel};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::client::{CallError, NodeClient, RECEIVE_BYTES_MAX, reason};
use super::counters::PeerCounters;
use crate::limits::SELECT_PATH;

/// Parts of an answer that wait for the query.
const PARTS_MAX: usize = 4;
/// Bytes of an answer that wait for the query: these parts, one at hand, and the buffer of the connection.
const STREAM_BYTES_MAX: usize = (PARTS_MAX + 2) * RECEIVE_BYTES_MAX;
/// Longest wait between two checks for cancellation.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// Parts that all calls share.
#[derive(Clone)]
pub(super) struct Calls {
    pub(super) client: Arc<NodeClient>,
    pub(super) counters: Arc<PeerCounters>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) runtime: Handle,
}

/// Transport to the owners of a partition.
pub(super) struct PartitionTransport {
    name: String,
    calls: Calls,
    owners: OwnersOfPartition,
}

impl PartitionTransport {
    /// Calls to `owners`, in their order.
    pub(super) fn new(calls: Calls, owners: OwnersOfPartition) -> PartitionTransport {
        PartitionTransport { name: owners.name(), calls, owners }
    }
}

impl PeerTransport for PartitionTransport {
    fn node(&self) -> &str {
        &self.name
    }

    fn send(&self, call: Vec<u8>, ctx: &ReadContext) -> Box<dyn PeerStream> {
        let reserved = match ctx.budget.reserve(STREAM_BYTES_MAX as u64) {
            Ok(reserved) => reserved,
            Err(full) => return Box::new(Refused(Some(full.into()))),
        };
        let (sender, parts) = bounded_channel(PARTS_MAX);
        let longest = Duration::from_nanos(ctx.source_remaining_ns());
        let call = PartitionCall { bytes: Bytes::from(call), waits_for_records: ctx.consistency().is_some() };
        let work = run(self.calls.clone(), self.owners.clone(), call, sender);
        // The stream notices the deadline by itself; here it ends the work of the other node.
        let task = self.calls.runtime.spawn(async move { drop(timeout(longest, work).await) });
        let runtime = self.calls.runtime.clone();
        Box::new(PartitionStream {
            parts,
            task: task.abort_handle(),
            runtime,
            is_stale: false,
            _reserved: reserved,
        })
    }
}

/// A call to the owners of a partition.
struct PartitionCall {
    bytes: Bytes,
    /// The owner waits for records of its partition first, so that the time says nothing about the owner.
    waits_for_records: bool,
}

/// Call that was not sent.
struct Refused(Option<QueryError>);

impl PeerStream for Refused {
    fn next_bytes(&mut self, _: &ReadContext) -> Result<Option<Vec<u8>>, QueryError> {
        Err(self.0.take().unwrap_or(QueryError::Canceled))
    }
}

/// Answer as it arrives.
struct PartitionStream {
    parts: mpsc::Receiver<Result<Bytes, CallError>>,
    task: AbortHandle,
    runtime: Handle,
    is_stale: bool,
    _reserved: Reservation,
}

impl Drop for PartitionStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PeerStream for PartitionStream {
    fn next_bytes(&mut self, ctx: &ReadContext) -> Result<Option<Vec<u8>>, QueryError> {
        loop {
            let received = match self.parts.try_recv() {
                Ok(part) => Some(part),
                Err(mpsc::error::TryRecvError::Disconnected) => None,
                Err(mpsc::error::TryRecvError::Empty) => {
                    ctx.check_source()?;
                    let wait = WAIT_MAX.min(Duration::from_nanos(ctx.source_remaining_ns()));
                    // Timers are the runtime's own business; nothing that is stored depends on them.
                    let parts = &mut self.parts;
                    match self.runtime.block_on(async { timeout(wait, parts.recv()).await }) {
                        Ok(received) => received,
                        Err(_) => continue,
                    }
                }
            };
            return match received {
                Some(Ok(bytes)) => Ok(Some(bytes.into())),
                Some(Err(CallError { why, is_stale })) => {
                    self.is_stale = is_stale;
                    Err(QueryError::Unavailable { what: why })
                }
                None => {
                    // The deadline ends the task and with it the parts.
                    ctx.check_source()?;
                    Ok(None)
                }
            };
        }
    }

    fn is_stale(&self) -> bool {
        self.is_stale
    }
}

/// Sends the call, and hands over the answer. The receiver is gone when the query has ended.
async fn run(
    calls: Calls,
    owners: OwnersOfPartition,
    call: PartitionCall,
    sender: mpsc::Sender<Result<Bytes, CallError>>,
) {
    let (node, mut body) = match first_answer(&calls, &owners, &call).await {
        Ok(answer) => answer,
        Err(why) => {
            calls.counters.failed.add(1);
            drop(sender.send(Err(why)).await);
            return;
        }
    };
    while let Some(frame) = body.frame().await {
        let part = match frame {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(error) => {
                calls.counters.failed.add(1);
                node.note_failure();
                drop(sender.send(Err(format!("{}: {}", node.address(), reason(&error)).into())).await);
                return;
            }
        };
        calls.counters.received_bytes.add(part.len() as u64);
        if !part.is_empty() && sender.send(Ok(part)).await.is_err() {
            return;
        }
    }
    calls.counters.complete.add(1);
}

/// Returns the first answer of an owner, and its node. The next owner is asked when one fails, or when the
/// answer is later than most of the last ones.
async fn first_answer(
    calls: &Calls,
    owners: &OwnersOfPartition,
    call: &PartitionCall,
) -> Result<(Arc<NodeAddress>, Incoming), CallError> {
    let started_ns = calls.clock.mono_ns();
    let mut waiting = owners.asked().iter();
    let mut asked = FuturesUnordered::new();
    let mut failures: Vec<String> = Vec::new();
    let mut is_stale = false;
    let ask = |node: &Arc<NodeAddress>, is_hedge: bool| {
        let node = node.clone();
        let call = call.bytes.clone();
        let client = calls.client.clone();
        async move {
            let sent = client.send(Method::POST, node.address(), SELECT_PATH, call).await;
            (node, is_hedge, sent)
        }
    };
    match waiting.next() {
        Some(node) => asked.push(ask(node, false)),
        None => return Err(owners.why_none().into()),
    }
    loop {
        let slow = async {
            match waiting.len() {
                0 => std::future::pending().await,
                _ => sleep(owners.hedge_after()).await,
            }
        };
        tokio::select! {
            answered = asked.next() => match answered {
                Some((node, is_hedge, Ok(body))) => {
                    if !call.waits_for_records {
                        owners.note_first_byte(calls.clock.mono_ns().saturating_sub(started_ns));
                    }
                    calls.counters.hedge_wins.add(u64::from(is_hedge));
                    return Ok((node, body));
                }
                Some((node, _, Err(error))) => {
                    // A node that refuses a catalogue is well.
                    if !error.is_stale {
                        node.note_failure();
                    }
                    is_stale |= error.is_stale;
                    failures.push(format!("{}: {}", node.address(), error.why));
                    if let Some(next) = waiting.next() {
                        asked.push(ask(next, false));
                    }
                }
                None => return Err(CallError { why: failures.join("; "), is_stale }),
            },
            () = slow => {
                if let Some(next) = waiting.next() {
                    calls.counters.hedges.add(1);
                    tracing::debug!(partition = %owners.partition(), "asking another owner");
                    asked.push(ask(next, true));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
