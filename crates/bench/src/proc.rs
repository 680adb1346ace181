//! Resource usage of a process, from /proc: CPU time of all its threads, current and peak memory; disk usage
//! of a folder.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

/// Ticks a second in /proc/PID/stat: Linux shows user space 100 whatever the kernel's own rate is.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time of a process, ended threads included.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuSeconds {
    /// In user mode.
    pub(super) user: f64,
    /// In the kernel.
    pub(super) system: f64,
}

impl CpuSeconds {
    /// User and system together.
    pub(crate) fn total(self) -> f64 {
        self.user + self.system
    }

    /// Sum of both, mode by mode.
    pub(crate) fn plus(self, other: CpuSeconds) -> CpuSeconds {
        CpuSeconds { user: self.user + other.user, system: self.system + other.system }
    }

    /// Returns the CPU time used since `earlier`.
    pub(crate) fn since(self, earlier: CpuSeconds) -> CpuSeconds {
        CpuSeconds { user: self.user - earlier.user, system: self.system - earlier.system }
    }
}

/// CPU time that the process has used so far.
pub(crate) fn cpu_seconds(pid: u32) -> Result<CpuSeconds> {
    let text = read(pid, "stat")?;
    // The name in parentheses may hold anything; numbers start after the last one. utime and stime are fields
    // 14, 15.
    let rest = text.rsplit_once(')').context("/proc/PID/stat has no name")?.1;
    let ticks = |idx: usize| -> Result<f64> {
        let field = rest.split_whitespace().nth(idx).context("/proc/PID/stat is short")?;
        Ok(field.parse::<f64>()? / TICKS_PER_SECOND)
    };
    Ok(CpuSeconds { user: ticks(11)?, system: ticks(12)? })
}

/// Measures wall time and the CPU time of a process from its start on.
pub(crate) struct Stopwatch {
    pid: u32,
    start: Instant,
    cpu: CpuSeconds,
}

/// Wall time, and CPU time of a process in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    pub(super) wall_seconds: f64,
    pub(super) cpu: CpuSeconds,
}

impl Stopwatch {
    /// Starts a stopwatch for the process `pid`.
    pub(crate) fn start(pid: u32) -> Result<Stopwatch> {
        let cpu = cpu_seconds(pid)?;
        Ok(Stopwatch { pid, start: Instant::now(), cpu })
    }

    /// Starts a stopwatch for this process.
    pub(crate) fn of_this_process() -> Result<Stopwatch> {
        Stopwatch::start(std::process::id())
    }

    /// Returns the time since the start; the stopwatch goes on.
    pub(crate) fn spent(&self) -> Result<Spent> {
        let wall_seconds = self.start.elapsed().as_secs_f64();
        Ok(Spent { wall_seconds, cpu: cpu_seconds(self.pid)?.since(self.cpu) })
    }
}

/// Run queue of the scheduler, as one thread has seen it.
pub(crate) struct RunQueue {
    file: File,
}

impl RunQueue {
    /// For the thread that calls it.
    pub(crate) fn of_this_thread() -> Result<RunQueue> {
        let path = "/proc/thread-self/schedstat";
        Ok(RunQueue { file: File::open(path).context(path)? })
    }

    /// Returns the time that the thread was ready to run and waited for a core, since its start.
    pub(crate) fn wait_ns(&self) -> Result<u64> {
        let mut text = [0; 64];
        let len = self.file.read_at(&mut text, 0)?;
        let text = std::str::from_utf8(&text[..len])?;
        run_queue_wait_ns(text).with_context(|| format!("/proc/thread-self/schedstat: {text:?}"))
    }
}

/// The second of the three numbers: time on a core, time of waiting for one, time slices.
fn run_queue_wait_ns(text: &str) -> Option<u64> {
    let mut fields = text.split_ascii_whitespace();
    let wait_ns = fields.nth(1)?.parse().ok()?;
    fields.next()?;
    Some(wait_ns)
}

/// Resident memory in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// At this moment.
    pub(super) now_bytes: u64,
    /// The most so far.
    pub(super) peak_bytes: u64,
    /// Resident pages that belong to no file (heap, stacks). Other pages can be dropped and read again.
    pub(super) anonymous_bytes: u64,
}

/// Memory of the process.
pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let text = read(pid, "status")?;
    let kib = |name: &str| -> Result<u64> {
        let line = text.lines().find(|line| line.starts_with(name)).with_context(|| format!("no {name}"))?;
        Ok(line.split_whitespace().nth(1).context("no number")?.parse()?)
    };
    Ok(Memory {
        now_bytes: kib("VmRSS:")? * 1024,
        peak_bytes: kib("VmHWM:")? * 1024,
        anonymous_bytes: kib("RssAnon:")? * 1024,
    })
}

/// Memory maps of the process.
pub(crate) fn map_count(pid: u32) -> Result<usize> {
    Ok(read(pid, "maps")?.lines().count())
}

/// Resets the peak of resident memory to the current resident memory.
pub(crate) fn reset_peak(pid: u32) -> Result<()> {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").with_context(|| format!("process {pid} is gone"))
}

/// Bytes that the files below `dir` occupy on disk, preallocated blocks included.
pub(crate) fn disk_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => disk_bytes(&entry.path()),
        Ok(meta) => meta.blocks() * 512,
        // The server removes files of its own while this looks.
        Err(_) => 0,
    });
    sizes.sum()
}

fn read(pid: u32, name: &str) -> Result<String> {
    std::fs::read_to_string(format!("/proc/{pid}/{name}")).with_context(|| format!("process {pid} is gone"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_a_core_is_the_second_of_three_numbers() {
        for (text, want) in [
            ("0 53880 1\n", Some(53_880)),
            ("1 2 3", Some(2)),
            ("  7\t0   9 \n", Some(0)),
            ("4147208910 2150043 61235\n", Some(2_150_043)),
            ("1 18446744073709551615 3\n", Some(u64::MAX)),
            ("1 18446744073709551616 3\n", None),
            ("1 -2 3\n", None),
            ("1 2.5 3\n", None),
            ("1 2\n", None),
            ("1\n", None),
            ("", None),
            ("a b c\n", None),
        ] {
            assert_eq!(run_queue_wait_ns(text), want, "{text:?}");
        }
    }

    #[test]
    fn the_wait_of_this_thread_never_shrinks() {
        let queue = RunQueue::of_this_thread().expect("Linux");
        let first = queue.wait_ns().expect("a number");
        std::thread::yield_now();
        assert!(queue.wait_ns().expect("a number") >= first);
    }
}
