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
    share: TenantShare,
}

impl Bench {
    fn new(permit_count: usize, tenant_permits: usize, waiting_max: usize) -> Bench {
        let options = QueueOptions {
            what: "queries",
            setting: "query.concurrency",
            permit_count,
            waiting_max,
            paused_max: 0,
            paused_bytes_max: 0,
        };
        let queue = FairQueue::new(options, Arc::new(ManualClock::new(0)));
        Bench { queue, share: share(tenant_permits, 10) }
    }

    fn ask(&self, tenant: &str) -> (Asking, Option<Result<Permit, AdmissionError>>) {
        self.ask_as(tenant, "", self.share)
    }

    /// A request of `tenant`, polled once, so that it has its permit or is queued.
    fn ask_as(
        &self,
        tenant: &str,
        principal: &str,
        share: TenantShare,
    ) -> (Asking, Option<Result<Permit, AdmissionError>>) {
        let queue = self.queue.clone();
        let tenant = TenantId::new(tenant).expect("valid");
        let principal = principal.to_owned();
        // Polled by hand, more often than a task of the runtime may be without giving way.
        let acquire = async move {
            queue.acquire(Caller { tenant: &tenant, principal: &principal }, share, LONG).await
        };
        let mut asking: Asking = Box::pin(tokio::task::unconstrained(acquire));
        let now = poll(&mut asking);
        (asking, now)
    }

    fn wait(&self, tenant: &str) -> Asking {
        self.wait_as(tenant, "", self.share)
    }

