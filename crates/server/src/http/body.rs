//! Reads request bodies with a size limit, two deadlines and a memory budget; sends responses that hold
//! theirs.
//! Invariants: a client pays budget only for bytes that have arrived; nothing is held longer than
//! [`BODY_READ_TIMEOUT`].

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use chronolith_base::{BudgetExceeded, MemoryBudget, Reservation};
use chronolith_model::QueryError;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use super::error::{ApiError, ErrorKind};
use crate::limits::{
    ANSWER_TIMEOUT, BODY_GROWTH_BYTES, BODY_IDLE_TIMEOUT, BODY_READ_TIMEOUT, DISCARD_TIMEOUT,
    DISCARDED_BYTES_MAX, MEMORY_POLL_PAUSE,
};

/// A body and the memory it takes.
pub(crate) struct BodyBytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) held: Reservation,
}

/// Reads all of the body of a query, at most `bytes_max`. Without memory it fails at once, as the query would
/// later.
pub(crate) async fn read_query(
    body: Body,
    bytes_max: usize,
    budget: &MemoryBudget,
) -> Result<BodyBytes, ApiError> {
    read_within(body, bytes_max, budget, Duration::ZERO, |full| QueryError::from(full).into()).await
}

/// Reads all of `body`, at most `bytes_max`. It waits for memory: the client is not read from meanwhile.
pub(crate) async fn read_waiting(
    body: Body,
    bytes_max: usize,
    budget: &MemoryBudget,
    memory_wait: Duration,
) -> Result<BodyBytes, ApiError> {
    let no_memory = |full| ApiError::new(ErrorKind::Unavailable, full);
    read_within(body, bytes_max, budget, memory_wait, no_memory).await
}

async fn read_within(
    mut body: Body,
    bytes_max: usize,
    budget: &MemoryBudget,
    memory_wait: Duration,
    no_memory: fn(BudgetExceeded) -> ApiError,
) -> Result<BodyBytes, ApiError> {
    if HttpBody::size_hint(&body).lower() > bytes_max as u64 {
        discard(body).await;
        return Err(too_large(bytes_max));
    }
    // Timers are the runtime's own business; nothing that is stored depends on them.
    let memory_deadline = Instant::now() + memory_wait;
    let frames = read_frames(&mut body, bytes_max, budget, memory_deadline, no_memory);
    let read = tokio::time::timeout(BODY_READ_TIMEOUT, frames).await;
    let result = read.unwrap_or_else(|_| Err(too_slow(BODY_READ_TIMEOUT)));
    if result.as_ref().is_err_and(|error| error.kind != ErrorKind::TooSlow) {
        discard(body).await;
    }
    result
}

/// Reads the rest of a refused body, within bounds: a connection that is closed with unread bytes is reset,
/// and the client may never see why it was refused.
pub(crate) async fn discard(mut body: Body) {
    let rest = async {
        let mut left = DISCARDED_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    // Whoever sends slower than that has to live with the reset.
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, rest).await;
}

