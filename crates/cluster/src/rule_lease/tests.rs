//! Terms and states of two processes over one bucket in memory.

use chronolith_base::ManualClock;
use chronolith_bucket::store::faults::{FaultPlan, FaultStore, MemoryBucket};
use chronolith_format::rules::{StoredGroup, StoredRounds};
use tokio::runtime::Runtime;

use super::*;

const DURATION: Duration = Duration::from_secs(60);

struct Cluster {
    runtime: Runtime,
    bucket: MemoryBucket,
    clock: Arc<ManualClock>,
}

impl Cluster {
    fn new() -> Cluster {
        Cluster {
            runtime: Runtime::new().expect("threads"),
            bucket: MemoryBucket::new(),
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
        }
    }

    fn start(&self, seed: u64) -> (RuleLease, Arc<FaultStore>) {
        let (env, _, _) = Env::fake(0, seed);
        let env = Env { clock: self.clock.clone(), ..env };
        let client = self.bucket.connect(seed);
        let store = Store::simulated(client.clone(), &env, self.runtime.handle().clone());
        (RuleLease::new(Arc::new(store), &env, self.runtime.handle().clone(), DURATION), client)
    }
}

fn state(group: &str) -> StateFile {
    let state = StoredGroup {
        file: "rules.yml".to_owned(),
        name: group.to_owned(),
        last_round_ns: Some(7),
        rules: Vec::new(),
        rounds: StoredRounds::default(),
        recordings: None,
    };
    StateFile { tenant: "anonymous".to_owned(), state }
}

fn begun(lease: &RuleLease) -> Term {
    let term = lease.refresh().expect("answers").expect("taken");
    lease.begin(term);
    assert_eq!(lease.term(), Some(term));
    term
}

#[test]
fn a_term_lasts_as_long_as_no_renewal_is_missing() {
    let cluster = Cluster::new();
    let ((a, _), (b, _)) = (cluster.start(1), cluster.start(2));
    let first = a.refresh().expect("answers").expect("taken");
    assert_eq!(a.term(), None, "states have not been read");
    a.begin(first);
    for _ in 0..60 {
        cluster.clock.advance(a.refresh_pause());
        assert_eq!(a.refresh().expect("answers"), Some(first));
        assert_eq!((a.term(), b.refresh().expect("answers")), (Some(first), None));
    }
    a.release().expect("answers");
    assert_eq!((a.term(), a.stats().term), (None, None));
    let second = begun(&b);
    assert!(second > first);
    // The process is asleep for longer than its lease: another term begins, though no other process has had
    // the lease.
    cluster.clock.advance(DURATION);
    assert_eq!(b.term(), None);
    let third = b.refresh().expect("answers").expect("renewed");
    assert!(third > second);
    b.begin(second);
    assert_eq!(b.term(), None, "the term before is over");
    b.begin(third);
    assert_eq!(
        b.stats(),
        RuleLeaseStats { term: Some(third.number()), terms: 2, ..RuleLeaseStats::default() }
    );
}

#[test]
fn a_lease_ends_by_the_clock_while_the_bucket_is_away() {
    let cluster = Cluster::new();
    let (a, client) = cluster.start(1);
    let term = begun(&a);
    client.set_plan(FaultPlan { unavailable: 1000, ..FaultPlan::default() });
    cluster.clock.advance(DURATION - Duration::from_secs(1));
    assert_eq!(a.term(), Some(term));
    cluster.clock.advance(Duration::from_secs(1));
    assert_eq!(a.term(), None);
}

#[test]
fn states_of_a_later_term_count_whenever_an_earlier_one_stores_its_own() {
    let cluster = Cluster::new();
    let ((a, _), (b, _)) = (cluster.start(1), cluster.start(2));
    let first = begun(&a);
    assert_eq!(a.read_states().expect("reads"), []);
    a.store_states(first, [state("a")].iter()).expect("stores");
    a.store_states(first, [state("a"), state("b")].iter()).expect("replaces");
    assert_eq!(b.refresh().expect("answers"), None);
    cluster.clock.advance(DURATION);
    let second = b.refresh().expect("answers").expect("taken over");
    assert_eq!(b.read_states().expect("reads"), [state("a"), state("b")]);
    b.store_states(second, [state("c")].iter()).expect("stores");
    // The process before wakes.
    a.store_states(first, [state("a")].iter()).expect("stores");
    assert_eq!(b.read_states().expect("reads"), [state("c")]);
}

#[test]
fn states_that_are_damaged_name_their_object() {
    let cluster = Cluster::new();
    let (a, _) = cluster.start(1);
    let term = begun(&a);
    a.store_states(term, [state("a")].iter()).expect("stores");
    let key = key_of(term.number());
    cluster.runtime.block_on(a.store.put(&a.request(), &key, vec![1, 2, 3].into())).expect("stores");
    let error = a.read_states().expect_err("damaged");
    let want = "cluster/rules/state/00000000000000000001: ";
    assert!(matches!(error, StatesError::Damaged { .. }) && error.to_string().starts_with(want), "{error}");
}
