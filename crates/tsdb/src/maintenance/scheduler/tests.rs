//! Order, budgets, retries and pauses of jobs, on queues without storage.

use chronolith_format::store_name;
use chronolith_model::{StoreId, TenantId, TimeRange};

use super::*;

const SECOND_MS: i64 = 1_000;
const HOUR_MS: i64 = 3_600_000;
const MIB: u64 = 1 << 20;

fn job(kind: JobKind, tenant: &str, due_ms: i64, cost_bytes: u64) -> Job {
    Job::of_tenant(kind, StoreId::from(TenantId::new(tenant).expect("legal")), due_ms, cost_bytes)
}

fn flush(tenant: &str, start: i64, due_ms: i64) -> Job {
    let range = TimeRange { start, end: start + 10 };
    let job = job(JobKind::Flush, tenant, due_ms, 1);
    Job { key: JobKey { range, ..job.key.clone() }, ..job }
}

/// A scheduler for which the tenant `many` owns all databases.
fn new_scheduler() -> Scheduler {
    let owner_of = |_: &StoreId| Some(TenantId::new("many").expect("legal"));
    Scheduler::new(|kind| KindRules::of(kind, Some(HOUR_MS)), Box::new(owner_of))
}

/// A scheduler in its first run, after the searches that a start makes.
fn scheduler(jobs: impl IntoIterator<Item = Job>) -> Scheduler {
    let mut scheduler = new_scheduler();
    scheduler.start_run(0);
    while let Some(Task::Search(_)) = scheduler.next(0, |_| false) {}
    jobs.into_iter().for_each(|job| scheduler.add(job));
    scheduler
}

fn names(batch: &[Job]) -> Vec<String> {
    let name =
        |job: &Job| job.key.tenant.as_ref().map_or_else(String::new, |store| store_name(store).into_owned());
    batch.iter().map(name).collect()
}

/// Takes all batches of a run that starts at `now_ms`, without their outcomes.
fn run(scheduler: &mut Scheduler, now_ms: i64, is_paused: impl Fn(JobKind) -> bool) -> Vec<Vec<Job>> {
    scheduler.start_run(now_ms);
    let mut batches = Vec::new();
    while let Some(task) = scheduler.next(now_ms, &is_paused) {
        if let Task::Run(_, batch) = task {
            batches.push(batch);
        }
    }
    batches
}

#[test]
fn jobs_run_by_kind_then_by_due_time_then_in_order_of_insertion() {
    let mut scheduler = scheduler([
        job(JobKind::Compaction, "c2", 5, 1),
        job(JobKind::Compaction, "c3", 5, 1),
        job(JobKind::Retention, "r", 9, 1),
        job(JobKind::Compaction, "c1", 4, 1),
        job(JobKind::Compaction, "not_due", 11, 1),
        flush("f", 0, 10),
    ]);
    let batches = run(&mut scheduler, 10, |_| false);
    let order: Vec<String> = batches.iter().flat_map(|batch| names(batch)).collect();
    assert_eq!(order, ["f", "r", "c1", "c2", "c3"]);
    assert_eq!(scheduler.stats(JobKind::Compaction).first_due_ms, Some(11));
}

#[test]
fn searches_run_once_per_interval_and_before_the_jobs_of_their_kind() {
    let mut scheduler = new_scheduler();
    scheduler.add(flush("f", 0, 0));
    let mut tasks = |now_ms| {
        scheduler.start_run(now_ms);
        let mut searched = Vec::new();
        while let Some(task) = scheduler.next(now_ms, |_| false) {
            searched.extend(match task {
                Task::Search(kind) => Some(kind),
                Task::Run(kind, _) => {
                    assert_eq!((kind, searched.as_slice()), (JobKind::Flush, &[JobKind::Flush][..]));
                    None
                }
            });
        }
        searched
    };
    let start = tasks(0);
    assert!(!start.contains(&JobKind::IdleFlush) && !start.contains(&JobKind::Deletion), "{start:?}");
    assert_eq!(start.len(), JobKind::COUNT - 2);
    assert_eq!(tasks(SECOND_MS), [JobKind::StoreRemoval, JobKind::Scrub]);
    assert!(tasks(10 * SECOND_MS).contains(&JobKind::Flush));
    assert!(tasks(HOUR_MS).contains(&JobKind::IdleFlush));
}

