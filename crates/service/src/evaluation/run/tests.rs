//! Work that begins on the thread that read it, and what becomes of it when it is not small.

use std::sync::atomic::AtomicUsize;
use std::thread::ThreadId;

use chronolith_base::Env;
use chronolith_tsdb::{ReplayProgress, Tsdb};
use parking_lot::Mutex;

use super::*;
use crate::options::ServiceOptions;

const TIMEOUT_MS: u64 = 10_000;

/// Reason that a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Failure {
    Refused(Refusal),
    TimedOut,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Refused(refusal)
    }
}

impl CallError for Failure {
    fn end(&self) -> End {
        match self {
            Failure::Refused(_) => End::Failed,
            Failure::TimedOut => End::Timeout,
        }
    }

    fn text(&self) -> &str {
        "failed"
    }
}

fn ready() -> Arc<Service> {
    let (env, _, _) = Env::fake(1_700_000_000_000, 1);
    let options = ServiceOptions::new("/data".into());
    let store = Tsdb::open(env.clone(), options.tsdb_options(), Arc::new(ReplayProgress::default()));
    let service = Service::new(env, options);
    service.set_store(store.expect("opens"), Vec::new());
    Arc::new(service)
}

/// Runs work that is small, or is not: then it says at its first attempt that its time is over. Gives the
/// result and the threads of its attempts.
async fn run_one(
    service: &Arc<Service>,
    text: &str,
    is_small: bool,
) -> (Result<u32, Failure>, Vec<ThreadId>) {
    let threads = Arc::new(Mutex::new(Vec::new()));
    let seen = threads.clone();
    let shared = service.clone();
    let work = move |ctx: &CallContext| {
        ctx.check().map_err(|_| Failure::TimedOut)?;
        seen.lock().push(std::thread::current().id());
        if is_small {
            return Ok(7);
        }
        if seen.lock().len() > 1 {
            shared.env.clock.sleep(Duration::from_nanos(SMALL_QUERY_SLICE_NS));
            return Ok(7);
        }
        Err(Failure::TimedOut)
    };
    let candidate = Candidate::of(text);
    let result = service
        .run_small_first(&Identity::internal(&TenantId::anonymous()), TIMEOUT_MS, candidate, work)
        .await;
    let threads = threads.lock().clone();
    (result, threads)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_small_is_begun_anew_elsewhere_and_starts_there_next_time() {
    let service = ready();
    let task = async move {
        let here = || std::thread::current().id();
        let (result, threads) = run_one(&service, "small", true).await;
        assert_eq!((result, threads), (Ok(7), vec![here()]), "no other thread is asked");
        let begun = here();
        let (result, threads) = run_one(&service, "large", false).await;
        assert_eq!((result, threads[0], threads.len()), (Ok(7), begun, 2));
        assert_ne!(threads[1], begun);
        assert_eq!(service.queries.metrics.timed_out.get(), 0, "it was not over");
        // The restart is remembered: the next query does not begin here, so that its time is over indeed.
        let begun = here();
        let (result, threads) = run_one(&service, "large", false).await;
        assert_eq!((result, threads.len()), (Err(Failure::TimedOut), 1));
        assert_ne!(threads[0], begun);
        assert_eq!(service.queries.metrics.timed_out.get(), 1);
        // The query that timed out took no time, so the next one begins here.
        let begun = here();
        let (result, threads) = run_one(&service, "large", true).await;
        assert_eq!((result, threads), (Ok(7), vec![begun]));
    };
    tokio::spawn(task).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_an_answer_wherever_it_happens() {
    let service = ready();
    let calls = Arc::new(AtomicUsize::new(0));
    for text in ["small", "with ~"] {
        let calls = calls.clone();
        let work = move |_: &CallContext| -> Result<(), Failure> {
            calls.fetch_add(1, Ordering::Relaxed);
            panic!("a bug");
        };
        let candidate = Candidate::of(text);
        let result = service
            .run_small_first(&Identity::internal(&TenantId::anonymous()), TIMEOUT_MS, candidate, work)
            .await;
        assert_eq!(result, Err(Failure::Refused(Refusal::Panicked("query"))));
    }
    assert_eq!((calls.load(Ordering::Relaxed), service.admission.query.queue.running()), (2, 0));
}
