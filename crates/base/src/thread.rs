//! Named threads, and lower priority for long work.
//! Invariants: every thread of the process has a name.

use std::cell::Cell;
use std::thread::JoinHandle;

/// Niceness added to a thread with long work: a ninth of the scheduler weight of one with short work.
const LONG_WORK_NICENESS: i32 = 10;

/// Starts a named thread.
///
/// # Errors
/// If the operating system refuses another thread.
pub fn spawn<T, F>(name: &str, run: F) -> std::io::Result<JoinHandle<T>>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// As [`spawn`], with a stack of this size.
///
/// # Errors
/// If the operating system refuses another thread.
pub fn spawn_with_stack<T, F>(name: &str, stack_bytes: usize, run: F) -> std::io::Result<JoinHandle<T>>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    std::thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(run)
}

/// Number of cores that this process may use, at least 1.
#[must_use]
pub fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

thread_local! {
    /// CPU time of this thread when its work began.
    static WORK_BEGAN_NS: Cell<u64> = const { Cell::new(0) };
    static IS_LOWERED: Cell<bool> = const { Cell::new(false) };
}

/// Begins to count the CPU time of work on this thread, see [`lower_priority_of_long_work`]. A thread that
/// never calls it counts from its start.
pub fn begin_work() {
    WORK_BEGAN_NS.set(cpu_time_ns());
}

/// Lowers the priority of this thread if its work has used `cpu_ns` of CPU time; otherwise returns the
/// CPU time that is left. The priority stays low until the thread ends: raising it again needs a privilege.
pub fn lower_priority_of_long_work(cpu_ns: u64) -> Option<u64> {
    if IS_LOWERED.get() {
        return None;
    }
    let used_ns = cpu_time_ns().saturating_sub(WORK_BEGAN_NS.get());
    if used_ns < cpu_ns {
        return Some(cpu_ns - used_ns);
    }
    IS_LOWERED.set(true);
    raise_niceness(LONG_WORK_NICENESS);
    None
}

/// Returns true if the priority of this thread has been lowered.
#[must_use]
pub fn is_priority_lowered() -> bool {
    IS_LOWERED.get()
}

/// Returns the processor time that this thread has used, in nanoseconds. 0 on systems other than Linux.
#[cfg(target_os = "linux")]
#[must_use]
pub fn cpu_time_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Raises the niceness of the calling thread: Linux has one per thread.
#[cfg(target_os = "linux")]
fn raise_niceness(by: i32) {
    // If this fails, the work is still correct. The system limits the sum to its highest niceness.
    let _ = rustix::process::getpriority_process(None)
        .and_then(|niceness| rustix::process::setpriority_process(None, niceness + by));
}

/// Other systems have one niceness per process, which is not changed.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn cpu_time_ns() -> u64 {
    0
}

#[cfg(not(target_os = "linux"))]
fn raise_niceness(_: i32) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn niceness() -> i32 {
        rustix::process::getpriority_process(None).expect("its own")
    }

    #[test]
    fn long_work_lowers_its_own_thread_only() {
        let before = niceness();
        let lowered = std::thread::scope(|scope| {
            let work = || {
                begin_work();
                assert!(lower_priority_of_long_work(u64::MAX).is_some() && !is_priority_lowered());
                assert_eq!(lower_priority_of_long_work(0), None);
                (is_priority_lowered(), niceness())
            };
            scope.spawn(work).join().expect("no panic")
        });
        assert_eq!(lowered, (true, (before + LONG_WORK_NICENESS).min(19)));
        assert_eq!((niceness(), is_priority_lowered()), (before, false));
    }
}
