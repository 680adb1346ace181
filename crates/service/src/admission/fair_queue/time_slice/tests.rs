//! Time slices in a simulation without threads, and with them.

use std::future::Future;

use chronolith_base::{ManualClock, Rng};

use super::super::{AdmissionError, TenantShare};
use super::*;

const MORSEL: Duration = Duration::from_millis(1);
/// Morsels in a slice of a tenant of the default weight.
const SLICE_MORSELS: usize = 10;

struct Bench {
    queue: Arc<FairQueue>,
    clock: Arc<ManualClock>,
}

type Asking = Pin<Box<dyn Future<Output = Result<Permit, AdmissionError>>>>;

fn share(permit_count: usize) -> TenantShare {
    TenantShare { permit_count, weight: WEIGHT_DEFAULT, uncommitted_bytes_max: u64::MAX }
}

fn tenant(id: &str) -> TenantId {
    TenantId::new(id).expect("valid")
}

impl Bench {
    fn new(permit_count: usize, paused_max: usize, paused_bytes_max: u64) -> Bench {
        let clock = Arc::new(ManualClock::new(0));
        let options = QueueOptions {
            what: "queries",
            setting: "query.concurrency",
            permit_count,
            waiting_max: 1000,
            paused_max,
            paused_bytes_max,
        };
        Bench { queue: FairQueue::new(options, clock.clone()), clock }
    }

    fn ask(&self, id: &str, principal: &'static str, tenant_permits: usize) -> Asking {
        let queue = self.queue.clone();
        let id = tenant(id);
        let wait = async move {
            let caller = Caller { tenant: &id, principal };
            queue.acquire(caller, share(tenant_permits), Duration::from_secs(3600)).await
        };
        Box::pin(tokio::task::unconstrained(wait))
    }

    fn run(&self, id: &str, principal: &'static str) -> SlicedPermit {
        let permit = granted(&mut self.ask(id, principal, 100)).expect("a permit is free");
        SlicedPermit::new(permit, Caller { tenant: &tenant(id), principal }, WEIGHT_DEFAULT)
    }

    /// Lets all slices end.
    fn end_slices(&self) {
        self.clock.advance(MORSEL * SLICE_MORSELS as u32);
    }

    /// Requests that run, wait and are paused.
    fn counts(&self) -> (usize, usize, usize) {
        (self.queue.running(), self.queue.waiting(), self.queue.paused())
    }
}

fn granted(asking: &mut Asking) -> Option<Permit> {
    match asking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(permit) => Some(permit.expect("a permit")),
        Poll::Pending => None,
    }
}

fn resumed(paused: &mut Paused<'_>) -> bool {
    paused.granted.try_recv().map(|permit| paused.slice.resume(permit)).is_ok()
}

#[tokio::test]
async fn a_request_keeps_its_permit_for_a_slice_and_while_no_other_waits() {
    let bench = Bench::new(1, 1, 100);
    let long = bench.run("a", "");
    bench.end_slices();
    assert!(!long.is_over(), "no request waits");
    assert!(long.pause(1).is_none());
    drop(long);
    let long = bench.run("a", "");
    let mut short = bench.ask("b", "", 1);
    assert!(granted(&mut short).is_none());
    bench.clock.advance(MORSEL * (SLICE_MORSELS as u32 - 1));
    assert!(!long.is_over());
    bench.clock.advance(MORSEL);
    assert!(long.is_over());
    let mut paused = long.pause(7).expect("the other tenant goes first");
    let permit = granted(&mut short).expect("at once");
    assert_eq!((bench.counts(), bench.queue.yielded()), ((1, 0, 1), 1));
    assert!(!resumed(&mut paused));
    drop(permit);
    assert!(resumed(&mut paused));
    bench.clock.advance(MORSEL);
    assert!(!long.is_over(), "a new slice");
    drop(paused);
    drop(long);
    assert_eq!(bench.counts(), (0, 0, 0));
    assert!(bench.queue.state.lock().tenants.is_empty(), "nothing is kept");
}

#[tokio::test]
async fn slices_are_longer_for_a_larger_weight() {
    let bench = Bench::new(1, 1, 100);
    let id = tenant("a");
    let caller = Caller { tenant: &id, principal: "" };
    for (weight, want_ms) in [(1, 10), (10, 10), (35, 35), (100, 100)] {
        let permit = granted(&mut bench.ask("a", "", 1)).expect("free");
        let slice = SlicedPermit::new(permit, caller, weight);
        let mut other = bench.ask("b", "", 1);
        assert!(granted(&mut other).is_none());
        bench.clock.advance(MORSEL * (want_ms - 1));
        assert!(!slice.is_over(), "weight {weight}");
        bench.clock.advance(MORSEL);
        assert!(slice.is_over(), "weight {weight}");
    }
}

