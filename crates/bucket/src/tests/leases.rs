//! Leases: one holder, renewal, release, takeover of a dead one, and racing processes. Replacement of blocks
//! by a compaction: of two that race one is recorded.

use chronolith_base::{Clock as _, ManualClock};
use chronolith_format::bucket::catalogue::{Snapshot, TombstonesObject};

use super::block_uploads::{Bench, ulid};
use super::faults::Kill;
use super::*;
use crate::lease::Leases;
use crate::snapshots::{Change, Snapshots};
use crate::store::list::ListOptions;
use crate::upload::Published;

const DURATION: Duration = Duration::from_secs(600);

/// Processes over one bucket, with a clock that stands still.
struct Processes {
    rig: Rig,
    clock: Arc<ManualClock>,
}

#[tokio::test]
#[should_panic(expected = "a duration of zero stands for a released lease")]
async fn a_lease_has_a_duration() {
    let rig = Rig::memory(FaultPlan::default());
    let _ = Leases::new(rig.store.clone(), &rig.env, Duration::ZERO);
}

impl Processes {
    fn new(plan: FaultPlan) -> Processes {
        let rig = Rig::memory(plan);
        Processes { rig, clock: Arc::new(ManualClock::new(1_700_000_000_000)) }
    }

    fn start(&self, seed: u64) -> Leases {
        let rng = Arc::new(chronolith_base::Rng::from_seed(seed));
        let env = Env { clock: self.clock.clone(), rng, ..self.rig.env.clone() };
        Leases::new(self.rig.store.clone(), &env, DURATION)
    }

    async fn acquire(&self, leases: &Leases) -> bool {
        leases.acquire(&self.rig.query(60_000)).await.unwrap()
    }

    async fn epochs(&self) -> Vec<String> {
        let options = ListOptions { prefix: "anonymous/lease".to_owned(), ..ListOptions::default() };
        let page = self.rig.store.list(&self.rig.query(60_000), &options).await.unwrap();
        page.objects.into_iter().map(|object| object.key).collect()
    }
}

#[tokio::test]
async fn a_lease_has_one_holder_until_it_is_released_or_not_renewed() {
    let world = Processes::new(FaultPlan::default());
    let (a, b) = (world.start(1), world.start(2));
    assert!(world.acquire(&a).await && !world.acquire(&b).await);
    assert!(world.acquire(&a).await);
    assert_eq!(world.epochs().await.len(), 1, "not renewed before half of it is over");
    for _ in 0..10 {
        world.clock.advance(DURATION / 2);
        assert!(world.acquire(&a).await && !world.acquire(&b).await);
    }
    assert_eq!(world.epochs().await.len(), 4, "old epochs are removed");
    a.release(&world.rig.query(60_000)).await.unwrap();
    assert!(world.acquire(&b).await && !world.acquire(&a).await);
    // The holder dies. Another process waits for the whole duration, also one that has just started.
    world.clock.advance(DURATION - Duration::from_secs(1));
    let c = world.start(3);
    assert!(!world.acquire(&a).await && !world.acquire(&c).await);
    world.clock.advance(Duration::from_secs(1));
    assert!(!world.acquire(&c).await);
    assert!(world.acquire(&a).await && !world.acquire(&b).await);
}

#[tokio::test]
async fn a_holder_sees_the_end_before_any_other_process() {
    let world = Processes::new(FaultPlan::default());
    let (a, b) = (world.start(1), world.start(2));
    let request = world.rig.query(60_000);
    let held = a.hold(&request).await.unwrap().expect("taken");
    assert!(held.is_valid(&*world.clock) && !world.acquire(&b).await);
    world.clock.advance(DURATION / 2 - Duration::from_secs(1));
    assert_eq!(a.hold(&request).await.unwrap(), Some(held), "not renewed before half of it is over");
    world.clock.advance(Duration::from_secs(1));
    let renewed = a.hold(&request).await.unwrap().expect("renewed");
    assert_eq!(renewed.number, held.number + 1);
    world.clock.advance(DURATION - Duration::from_secs(1));
    assert!(!held.is_valid(&*world.clock) && renewed.is_valid(&*world.clock));
    assert!(!world.acquire(&b).await);
    world.clock.advance(Duration::from_secs(1));
    assert!(!renewed.is_valid(&*world.clock) && !world.acquire(&b).await, "seen since a second");
    // The monotonic clock of a machine that was suspended stands still.
    let last = a.hold(&request).await.unwrap().expect("taken again");
    world.clock.set_now_ms(world.clock.now_ms() + DURATION.as_millis() as i64);
    assert!(!last.is_valid(&*world.clock));
}