#[test]
fn a_batch_has_at_most_one_job_per_tenant_and_64_jobs() {
    let tenants = (0..100).map(|idx| format!("t{idx:02}")).collect::<Vec<_>>();
    let windows = |start| tenants.iter().map(move |tenant| flush(tenant, start, start));
    let mut scheduler = scheduler(windows(0).chain(windows(1)));
    let batches = run(&mut scheduler, 10, |_| false);
    assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 64, 8]);
    for batch in &batches {
        assert_eq!(names(batch).iter().collect::<BTreeSet<_>>().len(), batch.len());
    }
    let starts = batches
        .concat()
        .into_iter()
        .filter(|job| job.key.tenant.as_ref().is_some_and(|t| store_name(t) == "t07"));
    assert_eq!(
        starts.map(|job| job.key.range.start).collect::<Vec<_>>(),
        [0, 1],
        "windows of a tenant in order"
    );
}

#[test]
fn a_batch_ends_at_the_limit_of_its_estimated_cost() {
    let large = |tenant: &str| Job { cost_bytes: 10 * MIB, ..flush(tenant, 0, 0) };
    let huge = Job { cost_bytes: 100 * MIB, ..flush("d", 0, 0) };
    let mut scheduler = scheduler([large("a"), flush("b", 0, 0), large("c"), huge]);
    let batches = run(&mut scheduler, 0, |_| false);
    let want = [vec!["a", "b"], vec!["c"], vec!["d"]];
    assert_eq!(batches.iter().map(|batch| names(batch)).collect::<Vec<_>>(), want);
}

/// One run of maintenance started compactions until it had read a mebibyte, the last of any size.
#[test]
fn a_run_starts_no_job_beyond_the_budget_of_its_kind() {
    let costs = [MIB / 4, MIB / 4, MIB, 5 * MIB, MIB / 4];
    let jobs =
        costs.iter().enumerate().map(|(idx, &cost)| job(JobKind::Compaction, &format!("t{idx}"), 0, cost));
    let mut scheduler = scheduler(jobs);
    assert_eq!(scheduler.stats(JobKind::Compaction).cost_bytes, costs.iter().sum::<u64>());
    let mut runs = Vec::new();
    for now_ms in 0..4 {
        runs.push(run(&mut scheduler, now_ms, |_| false).len());
    }
    assert_eq!(runs, [2, 1, 1, 1], "a job larger than the budget runs alone");
    assert_eq!(scheduler.stats(JobKind::Compaction).cost_bytes, 0);
    (0..200).for_each(|idx| scheduler.add(job(JobKind::Compaction, &format!("t{idx}"), 0, 1)));
    assert_eq!(run(&mut scheduler, 5, |_| false).len(), 64);
    scheduler.start_run(6);
    scheduler.add_busy(JobKind::Compaction, 300_000_000);
    assert_eq!(scheduler.take_batch(JobKind::Compaction, 6), [], "the time of the run is over");
}

/// Covers a regression: compactions ran in order of the stores' names, so that a tenant waited for all
/// databases of another one: 1000 of them took 16 runs at least.
#[test]
fn a_tenant_with_a_thousand_databases_delays_another_by_one_job() {
    let database = |number| {
        let store = StoreId::Database { number };
        Job::of_tenant(JobKind::Compaction, store, 0, 1)
    };
    let mut scheduler = scheduler((0..1000).map(database));
    scheduler.start_run(1);
    assert_eq!(scheduler.take_batch(JobKind::Compaction, 1).len(), 1);
    for tenant in ["small", "other"] {
        scheduler.add(job(JobKind::Compaction, tenant, 1, 1));
    }
    let next = (0..4).flat_map(|_| scheduler.take_batch(JobKind::Compaction, 1)).collect::<Vec<Job>>();
    let of_many = |job: &Job| job.key.tenant.as_ref().is_some_and(|store| !store.is_default());
    let mut found: Vec<bool> = next.iter().map(of_many).collect();
    assert_eq!(found.iter().filter(|of_many| !**of_many).count(), 2, "both tenants in the next four jobs");
    found.sort_unstable();
    assert_eq!(found, [false, false, true, true]);
}