/// Covers a regression: a long query of a principal held the only permit of its tenant until its end.
#[tokio::test]
async fn principals_of_one_tenant_give_way_to_each_other_in_turn() {
    let bench = Bench::new(4, 4, 100);
    let permit = granted(&mut bench.ask("a", "script", 1)).expect("free");
    let long = SlicedPermit::new(permit, Caller { tenant: &tenant("a"), principal: "script" }, 10);
    let mut own = bench.ask("a", "script", 1);
    assert!(granted(&mut own).is_none());
    bench.end_slices();
    assert!(!long.is_over() && long.pause(1).is_none(), "a request of its own principal waits");
    let mut users = [bench.ask("a", "user", 1), bench.ask("a", "user-2", 1)];
    assert!(users.iter_mut().all(|user| granted(user).is_none()));
    bench.end_slices();
    assert!(long.is_over());
    let mut paused = long.pause(1).expect("a user goes first");
    let first = granted(&mut users[0]).expect("at once");
    drop(first);
    assert!(!resumed(&mut paused));
    drop(granted(&mut users[1]).expect("the next principal"));
    assert!(resumed(&mut paused), "before the request of its principal that has not run");
    assert!(granted(&mut own).is_none());
}

#[tokio::test]
async fn a_tenant_that_runs_as_much_is_no_reason_to_pause() {
    let bench = Bench::new(3, 3, 100);
    let a = [bench.run("a", ""), bench.run("a", "")];
    let b = bench.run("b", "");
    let mut more_of_b = bench.ask("b", "", 100);
    assert!(granted(&mut more_of_b).is_none());
    bench.end_slices();
    assert!(a[0].is_over() && !b.is_over());
    let _paused = a[0].pause(1).expect("b has one of three");
    let _more = granted(&mut more_of_b).expect("at once");
    bench.end_slices();
    assert!(!a[1].is_over(), "it is the last one of its tenant, and the other one has two");
    assert!(b.is_over(), "the paused request of the other tenant is to go on");
}

#[tokio::test]
async fn paused_requests_are_bounded_in_number_and_memory() {
    let bench = Bench::new(3, 2, 100);
    let long = [bench.run("a", ""), bench.run("a", ""), bench.run("a", "")];
    let mut short = ["b", "c", "d"].map(|id| bench.ask(id, "", 1));
    assert!(short.iter_mut().all(|one| granted(one).is_none()));
    bench.end_slices();
    assert!(long[0].pause(101).is_none(), "too much memory");
    let first = long[0].pause(60).expect("fits");
    assert!(long[1].pause(41).is_none(), "both together are too much");
    let second = long[1].pause(40).expect("fits");
    bench.end_slices();
    assert!(!long[2].is_over() && long[2].pause(0).is_none(), "two are paused");
    assert_eq!(bench.counts(), (3, 1, 2));
    drop(first);
    assert_eq!((bench.counts(), bench.queue.state.lock().paused_bytes), ((3, 1, 1), 40));
    drop(second);
    assert!(long[2].pause(100).is_some(), "they have left");
}

/// A long request of the simulation.
struct Long {
    principal: &'static str,
    morsels_left: usize,
    state: LongState,
}

enum LongState {
    Waits(Asking),
    Runs(&'static SlicedPermit),
    Paused(&'static SlicedPermit, Paused<'static>),
    Done,
}

impl Long {
    /// Takes a permit if it has got one; returns true if it runs.
    fn poll(&mut self) -> bool {
        let state = std::mem::replace(&mut self.state, LongState::Done);
        self.state = match state {
            LongState::Waits(mut asking) => match granted(&mut asking) {
                None => LongState::Waits(asking),
                Some(permit) => {
                    let caller = Caller { tenant: &tenant("long"), principal: self.principal };
                    LongState::Runs(Box::leak(Box::new(SlicedPermit::new(permit, caller, WEIGHT_DEFAULT))))
                }
            },
            LongState::Paused(slice, mut paused) => match resumed(&mut paused) {
                true => LongState::Runs(slice),
                false => LongState::Paused(slice, paused),
            },
            other => other,
        };
        matches!(self.state, LongState::Runs(_))
    }