/// Covers a regression: a creation whose answer was lost counted from the time at which its epoch was read.
/// The holder then saw the end later than another process.
#[tokio::test]
async fn a_lease_whose_creation_has_lost_its_answer_counts_from_the_creation() {
    let world = Processes::new(FaultPlan::default());
    let (a, b) = (world.start(1), world.start(2));
    let request = world.rig.query(60_000);
    // The listing is the first request.
    world.rig.faults.kill_after(1, Kill::RefusedAfter);
    a.hold(&request).await.expect_err("the answer is lost");
    assert!(!world.acquire(&b).await, "the epoch is there");
    world.clock.advance(DURATION / 4);
    let held = a.hold(&world.rig.query(60_000)).await.unwrap().expect("taken before");
    world.clock.advance(DURATION / 4 * 3);
    assert!(!held.is_valid(&*world.clock) && world.acquire(&b).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_racing_processes_one_gets_the_lease() {
    for seed in 0..8 {
        let plan = FaultPlan { unavailable: 50, lost_answer: 100, conflict: 100, ..FaultPlan::default() };
        let world = Arc::new(Processes::new(plan));
        let mut racers = tokio::task::JoinSet::new();
        for racer in 0..16 {
            let (world, leases) = (world.clone(), world.start(seed * 100 + racer));
            racers.spawn(async move { leases.acquire(&world.rig.query(60_000)).await.unwrap_or(false) });
        }
        let held = racers.join_all().await.into_iter().filter(|is_held| *is_held).count();
        assert!(held <= 1, "seed {seed}: {held} holders");
    }
}

#[tokio::test]
async fn a_holder_that_is_killed_at_any_request_is_followed_by_another() {
    for kill in Kill::ALL {
        for kill_at in 0.. {
            let world = Processes::new(FaultPlan::default());
            let (a, b) = (world.start(1), world.start(2));
            world.rig.faults.kill_after(kill_at, kill);
            let request = world.rig.query(60_000);
            tokio::select! {
                _ = async { a.acquire(&request).await?; a.release(&request).await } => {}
                () = world.rig.faults.died.notified() => {}
            }
            let is_alive = world.rig.faults.is_alive();
            let is_first = world.acquire(&b).await;
            world.clock.advance(DURATION);
            assert!(is_first || world.acquire(&b).await, "{kill:?} at request {kill_at}");
            if is_alive {
                assert!(kill_at >= 4, "{kill_at} requests");
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_compactions_of_the_same_blocks_one_is_recorded() {
    let bench = Bench::new(FaultPlan::default());
    let uploader = bench.uploader();
    for n in [1, 2] {
        let dir = bench.block(n, &[], &[10]);
        bench.run(&uploader, &dir).await.unwrap();
    }
    let inputs = bench.latest().await.unwrap().blocks.clone();
    let mut outputs = Vec::new();
    for n in [3, 4] {
        let dir = bench.block(n, &[1, 2], &[20]);
        outputs.push(uploader.upload(&bench.request(), &dir, Bench::sidecar(&dir)).await.unwrap());
    }
    let replace = async |output: usize| {
        let publisher = uploader.publisher();
        publisher.replace(&bench.request(), &inputs, &outputs[output..=output]).await.unwrap()
    };
    assert!(matches!(replace(0).await, Published::Recorded(Some(_))));
    assert!(matches!(replace(0).await, Published::Recorded(Some(_))), "a lost answer");
    // Also after the marks of the inputs are gone.
    let drop_marks = |snapshot: &mut Snapshot| {
        snapshot.deletion_marks.clear();
        Change::Write
    };
    for _ in 0..2 {
        let gone = Published::InputsGone(vec![ulid(1), ulid(2)]);
        assert_eq!(replace(1).await, gone);
        let snapshots = Snapshots::new(bench.rig.store.clone(), &bench.env);
        snapshots.update(&bench.request(), drop_marks).await.unwrap();
    }
    let live = bench.latest().await.unwrap();
    assert_eq!(live.blocks.iter().map(|block| block.ulid).collect::<Vec<_>>(), [ulid(3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_does_not_bring_back_what_was_deleted_meanwhile() {
    let bench = Bench::new(FaultPlan::default());
    let uploader = bench.uploader();
    let dir = bench.block(1, &[], &[10]);
    bench.run(&uploader, &dir).await.unwrap();
    let before = bench.latest().await.unwrap().blocks.clone();
    let dir = bench.block(2, &[1], &[10]);
    let output = uploader.upload(&bench.request(), &dir, Bench::sidecar(&dir)).await.unwrap();
    let delete = |snapshot: &mut Snapshot| {
        let object = TombstonesObject { name: "tombstones-0000000000000001".to_owned(), len: 1, crc: 1 };
        snapshot.blocks[0].tombstones = Some(object);
        Change::Write
    };
    let snapshots = Snapshots::new(bench.rig.store.clone(), &bench.env);
    snapshots.update(&bench.request(), delete).await.unwrap();
    let dropped = uploader.publisher().replace(&bench.request(), &before, &[output]).await.unwrap();
    assert_eq!(dropped, Published::InputsGone(vec![ulid(1)]));
    // Nothing is left of the block: it leaves without an output.
    let deleted = bench.latest().await.unwrap().blocks.clone();
    for _ in 0..2 {
        let done = uploader.publisher().replace(&bench.request(), &deleted, &[]).await.unwrap();
        assert!(matches!(done, Published::Recorded(Some(_))), "{done:?}");
    }
    let latest = bench.latest().await.unwrap();
    assert!(latest.blocks.is_empty());
    assert_eq!(latest.deletion_marks[0].ulid, ulid(1));
}