    fn wait_as(&self, tenant: &str, principal: &str, share: TenantShare) -> Asking {
        let (asking, now) = self.ask_as(tenant, principal, share);
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

fn share(permit_count: usize, weight: u32) -> TenantShare {
    TenantShare { permit_count, weight, uncommitted_bytes_max: u64::MAX }
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
    let tenant = TenantId::new("a").expect("valid");
    let caller = Caller { tenant: &tenant, principal: "" };
    let late = bench.queue.acquire(caller, bench.share, timeout).await.err();
    assert_eq!(
        late,
        Some(AdmissionError::Timeout { what: "queries", waited: timeout, setting: "query.concurrency" })
    );
    assert_eq!(bench.counts(), (1, 0, 1));
}

/// Covers a regression: a tenant queued bytes for the WAL without a limit, and the commits of others waited
/// for all of them.
#[tokio::test]
async fn a_tenant_with_too_many_bytes_in_the_wal_waits_and_others_run() {
    let bench = Bench::new(3, 3, 10);
    let limited = TenantShare { uncommitted_bytes_max: 10, ..bench.share };
    let run = |tenant: &str| bench.ask_as(tenant, "", limited).1.expect("at once").expect("a permit");
    let first = run("loud").into_uncommitted(9);
    let second = run("loud").into_uncommitted(30);
    let mut waiting = bench.wait_as("loud", "", limited);
    let id = TenantId::new("loud").expect("valid");
    assert_eq!((bench.counts(), bench.queue.uncommitted_bytes_of(&id)), ((0, 1, 0), 39));
    drop(run("quiet").into_uncommitted(5));
    assert!(granted(&mut waiting).is_none(), "three permits are free");
    drop(first);
    assert!(granted(&mut waiting).is_none(), "30 bytes are not durable");
    drop(second);
    assert!(granted(&mut waiting).is_some());
    drop(waiting);
    assert!(bench.queue.state.lock().tenants.is_empty(), "nothing is kept");
}

/// Checks that a refusal names what the request has waited for.
#[tokio::test]
async fn a_write_that_waited_for_the_disk_says_so() {
    let bench = Bench::new(1, 1, 10);
    let limited = TenantShare { uncommitted_bytes_max: 10, ..bench.share };
    let permit = bench.ask_as("a", "", limited).1.expect("at once").expect("a permit");
    let _committing = permit.into_uncommitted(10);
    let tenant = TenantId::new("a").expect("valid");
    let caller = Caller { tenant: &tenant, principal: "" };
    let refused = bench.queue.acquire(caller, limited, Duration::from_millis(1)).await.err();
    let text = refused.expect("refused").to_string();
    let want =
        "too many queries: no permit within 1 ms (limit: weight, the tenant's writes wait for the disk)";
    assert_eq!(text, want);
}

/// Checks the invariants over random arrivals, departures, ends and commits of requests.
#[tokio::test]
async fn whatever_comes_and_goes_counts_agree_and_nobody_is_forgotten() {
    let rng = chronolith_base::Rng::from_seed(7);
    let below = |limit: usize| (rng.next_u64() % limit as u64) as usize;
    let bench = Bench::new(3, 2, 12);
    let (mut running, mut waiting): (Vec<Permit>, Vec<Asking>) = (Vec::new(), Vec::new());
    let mut committing: Vec<UncommittedBytes> = Vec::new();
    for _ in 0..20_000 {
        match below(6) {
            0 | 1 => match bench.ask_as(
                ["a", "b", "c", "d"][below(4)],
                ["", "p", "q"][below(3)],
                TenantShare { uncommitted_bytes_max: 8, ..share(2, [1, 10, 100][below(3)]) },
            ) {
                (_, Some(Ok(permit))) => running.push(permit),
                (_, Some(Err(_))) => {}
                (asking, None) => waiting.push(asking),
            },
            2 if !running.is_empty() => drop(running.swap_remove(below(running.len()))),
            3 if !waiting.is_empty() => drop(waiting.swap_remove(below(waiting.len()))),
            4 if !running.is_empty() => {
                let permit = running.swap_remove(below(running.len()));
                committing.push(permit.into_uncommitted(below(6) as u64));
            }
            5 if !committing.is_empty() => drop(committing.swap_remove(below(committing.len()))),
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
        let bytes = state.tenants.values().map(|one| one.uncommitted_bytes).sum::<u64>();
        assert_eq!(bytes, committing.iter().map(|one| one.bytes).sum::<u64>());
        let may_run =
            |one: &TenantQueue| one.running_count < 2 && one.uncommitted_bytes < 8 && !one.waiters.is_empty();
        assert!(state.running_count == 3 || !state.tenants.values().any(may_run), "a permit is free");
    }
}

/// Requests that wait in a queue, by sender.
struct Backlog {
    bench: Bench,
    senders: Vec<(String, String, u32)>,
    waiting: Vec<Vec<Asking>>,
    running: Vec<Permit>,
    served: Vec<usize>,
}

impl Backlog {
    /// A queue for `permit_count` requests at once, all of which run, and `depth` waiting requests of each
    /// sender: tenant, principal and weight.
    fn new(permit_count: usize, depth: usize, senders: Vec<(String, String, u32)>) -> Backlog {
        let bench = Bench::new(permit_count, permit_count, senders.len() * depth);
        let running = (0..permit_count).map(|_| bench.run("first")).collect();
        let waiting = senders.iter().map(|_| Vec::new()).collect();
        let served = vec![0; senders.len()];
        let mut backlog = Backlog { bench, senders, waiting, running, served };
        for sender in 0..backlog.senders.len() {
            (0..depth).for_each(|_| backlog.push(sender));
        }
        backlog
    }

    fn push(&mut self, sender: usize) {
        let (tenant, principal, weight) = &self.senders[sender];
        let permits = self.bench.share.permit_count;
        let asking = self.bench.wait_as(tenant, principal, share(permits, *weight));
        self.waiting[sender].push(asking);
    }

    /// Ends the running request at `idx`; the next request runs, and another of its sender waits.
    fn step(&mut self, idx: usize) {
        drop(self.running.swap_remove(idx));
        let mut granted_to = None;
        for (sender, waiting) in self.waiting.iter_mut().enumerate() {
            // The oldest request of a sender is the first to run.
            if let Some(permit) = granted(&mut waiting[0]) {
                drop(waiting.remove(0));
                self.running.push(permit);
                assert!(granted_to.replace(sender).is_none(), "one permit was free");
            }
        }
        let sender = granted_to.expect("a request waits");
        self.served[sender] += 1;
        self.push(sender);
    }

    fn total(&self) -> usize {
        self.served.iter().sum()
    }
}

/// Checks over random weights, numbers of permits and orders of ends that tenants whose queues are never
/// empty are served in proportion to their weights, at every moment and not only in the end.
#[tokio::test]
async fn shares_of_full_queues_converge_to_the_weights() {
    for seed in 1..=20 {
        let rng = chronolith_base::Rng::from_seed(seed);
        let below = |limit: usize| (rng.next_u64() % limit as u64) as usize;
        let weights: Vec<u32> = (0..2 + below(5)).map(|_| 1 + below(100) as u32).collect();
        let senders =
            weights.iter().enumerate().map(|(idx, weight)| (format!("t{idx}"), String::new(), *weight));
        let mut backlog = Backlog::new(1 + below(4), 2, senders.collect());
        let sum = f64::from(weights.iter().sum::<u32>());
        for _ in 0..2000 {
            backlog.step(below(backlog.running.len()));
            let total = backlog.total() as f64;
            for (idx, weight) in weights.iter().enumerate() {
                let want = total * f64::from(*weight) / sum;
                let found = backlog.served[idx] as f64;
                // One request of each other tenant may come first.
                let slack = weights.len() as f64;
                assert!(
                    (found - want).abs() <= slack,
                    "seed {seed}, {weights:?}: t{idx} {found}, not {want}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_tenant_of_the_smallest_weight_is_served_next_to_the_largest() {
    let senders = [("light", 1), ("heavy", 100), ("heavy-2", 100)];
    let senders = senders.map(|(tenant, weight)| (tenant.to_owned(), String::new(), weight));
    let mut backlog = Backlog::new(1, 3, senders.to_vec());
    for turn in 1..=10 {
        (0..201).for_each(|_| backlog.step(0));
        assert!(backlog.served[0].abs_diff(turn) <= 1, "{:?} after {turn} rounds", backlog.served);
    }
}

/// Tenants that come and go may not overtake for ever one that waits: each has one client, which asks again
/// when it has been served, and nothing of it is kept meanwhile.
#[tokio::test]
async fn tenants_that_return_do_not_starve_one_that_waits() {
    let bench = Bench::new(1, 1, 10);
    let mut running = bench.run("first");
    let mut light = bench.wait_as("light", "", share(1, 1));
    let mut returning = ["b", "c"].map(|tenant| (tenant, bench.wait_as(tenant, "", share(1, 100))));
    for _ in 0..=202 {
        drop(running);
        if granted(&mut light).is_some() {
            return;
        }
        let mut next = returning.iter_mut().filter_map(|one| Some((granted(&mut one.1)?, one)));
        let (permit, one) = next.next().expect("a permit was free");
        drop(next);
        one.1 = bench.wait_as(one.0, "", share(1, 100));
        running = permit;
    }
    panic!("the light tenant was overtaken by {:?} more", bench.counts());
}

#[tokio::test]
async fn principals_of_one_tenant_share_its_part_equally() {
    let sender = |tenant: &str, principal: &str| (tenant.to_owned(), principal.to_owned(), 10);
    let senders = vec![sender("a", "p"), sender("a", "q"), sender("a", "r"), sender("b", "p")];
    let mut backlog = Backlog::new(2, 4, senders);
    for turn in 1..=60 {
        (0..6).for_each(|_| backlog.step(0));
        let [p, q, r, b] = backlog.served[..] else { panic!("four senders") };
        assert!(p.abs_diff(q) <= 1 && p.abs_diff(r) <= 1, "{:?}", backlog.served);
        assert!(b.abs_diff(3 * turn) <= 2, "{:?}: the other tenant has half", backlog.served);
    }
}

/// Covers a regression: a script filled the queue of its tenant, and requests of a user were refused.
#[tokio::test]
async fn a_full_queue_refuses_the_principal_with_the_longest_one() {
    let bench = Bench::new(1, 1, 3);
    let _running = bench.run("a");
    let mut script: Vec<Asking> = (0..3).map(|_| bench.wait_as("a", "script", bench.share)).collect();
    assert!(bench.ask_as("a", "script", bench.share).1.expect("at once").is_err());
    let _user = bench.wait_as("a", "user", bench.share);
    assert!(poll(&mut script[2]).expect("refused").is_err());
    assert!(bench.ask_as("a", "user", bench.share).1.expect("at once").is_err(), "two each is no gain");
    assert_eq!(bench.counts(), (1, 3, 3));
}

#[tokio::test]
async fn a_full_queue_is_divided_by_weight() {
    let bench = Bench::new(1, 1, 12);
    let _running = bench.run("other");
    let light: Vec<Asking> = (0..12).map(|_| bench.wait_as("light", "", share(1, 10))).collect();
    let mut heavy = Vec::new();
    for _ in 0..20 {
        if let (asking, None) = bench.ask_as("heavy", "", share(1, 50)) {
            heavy.push(asking);
        }
    }
    let waiting = |id: &str| bench.queue.waiting_of(&TenantId::new(id).expect("valid"));
    assert_eq!((waiting("light"), waiting("heavy")), (2, 10), "one to five");
    drop(light);
    drop(heavy);
    assert_eq!(bench.queue.waiting(), 0);
}
