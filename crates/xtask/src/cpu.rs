//! CPU time, user and system: of this thread with the processes that it has waited for, and of the machine.
//!
//! Invariants: a process counts once, at its end, with each descendant whose parent has waited for it.
//! Not here: processes that outlive their parent, and processes that [`std::process::Command`] waits for
//! itself (`output`, `status`). Without `/proc`, no process counts.

use std::cell::Cell;
use std::io;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use rustix::time::{ClockId, clock_gettime};

/// Linux shows 100 ticks per second to user space, whatever the kernel's own rate is.
const TICK: Duration = Duration::from_millis(10);
/// Numbers that a repetition sorts: 4 MiB, beyond the second level of most caches.
const CALIBRATION_COUNT: usize = 1 << 19;
/// Sorts of one unit, about a second without optimisation.
const UNIT_ROUNDS: u32 = 4;

thread_local! {
    static OF_PROCESSES: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Waits for a process and adds its CPU time to the time of this thread.
pub(crate) fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    let id = WaitId::Pid(Pid::from_child(child));
    // The kernel shows the times of an ended process until its parent waits for it.
    let ended =
        rustix::io::retry_on_intr(|| waitid(id.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
    if ended.is_ok() {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        let used = process_time(&stat).unwrap_or_default();
        OF_PROCESSES.with(|sum| sum.set(sum.get() + used));
    }
    child.wait()
}

/// Returns the CPU time of this thread and of the processes that it has waited for with [`wait`].
pub(crate) fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let own = Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0));
    own + OF_PROCESSES.with(Cell::get)
}

/// Returns the CPU time of all processes of the machine since its start; `None` without `/proc`.
pub(crate) fn used_by_machine() -> Option<Duration> {
    machine_time(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// Returns the name of the first CPU; `None` without `/proc` or a name in it.
pub(crate) fn model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns the CPU time of one unit, a fixed piece of work: one sort, times [`UNIT_ROUNDS`].
pub(crate) fn unit() -> Duration {
    let before = used();
    std::hint::black_box(sorted_numbers(1));
    used().saturating_sub(before) * UNIT_ROUNDS
}

/// Numbers of the generator xorshift, sorted.
fn sorted_numbers(seed: u64) -> Vec<u64> {
    let mut state = seed;
    let mut numbers = Vec::with_capacity(CALIBRATION_COUNT);
    for _ in 0..CALIBRATION_COUNT {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        numbers.push(state);
    }
    numbers.sort_unstable();
    numbers
}

/// Sum of `utime`, `stime`, `cutime` and `cstime` of `/proc/PID/stat`, fields 14 to 17.
fn process_time(stat: &str) -> Option<Duration> {
    // The name in parentheses may hold anything; fields after the last one are numbers.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    ticks(fields.get(11..15)?)
}

/// Sum of all modes but idle, waiting for disks and stolen time, of the first line of `/proc/stat`. Time of
/// guests is part of `user`.
fn machine_time(stat: &str) -> Option<Duration> {
    let fields: Vec<&str> = stat.lines().next()?.split_ascii_whitespace().collect();
    Some(ticks(fields.get(1..4)?)? + ticks(fields.get(6..8)?)?)
}

fn ticks(fields: &[&str]) -> Option<Duration> {
    let counts: Result<Vec<u32>, _> = fields.iter().map(|field| field.parse::<u32>()).collect();
    Some(counts.ok()?.into_iter().map(|count| TICK * count).sum())
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{machine_time, process_time, used, wait};

    #[test]
    fn times_of_a_process_include_those_of_its_children() {
        let stat = "7 (a) b) Z 1 7 7 0 -1 4 1 2 3 4 100 20 3000 400 20 0 1 0 5 0 0";
        assert_eq!(process_time(stat), Some(Duration::from_millis(35_200)));
        assert_eq!(process_time("7 (a) Z 1 7"), None);
        assert_eq!(process_time(""), None);
    }

    #[test]
    fn a_machine_that_is_idle_uses_no_time() {
        let stat = "cpu  100 20 3 99999 88888 4 5 77777 60 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(machine_time(stat), Some(Duration::from_millis(1320)));
        assert_eq!(machine_time("cpu 1 2"), None);
    }

    /// The shell waits for a shell of its own, which does all the work.
    #[test]
    fn time_of_a_grandchild_counts_for_the_thread_that_waits() {
        let before = used();
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut child =
            Command::new("sh").args(["-c", &format!("sh -c '{work}'; true")]).spawn().expect("sh");
        assert!(wait(&mut child).expect("ends").success());
        let elsewhere = std::thread::spawn(used).join().expect("a thread");
        assert!(used() - before >= Duration::from_millis(30), "{:?}", used() - before);
        assert!(elsewhere < Duration::from_millis(30), "{elsewhere:?}");
    }
}
