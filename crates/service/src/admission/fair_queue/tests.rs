//! Order, limits and bounds of the queue.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use chronolith_base::ManualClock;

use super::*;

const LONG: Duration = Duration::from_secs(3600);

type Asking = Pin<Box<dyn Future<Output = Result<Permit, AdmissionError>>>>;

struct Bench {
    queue: Arc<FairQueue>,
    tenant_permits: usize,
}

impl Bench {
    fn new(permit_count: usize, tenant_permits: usize, waiting_max: usize) -> Bench {
        let queue = FairQueue::new(
            "queries",
            "query.concurrency",
            permit_count,
            waiting_max,
            Arc::new(ManualClock::new(0)),
        );
        Bench { queue, tenant_permits }
    }

    /// A request of `tenant`, polled once, so that it has its permit or is queued.
    fn ask(&self, tenant: &str) -> (Asking, Option<Result<Permit, AdmissionError>>) {
        let (queue, tenant) = (self.queue.clone(), TenantId::new(tenant).expect("valid"));
        let permits = self.tenant_permits;
        // Polled by hand, more often than a task of the runtime may be without giving way.
        let acquire = async move { queue.acquire(&tenant, permits, LONG).await };
        let mut asking: Asking = Box::pin(tokio::task::unconstrained(acquire));
        let now = poll(&mut asking);
        (asking, now)
    }

    fn wait(&self, tenant: &str) -> Asking {
        let (asking, now) = self.ask(tenant);
        assert!(now.is_none(), "{tenant} waits");
        asking
    }

    fn run(&self, tenant: &str) -> Permit {
        self.ask(tenant).1.expect("at once").expect("a permit")
    }

    fn counts(&self) -> (usize, usize, u64) {
        (self.queue.running(), self.queue.waiting(), self.queue.refused())
    }
}

fn poll(asking: &mut Asking) -> Option<Result<Permit, AdmissionError>> {
    match asking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

fn granted(asking: &mut Asking) -> Option<Permit> {
    poll(asking).map(|done| done.expect("a permit"))
}

/// Covers a regression: with one FIFO for all tenants, a query waited for 40 clients of another tenant.
#[tokio::test]
async fn forty_waiting_requests_of_one_tenant_delay_another_by_one() {
    let bench = Bench::new(1, 2, 100);
    let running = bench.run("hog");
    let mut hogs: Vec<Asking> = (0..40).map(|_| bench.wait("hog")).collect();
    let mut small = bench.wait("dashboard");
    drop(running);
    let first = granted(&mut hogs[0]).expect("its turn was first");
    assert!(granted(&mut small).is_none());
    drop(first);
    let second = granted(&mut small).expect("the next turn");
    assert!(granted(&mut hogs[1]).is_none());
    drop(second);
    assert!(granted(&mut hogs[1]).is_some());
}

#[tokio::test]
async fn a_tenant_at_its_limit_leaves_permits_to_others() {
    let bench = Bench::new(4, 1, 100);
    let hog = bench.run("hog");
    let mut waiting = bench.wait("hog");
    let others = [bench.run("a"), bench.run("b"), bench.run("c")];
    assert_eq!(bench.counts(), (4, 1, 0));
    drop(others);
    assert!(granted(&mut waiting).is_none(), "three permits are free, none of them for it");
    drop(hog);
    assert!(granted(&mut waiting).is_some());
    drop(waiting);
    assert_eq!(bench.counts(), (0, 0, 0));
    assert!(bench.queue.state.lock().tenants.is_empty(), "nothing is kept of tenants without requests");
}

/// Covers a regression: 260 clients of one tenant filled the queue, and queries of another were refused.
#[tokio::test]
async fn a_full_queue_refuses_the_tenant_with_the_longest_one() {
    let bench = Bench::new(1, 2, 3);
    let running = bench.run("hog");
    let mut hogs: Vec<Asking> = (0..3).map(|_| bench.wait("hog")).collect();
    let full = AdmissionError::QueueFull { what: "queries", waiting_max: 3, setting: "query.concurrency" };
    assert_eq!(bench.ask("hog").1.expect("at once").err(), Some(full));
    let mut small = bench.wait("dashboard");
    assert_eq!(poll(&mut hogs[2]).expect("refused").err(), Some(full));
    assert_eq!(bench.counts(), (1, 3, 2));
    drop(running);
    drop(granted(&mut hogs[0]).expect("a permit"));
    assert!(granted(&mut small).is_some());
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_slot_and_its_permit() {
    let bench = Bench::new(1, 1, 10);
    let running = bench.run("a");
    let (left_early, left_late, mut stays) = (bench.wait("a"), bench.wait("a"), bench.wait("a"));
    drop(left_early);
    assert_eq!(bench.counts(), (1, 2, 0));
    drop(running);
    // The request has its permit by now, and has not been polled since.
    drop(left_late);
    assert!(granted(&mut stays).is_some());
    drop(stays);
    assert_eq!(bench.counts(), (0, 0, 0));
}

#[tokio::test]
async fn the_wait_has_an_end() {
    let bench = Bench::new(1, 1, 10);
    let _running = bench.run("a");
    let timeout = Duration::from_millis(20);
    let late = bench.queue.acquire(&TenantId::new("a").expect("valid"), 1, timeout).await.err();
    assert_eq!(
        late,
        Some(AdmissionError::Timeout { what: "queries", waited: timeout, setting: "query.concurrency" })
    );
    assert_eq!(bench.counts(), (1, 0, 1));
}

/// Checks the invariants over random arrivals, departures and ends of requests.
#[tokio::test]
async fn whatever_comes_and_goes_counts_agree_and_nobody_is_forgotten() {
    let rng = chronolith_base::Rng::from_seed(7);
    let below = |limit: usize| (rng.next_u64() % limit as u64) as usize;
    let bench = Bench::new(3, 2, 12);
    let (mut running, mut waiting): (Vec<Permit>, Vec<Asking>) = (Vec::new(), Vec::new());
    for _ in 0..20_000 {
        match below(4) {
            0 | 1 => match bench.ask(["a", "b", "c", "d"][below(4)]) {
                (_, Some(Ok(permit))) => running.push(permit),
                (_, Some(Err(_))) => {}
                (asking, None) => waiting.push(asking),
            },
            2 if !running.is_empty() => drop(running.swap_remove(below(running.len()))),
            3 if !waiting.is_empty() => drop(waiting.swap_remove(below(waiting.len()))),
            _ => {}
        }
        waiting.retain_mut(|asking| match poll(asking) {
            None => true,
            Some(Ok(permit)) => {
                running.push(permit);
                false
            }
            Some(Err(_)) => false,
        });
        let state = bench.queue.state.lock();
        assert_eq!((state.running_count, state.waiting_count), (running.len(), waiting.len()));
        assert!(state.running_count <= 3 && state.waiting_count <= 12 && state.turns.len() <= 4);
        assert!(state.tenants.values().all(|one| one.running_count <= 2));
        let may_run = |one: &TenantQueue| one.running_count < 2 && !one.waiters.is_empty();
        assert!(state.running_count == 3 || !state.tenants.values().any(may_run), "a permit is free");
    }
}
