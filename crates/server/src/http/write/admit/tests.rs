//! Large bodies wait with the client, slow ones hold up no other client.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use chronolith_model::TenantId;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::*;
use crate::http::tests::Fixture;

const PART_BYTES: usize = 50_000;
const PART_COUNT: usize = 4;
const SLOW: Duration = Duration::from_millis(200);

/// A body of announced length that arrives in parts.
struct Parts {
    sent: Arc<AtomicUsize>,
    pause: Duration,
    next: Pin<Box<Sleep>>,
}

impl Parts {
    fn body(pause: Duration) -> (Body, Arc<AtomicUsize>) {
        let sent = Arc::new(AtomicUsize::new(0));
        let parts = Parts { sent: sent.clone(), pause, next: Box::pin(sleep(pause)) };
        (Body::new(parts), sent)
    }
}

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        ready!(self.next.as_mut().poll(cx));
        if self.sent.load(Ordering::Relaxed) == PART_COUNT {
            return Poll::Ready(None);
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
        let pause = self.pause;
        self.next = Box::pin(sleep(pause));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'#'; PART_BYTES])))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(((PART_COUNT - self.sent.load(Ordering::Relaxed)) * PART_BYTES) as u64)
    }
}

async fn admit_one(
    server: &Fixture,
    tenant: &TenantId,
    body: Body,
) -> Result<(usize, WritePermits), NotAdmitted> {
    let memory = server.web.service.admission.write_memory.of(tenant, 0);
    let limits = BodyLimits { bytes_max: 1 << 20, budget: &memory.budget, memory_wait: Duration::ZERO };
    let identity = Identity::internal(tenant);
    let (body, permits) = admit(&server.web, &identity, body, limits).await?;
    Ok((body.bytes.len(), permits))
}

#[tokio::test]
async fn a_large_body_is_read_after_its_request_got_a_permit() {
    let server = Fixture::with(|options| options.service.write.concurrency = 1).open();
    let tenant = TenantId::anonymous();
    let (first, _) = Parts::body(Duration::ZERO);
    let (_, permits) = admit_one(&server, &tenant, first).await.expect("admitted");
    let (second, sent) = Parts::body(Duration::ZERO);
    let waiting = admit_one(&server, &tenant, second);
    tokio::pin!(waiting);
    assert!(timeout(Duration::from_millis(50), &mut waiting).await.is_err(), "no permit is free");
    assert_eq!(sent.load(Ordering::Relaxed), 0, "nothing is read");
    let memory = server.web.service.admission.write_memory.of(&tenant, 0);
    assert_eq!(memory.budget.used_bytes(), 0);
    drop(permits);
    assert_eq!(waiting.await.expect("admitted").0, PART_COUNT * PART_BYTES);
}

#[tokio::test]
async fn a_slow_body_holds_no_permit_for_long() {
    let server = Fixture::with(|options| options.service.write.concurrency = 1).open();
    let tenant = TenantId::anonymous();
    let (slow, slow_sent) = Parts::body(SLOW);
    let (fast, _) = Parts::body(Duration::ZERO);
    let fast = async {
        sleep(Duration::from_millis(1)).await;
        let (bytes, permits) = admit_one(&server, &tenant, fast).await.expect("admitted");
        assert!(slow_sent.load(Ordering::Relaxed) < PART_COUNT, "before the slow one is there");
        drop(permits);
        bytes
    };
    let (slow, fast) = tokio::join!(admit_one(&server, &tenant, slow), fast);
    assert_eq!((slow.expect("admitted").0, fast), (PART_COUNT * PART_BYTES, PART_COUNT * PART_BYTES));
}

#[tokio::test]
async fn a_small_body_is_there_when_it_gets_its_permit() {
    let server = Fixture::with(|options| options.service.write.concurrency = 1).open();
    let tenant = TenantId::anonymous();
    let held = server.web.service.admission.write.acquire(&tenant, 0, WRITE_QUEUE_WAIT).await.expect("free");
    let waiting = admit_one(&server, &tenant, Body::from("m v=1"));
    tokio::pin!(waiting);
    assert!(timeout(Duration::from_millis(50), &mut waiting).await.is_err());
    let memory = server.web.service.admission.write_memory.of(&tenant, 0);
    assert_eq!(memory.budget.used_bytes(), 5);
    drop(held);
    assert_eq!(waiting.await.expect("admitted").0, 5);
}

#[tokio::test]
async fn a_body_that_is_too_large_needs_no_permit_to_be_refused() {
    let server = Fixture::with(|options| options.service.write.concurrency = 1).open();
    let tenant = TenantId::anonymous();
    let _held = server.web.service.admission.write.acquire(&tenant, 0, WRITE_QUEUE_WAIT).await.expect("free");
    let refused = admit_one(&server, &tenant, Body::from(vec![0; 2 << 20])).await;
    let Err(NotAdmitted::Body(error)) = refused else { panic!("refused while it is read") };
    assert_eq!(error.message, "request body is larger than the limit of 1048576 bytes");
}