async fn read_frames(
    body: &mut Body,
    bytes_max: usize,
    budget: &MemoryBudget,
    memory_deadline: Instant,
    no_memory: fn(BudgetExceeded) -> ApiError,
) -> Result<BodyBytes, ApiError> {
    let mut bytes = Vec::new();
    let announced_bytes = usize::try_from(HttpBody::size_hint(body).lower()).unwrap_or(bytes_max);
    let mut held = budget.reserve(0).map_err(no_memory)?;
    loop {
        let frame = match tokio::time::timeout(BODY_IDLE_TIMEOUT, body.frame()).await {
            Err(_) => return Err(too_slow(BODY_IDLE_TIMEOUT)),
            Ok(None) => return Ok(BodyBytes { bytes, held }),
            Ok(Some(Err(error))) => {
                return Err(ApiError::bad_request(format!("reading the request body: {error}")));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(part) = frame.into_data() else { continue };
        if bytes.len() + part.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        grow_waiting(&mut held, part.len() as u64, memory_deadline).await.map_err(no_memory)?;
        make_room(&mut bytes, part.len(), announced_bytes);
        bytes.extend_from_slice(&part);
    }
}

/// Makes room for `more` bytes. A body of announced length gets room for all of it, or for
/// [`BODY_GROWTH_BYTES`] more: a vector that grows by itself would have up to twice the room it needs.
fn make_room(bytes: &mut Vec<u8>, more: usize, announced_bytes: usize) {
    if bytes.capacity() - bytes.len() >= more {
        return;
    }
    let step = bytes.len().max(BODY_GROWTH_BYTES);
    let announced = announced_bytes.saturating_sub(bytes.len());
    if announced >= more {
        bytes.reserve_exact(announced.min(step).max(more));
    }
}

/// Reserves `more` bytes, as soon as there is room for them until `deadline`.
pub(crate) async fn grow_waiting(
    held: &mut Reservation,
    more: u64,
    deadline: Instant,
) -> Result<(), BudgetExceeded> {
    loop {
        match held.grow(more) {
            Err(full) if more <= full.limit_bytes && Instant::now() < deadline => {
                tokio::time::sleep(MEMORY_POLL_PAUSE).await;
            }
            result => return result,
        }
    }
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::new(ErrorKind::TooLarge, format!("request body is larger than the limit of {bytes_max} bytes"))
}

fn too_slow(waited: Duration) -> ApiError {
    let message = format!("request body did not arrive within {} seconds", waited.as_secs());
    ApiError::new(ErrorKind::TooSlow, message)
}

/// Bytes of an answer, and the memory they take until the last is sent.
struct HeldBytes {
    bytes: Vec<u8>,
    _held: Reservation,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes that give their memory back when they are sent or dropped.
pub(crate) fn held(bytes: Vec<u8>, held: Reservation) -> Bytes {
    Bytes::from_owner(HeldBytes { bytes, _held: held })
}

/// A body of known length that is sent part by part, and given up after [`ANSWER_TIMEOUT`].
pub(crate) fn parts(parts: Vec<Bytes>) -> Body {
    // Timers are the runtime's own business; nothing that is stored depends on them.
    Body::new(Parts::new(parts, Instant::now() + ANSWER_TIMEOUT))
}

struct Parts {
    parts: VecDeque<Bytes>,
    left_bytes: u64,
    deadline: Instant,
}

impl Parts {
    fn new(parts: Vec<Bytes>, deadline: Instant) -> Parts {
        let left_bytes = parts.iter().map(|part| part.len() as u64).sum();
        Parts { parts: parts.into(), left_bytes, deadline }
    }
}

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if Instant::now() >= self.deadline {
            // An error ends the connection, and the parts that are not sent give their memory back.
            self.parts.clear();
            let late = io::Error::new(io::ErrorKind::TimedOut, "the client reads its response too slowly");
            return Poll::Ready(Some(Err(late)));
        }
        let part = self.parts.pop_front();
        self.left_bytes -= part.as_ref().map_or(0, |part| part.len() as u64);
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announced_body_gets_no_more_room_than_it_needs() {
        let grow = |announced_bytes: usize, sent_bytes: usize| {
            let mut bytes = Vec::new();
            for _ in 0..sent_bytes / 1000 {
                make_room(&mut bytes, 1000, announced_bytes);
                bytes.extend_from_slice(&[7; 1000]);
            }
            bytes.capacity()
        };
        assert_eq!(grow(690_000, 690_000), 690_000);
        assert_eq!(grow(1 << 30, 1000), BODY_GROWTH_BYTES, "what is announced need not come");
        assert_eq!(grow(3_700_000, 3_700_000), 3_700_000);
        assert!(grow(0, 690_000) >= 690_000, "chunked bodies announce nothing");
    }

    #[tokio::test]
    async fn memory_is_waited_for_until_the_deadline() {
        let budget = MemoryBudget::new("test", 100);
        let other = budget.reserve(80).expect("fits");
        let mut held = budget.reserve(0).expect("fits");
        assert!(grow_waiting(&mut held, 50, Instant::now()).await.is_err());
        let later = Instant::now() + BODY_READ_TIMEOUT;
        assert!(grow_waiting(&mut held, 101, later).await.is_err(), "it can never fit");
        let waiting = tokio::spawn(async move { grow_waiting(&mut held, 50, later).await.map(|()| held) });
        tokio::task::yield_now().await;
        drop(other);
        let held = waiting.await.expect("ends").expect("fits");
        assert_eq!((held.bytes(), budget.used_bytes()), (50, 50));
    }

    #[tokio::test]
    async fn an_answer_that_takes_too_long_gives_its_memory_back() {
        let budget = MemoryBudget::new("test", 1000);
        let part = || held(vec![1; 100], budget.reserve(100).expect("fits"));
        let mut on_time = Parts::new(vec![part(), part()], Instant::now() + ANSWER_TIMEOUT);
        assert_eq!(on_time.size_hint().exact(), Some(200));
        assert!(on_time.frame().await.is_some_and(|frame| frame.is_ok()));
        assert_eq!((on_time.size_hint().exact(), budget.used_bytes()), (Some(100), 100));
        drop(on_time);
        let mut late = Parts::new(vec![part(), part()], Instant::now());
        assert!(late.frame().await.is_some_and(|frame| frame.is_err()));
        assert_eq!(budget.used_bytes(), 0);
    }
}
