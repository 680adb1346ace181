//! Work that begins on the thread that read it, and what becomes of it when it is not small.

use std::sync::atomic::AtomicUsize;
use std::thread::ThreadId;

use parking_lot::Mutex;

use super::*;
use crate::http::tests::Fixture;

const TIMEOUT_MS: u64 = 10_000;

/// Runs work that is small, or is not: then it says at its first attempt that its time is over. Gives the
/// result and the threads of its attempts.
async fn run_one(app: &Arc<App>, text: &str, is_small: bool) -> (Result<u32, ErrorKind>, Vec<ThreadId>) {
    let threads = Arc::new(Mutex::new(Vec::new()));
    let seen = threads.clone();
    let work = move |app: &App, ctx: &ReadContext| {
        ctx.check().map_err(ApiError::from)?;
        seen.lock().push(std::thread::current().id());
        if is_small {
            return Ok(7);
        }
        if seen.lock().len() > 1 {
            app.env.clock.sleep(Duration::from_nanos(SMALL_QUERY_SLICE_NS));
            return Ok(7);
        }
        Err(ApiError::new(ErrorKind::Timeout, "query timed out"))
    };
    let candidate = Candidate::of(text);
    let result = run_small_first(app, &TenantId::anonymous(), TIMEOUT_MS, candidate, work).await;
    let threads = threads.lock().clone();
    (result.map_err(|error| error.kind), threads)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_small_is_begun_anew_elsewhere_and_starts_there_next_time() {
    let fixture = Fixture::ready();
    let app = fixture.app.clone();
    let task = async move {
        let here = || std::thread::current().id();
        let (result, threads) = run_one(&app, "small", true).await;
        assert_eq!((result, threads), (Ok(7), vec![here()]), "no other thread is asked");
        let begun = here();
        let (result, threads) = run_one(&app, "large", false).await;
        assert_eq!((result, threads[0], threads.len()), (Ok(7), begun, 2));
        assert_ne!(threads[1], begun);
        assert_eq!(app.metrics.query.timed_out.get(), 0, "it was not over");
        // The restart is remembered: the next query does not begin here, so that its time is over indeed.
        let begun = here();
        let (result, threads) = run_one(&app, "large", false).await;
        assert_eq!((result, threads.len()), (Err(ErrorKind::Timeout), 1));
        assert_ne!(threads[0], begun);
        assert_eq!(app.metrics.query.timed_out.get(), 1);
        // The query that timed out took no time, so the next one begins here.
        let begun = here();
        let (result, threads) = run_one(&app, "large", true).await;
        assert_eq!((result, threads), (Ok(7), vec![begun]));
    };
    tokio::spawn(task).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_an_answer_wherever_it_happens() {
    let fixture = Fixture::ready();
    let app = fixture.app.clone();
    let calls = Arc::new(AtomicUsize::new(0));
    for text in ["small", "with ~"] {
        let calls = calls.clone();
        let work = move |_: &App, _: &ReadContext| -> Result<(), ApiError> {
            calls.fetch_add(1, Ordering::Relaxed);
            panic!("a bug");
        };
        let candidate = Candidate::of(text);
        let result = run_small_first(&app, &TenantId::anonymous(), TIMEOUT_MS, candidate, work).await;
        assert_eq!(result.map_err(|error| error.kind), Err(ErrorKind::Internal));
    }
    assert_eq!((calls.load(Ordering::Relaxed), app.admission.query.queue.running()), (2, 0));
}