    /// Ends a morsel, and pauses if another request is to go first.
    fn end_morsel(&mut self) {
        let LongState::Runs(slice) = self.state else { return };
        self.morsels_left -= 1;
        if self.morsels_left == 0 {
            slice.release();
            self.state = LongState::Done;
        } else if slice.is_over()
            && let Some(paused) = slice.pause(1)
        {
            self.state = LongState::Paused(slice, paused);
        }
    }
}

/// A short request of another tenant: it waits, runs for some morsels and ends.
struct Short {
    asking: Asking,
    waited_morsels: usize,
    permit: Option<Permit>,
    morsels_left: usize,
}

/// Checks over random numbers of permits and long requests that a short request of another tenant waits for a
/// slice and a morsel, however long the others run; all of them end, and none loses a morsel.
#[tokio::test]
async fn a_short_request_waits_for_morsels_and_not_for_the_end_of_long_ones() {
    for seed in 1..=40 {
        let rng = Rng::from_seed(seed);
        let below = |limit: usize| (rng.next_u64() % limit as u64) as usize;
        let permit_count = 1 + below(4);
        let bench = Bench::new(permit_count, 4 * permit_count, 1000);
        let mut longs: Vec<Long> = (0..permit_count + below(10))
            .map(|_| {
                let principal = ["p", "q", "r"][below(3)];
                let state = LongState::Waits(bench.ask("long", principal, permit_count));
                Long { principal, morsels_left: 200 + below(200), state }
            })
            .collect();
        let total: usize = longs.iter().map(|long| long.morsels_left).sum();
        let mut short: Option<Short> = None;
        let mut short_count = 0;
        let mut done = 0;
        for round in 0.. {
            assert!(round < 4 * (total + 100), "seed {seed}: a request is forgotten");
            let ran: Vec<bool> = longs.iter_mut().map(Long::poll).collect();
            if let Some(one) = &mut short {
                one.permit = one.permit.take().or_else(|| granted(&mut one.asking));
                match one.permit {
                    Some(_) => one.morsels_left -= 1,
                    None => one.waited_morsels += 1,
                }
                let waited = one.waited_morsels;
                assert!(waited <= SLICE_MORSELS + 1, "seed {seed}: {waited} morsels, {permit_count} permits");
            }
            assert!(bench.queue.running() <= permit_count && bench.queue.paused() <= 4 * permit_count);
            bench.clock.advance(MORSEL);
            for (long, ran) in longs.iter_mut().zip(ran) {
                if ran {
                    done += 1;
                    long.end_morsel();
                }
            }
            if short.as_ref().is_some_and(|one| one.morsels_left == 0) {
                short = None;
                short_count += 1;
            }
            if longs.iter().all(|long| matches!(long.state, LongState::Done)) {
                break;
            }
            // A pause of a slice: paused requests go on before the next short one comes.
            if short.is_none() && below(3 * SLICE_MORSELS) == 0 {
                let asking = bench.ask("short", "", permit_count);
                short = Some(Short { asking, waited_morsels: 0, permit: None, morsels_left: 1 + below(3) });
            }
        }
        drop((short, longs));
        assert_eq!(done, total, "seed {seed}: each morsel is computed once");
        assert!(short_count > 0 && bench.queue.yielded() > 0, "seed {seed}");
        assert_eq!(bench.counts(), (0, 0, 0), "seed {seed}");
        assert!(bench.queue.state.lock().tenants.is_empty(), "seed {seed}");
    }
}

fn context(bench: &Bench) -> ReadContext {
    ReadContext::unlimited(bench.clock.clone())
}

#[tokio::test]
async fn a_paused_request_can_be_cancelled() {
    let bench = Bench::new(1, 1, 100);
    let long = bench.run("a", "");
    let mut short = bench.ask("b", "", 1);
    assert!(granted(&mut short).is_none());
    bench.end_slices();
    let ctx = context(&bench);
    std::thread::scope(|scope| {
        let paused = scope.spawn(|| long.give_way(&ctx));
        while bench.queue.paused() == 0 {
            std::thread::yield_now();
        }
        ctx.cancel();
        assert!(matches!(paused.join().expect("no panic"), Err(QueryError::Canceled)));
    });
    assert_eq!(bench.counts(), (1, 0, 0), "only the other one runs");
    assert!(long.pause(1).is_none(), "it has no permit");
    drop(granted(&mut short));
    assert_eq!(bench.counts(), (0, 0, 0));
}

/// Runs long requests of several tenants on threads that pause for each other.
#[test]
fn threads_that_pause_for_each_other_all_end() {
    let bench = Bench::new(2, 2, 1000);
    std::thread::scope(|scope| {
        let bench = &bench;
        for (id, principal) in [("a", ""), ("a", "p"), ("b", ""), ("c", ""), ("c", ""), ("d", "")] {
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                let permit = runtime.expect("builds").block_on(bench.ask(id, principal, 2));
                let caller = Caller { tenant: &tenant(id), principal };
                let slice = Arc::new(SlicedPermit::new(permit.expect("a permit"), caller, WEIGHT_DEFAULT));
                let ctx = context(bench).with_time_slice(slice.clone());
                for _ in 0..500 {
                    bench.clock.advance(MORSEL);
                    ctx.yield_point().expect("not cancelled");
                }
                assert!(slice.permit.lock().is_some(), "it has a permit when it goes on");
            });
        }
    });
    assert_eq!(bench.counts(), (0, 0, 0));
}