/// Covers a regression: a batch was chosen among the first 256 jobs by due time, all of one tenant that had
/// sent old samples, and had one job.
#[test]
fn hundreds_of_windows_of_one_tenant_do_not_delay_the_flush_of_another() {
    let mut scheduler = scheduler((0..600).map(|start| flush("backfill", start, start)));
    scheduler.add(flush("small", 0, 700));
    let batches = run(&mut scheduler, 1000, |_| false);
    assert_eq!(names(&batches[0]), ["backfill", "small"]);
    assert_eq!(batches.len(), 600);
    let starts = batches.concat().into_iter().filter(|job| names(std::slice::from_ref(job)) == ["backfill"]);
    assert!(starts.map(|job| job.key.range.start).is_sorted(), "windows of a tenant in order");
}

#[test]
fn a_tenant_whose_jobs_return_does_not_starve_the_databases_of_another() {
    let store = |number| StoreId::Database { number };
    let mut scheduler = scheduler((0..20).map(|number| Job::of_tenant(JobKind::Rollup, store(number), 0, 1)));
    scheduler.add(job(JobKind::Rollup, "busy", 0, 1));
    let mut of_many = 0;
    for turn in 1..=40 {
        scheduler.start_run(turn);
        for done in scheduler.take_batch(JobKind::Rollup, turn) {
            let is_busy = names(std::slice::from_ref(&done)) == ["busy"];
            scheduler.finish(done, &Outcome::Done, turn);
            of_many += i64::from(!is_busy);
            if is_busy {
                scheduler.add(job(JobKind::Rollup, "busy", turn, 1));
            }
        }
        assert!((turn - 2 * of_many).abs() <= 2, "{of_many} of {turn}");
    }
}

#[test]
fn a_paused_kind_keeps_its_jobs_and_holds_up_no_other() {
    let mut scheduler = scheduler([flush("f", 0, 0), job(JobKind::Compaction, "c", 0, 1)]);
    let batches = run(&mut scheduler, 100 * SECOND_MS, |kind| kind == JobKind::Flush);
    assert_eq!(batches.concat().len(), 1);
    assert_eq!(scheduler.stats(JobKind::Flush).job_count, 1);
    assert_eq!(names(&run(&mut scheduler, 100 * SECOND_MS, |_| false).concat()), ["f"]);
}

#[test]
fn a_failed_job_is_retried_after_doubling_pauses_up_to_an_hour() {
    let mut scheduler = scheduler([flush("bad", 0, 0)]);
    let mut attempts = Vec::new();
    for now_ms in (0..10_800_000).step_by(10_000) {
        scheduler.add(flush("good", now_ms, now_ms));
        for job in run(&mut scheduler, now_ms, |_| false).concat() {
            let is_bad = names(std::slice::from_ref(&job)) == ["bad"];
            let outcome = if is_bad { Outcome::Failed("disk".to_owned()) } else { Outcome::Done };
            if is_bad {
                attempts.push(now_ms / 1000);
            }
            scheduler.finish(job, &outcome, now_ms);
        }
        assert_eq!(scheduler.stats(JobKind::Flush).job_count, 1, "the other tenant never waits");
    }
    assert_eq!(attempts, [0, 10, 30, 70, 150, 310, 630, 1270, 2550, 5110, 8710]);
}

#[test]
fn compactions_back_off_together_until_one_succeeds() {
    let jobs = |scheduler: &mut Scheduler| {
        for tenant in ["a", "b"] {
            scheduler.add(job(JobKind::Compaction, tenant, 0, 1));
        }
    };
    let mut scheduler = scheduler([]);
    jobs(&mut scheduler);
    let mut fail = |now_ms, outcome: &Outcome| {
        scheduler.start_run(now_ms);
        let job = scheduler.take_batch(JobKind::Compaction, now_ms).pop()?;
        let tenant = names(std::slice::from_ref(&job)).concat();
        let pause_ms = scheduler.finish(job, outcome, now_ms);
        Some((tenant, pause_ms))
    };
    let failed = Outcome::Failed("disk".to_owned());
    assert_eq!(fail(0, &failed), Some(("a".to_owned(), Some(10 * SECOND_MS))));
    assert_eq!(fail(10 * SECOND_MS - 1, &failed), None);
    assert_eq!(fail(10 * SECOND_MS, &Outcome::Postponed), Some(("b".to_owned(), Some(20 * SECOND_MS))));
    assert_eq!(fail(30 * SECOND_MS, &Outcome::Done), Some(("a".to_owned(), None)));
    assert_eq!(fail(30 * SECOND_MS, &failed), Some(("b".to_owned(), Some(10 * SECOND_MS))));
}

