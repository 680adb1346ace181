//! Responses over HTTP/2 whose client takes no more of them. The socket does not show it: the window of each
//! stream is the client's to open.
//!
//! Invariant: a response counts as stalled only while it waits for the client, never while it is being made.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use chronolith_base::hash::HashMap;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connections::InFlight;
use crate::limits::ANSWER_STALL_TIMEOUT;

/// Pause between two looks at the responses of a connection.
const CHECK_PAUSE: Duration = Duration::from_secs(5);

/// Responses of one connection that wait for its client, with the time since when.
#[derive(Default)]
pub(super) struct StallWatch {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next_id: u64,
    since: HashMap<u64, Instant>,
}

impl StallWatch {
    /// Watches `body`; the request counts as running until the body is done.
    pub(super) fn watch(self: &Arc<StallWatch>, body: Body, in_flight: InFlight) -> Body {
        let id = {
            let mut waiting = self.waiting.lock();
            waiting.next_id += 1;
            waiting.next_id
        };
        Body::new(WatchedBody { body, id, watch: self.clone(), _in_flight: in_flight })
    }

    /// Returns once a response has waited longer than its client may take.
    pub(super) async fn stalled(&self) {
        while !self.is_stalled(Instant::now()) {
            tokio::time::sleep(CHECK_PAUSE).await;
        }
    }

    fn is_stalled(&self, now: Instant) -> bool {
        self.waiting.lock().since.values().any(|since| now.duration_since(*since) > ANSWER_STALL_TIMEOUT)
    }
}

/// Body of a response, which notes when it waits for the client.
struct WatchedBody {
    body: Body,
    id: u64,
    watch: Arc<StallWatch>,
    _in_flight: InFlight,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.watch.waiting.lock().since.remove(&self.id);
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(polled, Poll::Ready(Some(Ok(_)))) {
            self.watch.waiting.lock().since.insert(self.id, Instant::now());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.watch.waiting.lock().since.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use chronolith_base::{ManualClock, MemDisk};
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::connections::Connections;

    #[tokio::test]
    async fn a_response_is_stalled_once_its_client_takes_no_more() {
        let watch = Arc::new(StallWatch::default());
        let connections = Connections::new(&MemDisk::new());
        let connection = connections.register(Arc::new(ManualClock::new(0)));
        let mut body = watch.watch(Body::from("part"), InFlight::new(connection.state()));
        let late = Instant::now() + 2 * ANSWER_STALL_TIMEOUT;
        assert!(!watch.is_stalled(late), "nothing waits for the client");
        body.frame().await.expect("a part").expect("no error");
        assert!(watch.is_stalled(late));
        assert!(!watch.is_stalled(Instant::now()));
        assert!(connection.state().is_busy(), "the request runs until its body is done");
        drop(body);
        assert!(!watch.is_stalled(late));
        assert!(!connection.state().is_busy());
    }
}
