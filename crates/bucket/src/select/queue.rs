//! Queue of batches of series between the task that fetches them and the thread that evaluates the query.
//!
//! Invariants: batches that wait have at most `bytes_max` bytes together, or there is one of them. An error
//! is the last thing that is received. The receiver never waits beyond the time that its query has for
//! sources, and both ends notice when the other one is dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chronolith_model::{QueryError, ReadContext, SeriesRead};
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

/// Longest wait between two checks for cancellation.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// Series with the bytes that they keep in memory.
struct Batch {
    series: Vec<SeriesRead>,
    bytes: u64,
}

#[derive(Default)]
struct State {
    batches: VecDeque<Batch>,
    /// Bytes of `batches`.
    bytes: u64,
    /// Result of the sender, after its last batch.
    end: Option<Result<(), QueryError>>,
    is_receiver_gone: bool,
}

struct Shared {
    state: Mutex<State>,
    bytes_max: u64,
    /// Signals a batch or the end to the receiver.
    received: Condvar,
    /// Signals room or the loss of the receiver to the sender.
    room: Notify,
}

/// End of the queue that fetches.
pub(super) struct BatchSender(Arc<Shared>);

/// End of the queue that evaluates.
pub(super) struct BatchReceiver(Arc<Shared>);

/// Returns both ends of a queue of at most `bytes_max` bytes.
pub(super) fn batch_queue(bytes_max: u64) -> (BatchSender, BatchReceiver) {
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        bytes_max,
        received: Condvar::new(),
        room: Notify::new(),
    });
    (BatchSender(shared.clone()), BatchReceiver(shared))
}

impl BatchSender {
    /// Waits for room and appends a batch. Returns false if the receiver is gone: the rest is not needed.
    pub(super) async fn send(&self, series: Vec<SeriesRead>, bytes: u64) -> bool {
        let mut batch = Some(Batch { series, bytes });
        loop {
            let room = self.0.room.notified();
            {
                let mut state = self.0.state.lock();
                if state.is_receiver_gone {
                    return false;
                }
                if (state.batches.is_empty() || state.bytes.saturating_add(bytes) <= self.0.bytes_max)
                    && let Some(batch) = batch.take()
                {
                    state.bytes = state.bytes.saturating_add(bytes);
                    state.batches.push_back(batch);
                    self.0.received.notify_one();
                    return true;
                }
            }
            room.await;
        }
    }

    /// Ends the queue.
    pub(super) fn finish(self, result: Result<(), QueryError>) {
        self.0.state.lock().end = Some(result);
        self.0.received.notify_one();
    }
}

impl Drop for BatchSender {
    fn drop(&mut self) {
        // A task that was aborted or panicked must not look like the end of the series.
        self.0.state.lock().end.get_or_insert(Err(QueryError::Canceled));
        self.0.received.notify_one();
    }
}

impl BatchReceiver {
    /// Waits for the next batch and appends it to `out`; false after the last one.
    ///
    /// # Errors
    /// The error of the sender; as [`ReadContext::check_source`].
    pub(super) fn receive(&self, ctx: &ReadContext, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(batch) = state.batches.pop_front() {
                assert!(batch.bytes <= state.bytes, "the bytes of a batch were counted when it was sent");
                state.bytes -= batch.bytes;
                assert!(!state.batches.is_empty() || state.bytes == 0, "an empty queue has no bytes");
                let is_last = state.batches.is_empty() && matches!(state.end, Some(Ok(())));
                drop(state);
                self.0.room.notify_one();
                out.extend(batch.series);
                return Ok(!is_last);
            }
            match state.end.take() {
                Some(Ok(())) => {
                    state.end = Some(Ok(()));
                    return Ok(false);
                }
                Some(Err(error)) => {
                    state.end = Some(Ok(()));
                    return Err(error);
                }
                None => {}
            }
            ctx.check_source()?;
            let wait = WAIT_MAX.min(Duration::from_nanos(ctx.source_remaining_ns()));
            self.0.received.wait_for(&mut state, wait);
        }
    }
}