#[test]
fn interrupted_jobs_stay_first_and_end_the_run_of_their_kind() {
    let mut scheduler = scheduler((0..5).map(|idx| flush(&format!("t{idx}"), 0, 0)));
    let mut batch = scheduler.take_batch(JobKind::Flush, 0);
    let first = batch.remove(0);
    scheduler.finish(first, &Outcome::Done, 0);
    for job in batch {
        scheduler.finish(job, &Outcome::Interrupted, 0);
    }
    scheduler.add(flush("late", 0, 0));
    assert_eq!(scheduler.take_batch(JobKind::Flush, 0), [], "the operator goes first");
    let batches = run(&mut scheduler, SECOND_MS, |_| false);
    assert_eq!(names(&batches.concat()), ["t1", "t2", "t3", "t4", "late"]);
}

#[test]
fn a_search_for_all_jobs_drops_others_and_keeps_pauses() {
    let mut scheduler = scheduler([flush("gone", 0, 0), flush("bad", 0, 0)]);
    for job in run(&mut scheduler, 0, |_| false).concat() {
        scheduler.finish(job, &Outcome::Failed("disk".to_owned()), 0);
    }
    scheduler.add_found(JobKind::Flush, Found::All(vec![flush("bad", 0, 0), flush("new", 0, 0)]));
    assert_eq!(scheduler.stats(JobKind::Flush).job_count, 2);
    assert_eq!(names(&run(&mut scheduler, SECOND_MS, |_| false).concat()), ["new"]);
    assert_eq!(names(&run(&mut scheduler, 10 * SECOND_MS, |_| false).concat()), ["bad"]);
}

#[test]
fn a_clock_that_is_set_back_moves_due_times_with_it() {
    let mut scheduler = scheduler([]);
    assert_eq!(run(&mut scheduler, 1000 * HOUR_MS, |_| false).len(), 0);
    scheduler.add(flush("f", 0, 1000 * HOUR_MS + SECOND_MS));
    assert_eq!(run(&mut scheduler, HOUR_MS, |_| false).len(), 0, "the pause goes on");
    assert_eq!(names(&run(&mut scheduler, HOUR_MS + SECOND_MS, |_| false).concat()), ["f"]);
}

/// A flush of all windows takes jobs as of the end of time; jobs that come after it are due later.
#[test]
fn a_flush_of_all_windows_leaves_due_times_of_later_jobs() {
    let mut scheduler = scheduler([flush("closed", 0, HOUR_MS)]);
    assert_eq!(names(&scheduler.take_batch(JobKind::Flush, i64::MAX)), ["closed"]);
    for (tenant, due_ms) in [("later", 100 * SECOND_MS), ("due", SECOND_MS)] {
        scheduler.add(flush(tenant, 0, due_ms));
    }
    assert_eq!(names(&run(&mut scheduler, 10 * SECOND_MS, |_| false).concat()), ["due"]);
    assert_eq!(names(&run(&mut scheduler, 100 * SECOND_MS, |_| false).concat()), ["later"]);
}

/// Choosing the next compaction copied the list of tenants: 10,000 tenants with one step each cost 10^8
/// visits. With a pass over all jobs per choice this test takes minutes.
#[test]
fn the_next_of_many_jobs_is_chosen_without_a_pass_over_all() {
    const JOB_COUNT: usize = 200_000;
    let jobs = (0..JOB_COUNT).map(|idx| job(JobKind::Retention, &format!("t{idx}"), 0, 1));
    let mut scheduler = scheduler(jobs);
    let batches = run(&mut scheduler, 1, |_| false);
    assert_eq!((batches.len(), scheduler.stats(JobKind::Retention).job_count), (JOB_COUNT, 0));
}