impl Drop for BatchReceiver {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_receiver_gone = true;
        let batches = std::mem::take(&mut state.batches);
        drop(state);
        self.0.room.notify_one();
        drop(batches);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chronolith_base::{Clock, ManualClock, MemoryBudget, SystemClock};
    use chronolith_model::{Columns, Labels, SampleSource, TimeRange};

    use super::*;

    struct Empty;

    impl SampleSource for Empty {
        fn read(&self, _range: TimeRange, _out: &mut Columns) -> Result<(), QueryError> {
            Ok(())
        }

        fn sample_count_hint(&self) -> usize {
            0
        }
    }

    fn series(count: usize) -> Vec<SeriesRead> {
        let one = |_| SeriesRead { labels: Labels::empty(), samples: Box::new(Empty) };
        (0..count).map(one).collect()
    }

    fn ctx(clock: Arc<dyn Clock>, deadline_ns: u64) -> ReadContext {
        ReadContext::new(clock, deadline_ns, MemoryBudget::new("query", u64::MAX))
    }

    fn unlimited() -> ReadContext {
        ReadContext::unlimited(Arc::new(SystemClock::new()))
    }

    #[tokio::test]
    async fn a_sender_waits_until_there_is_room() {
        let (sender, receiver) = batch_queue(10);
        let task = tokio::spawn(async move {
            let mut sent = Vec::new();
            for bytes in [25, 4, 4, 4] {
                sent.push(sender.send(series(1), bytes).await);
            }
            sender.finish(Ok(()));
            sent
        });
        let received = tokio::task::spawn_blocking(move || {
            let (mut out, mut sizes) = (Vec::new(), Vec::new());
            while receiver.receive(&unlimited(), &mut out).unwrap() {
                let state = receiver.0.state.lock();
                sizes.push((state.batches.len(), state.bytes));
            }
            assert!(sizes.iter().all(|(count, bytes)| *bytes <= 10 || *count == 1), "{sizes:?}");
            out.len()
        });
        assert_eq!(task.await.unwrap(), [true; 4]);
        assert_eq!(received.await.unwrap(), 4);
    }

    #[tokio::test]
    async fn an_error_comes_after_the_batches_before_it_and_once() {
        let (sender, receiver) = batch_queue(100);
        assert!(sender.send(series(2), 1).await);
        sender.finish(Err(QueryError::Timeout));
        let mut out = Vec::new();
        assert!(receiver.receive(&unlimited(), &mut out).unwrap());
        assert_eq!(out.len(), 2);
        assert!(matches!(receiver.receive(&unlimited(), &mut out), Err(QueryError::Timeout)));
        assert!(!receiver.receive(&unlimited(), &mut out).unwrap());
    }

    #[tokio::test]
    async fn each_end_notices_that_the_other_one_is_gone() {
        let (sender, receiver) = batch_queue(100);
        drop(sender);
        assert!(matches!(receiver.receive(&unlimited(), &mut Vec::new()), Err(QueryError::Canceled)));

        let (sender, receiver) = batch_queue(1);
        assert!(sender.send(series(1), 1).await);
        let waiting = tokio::spawn(async move { sender.send(series(1), 1).await });
        tokio::task::yield_now().await;
        drop(receiver);
        assert!(!waiting.await.unwrap());
    }

    #[test]
    fn a_receiver_waits_no_longer_than_the_deadline() {
        let (_sender, receiver) = batch_queue(100);
        let clock = Arc::new(SystemClock::new());
        let deadline_ns = clock.mono_ns() + 5_000_000;
        let found = receiver.receive(&ctx(clock, deadline_ns), &mut Vec::new());
        assert!(matches!(found, Err(QueryError::Timeout)));

        let canceled = ctx(Arc::new(ManualClock::new(0)), u64::MAX);
        canceled.cancel();
        assert!(matches!(receiver.receive(&canceled, &mut Vec::new()), Err(QueryError::Canceled)));
    }
}
