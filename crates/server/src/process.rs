//! Metrics of the process as the operating system reports them in `/proc`: CPU time, memory, descriptors.
//! Invariants: absent files give absent metrics, never wrong ones.

use std::path::Path;

use chronolith_base::{Disk, Env};
use chronolith_service::metrics::definition::Metric;

/// Ticks of `/proc/self/stat`: the kernel shows them as hundredths of a second on every Linux platform.
const TICKS_PER_SECOND: f64 = 100.0;

/// Figures of this process.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct ProcessStats {
    pub(crate) resident_bytes: Option<f64>,
    /// Resident pages of no file: heap and stacks.
    pub(crate) anonymous_bytes: Option<f64>,
    /// Resident pages of files, which can be dropped and read again.
    pub(crate) file_bytes: Option<f64>,
    /// Most that was resident so far.
    pub(crate) peak_bytes: Option<f64>,
    pub(crate) virtual_bytes: Option<f64>,
    pub(crate) threads: Option<f64>,
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) open_fds: Option<f64>,
}

/// A figure that the operating system does not tell is left out.
pub(crate) static PROCESS: &[Metric<ProcessStats>] = &[
    Metric::optional_counter("process_cpu_seconds_total", "User and system CPU time.", |process| {
        process.cpu_seconds
    }),
    Metric::optional_gauge("process_resident_memory_bytes", "Resident memory.", |process| {
        process.resident_bytes
    }),
    Metric::optional_gauge("process_virtual_memory_bytes", "Virtual memory.", |process| {
        process.virtual_bytes
    }),
    Metric::optional_gauge("process_threads", "Threads of the operating system.", |process| process.threads),
    Metric::optional_gauge("process_open_fds", "Open file descriptors.", |process| process.open_fds),
];

/// Reads all figures; a few small file reads.
pub(crate) fn read(env: &Env) -> ProcessStats {
    let disk = &*env.disk;
    let status = text(disk, "/proc/self/status").unwrap_or_default();
    let stat = text(disk, "/proc/self/stat").unwrap_or_default();
    let kib = |name: &str| field(&status, name).map(|kib| kib * 1024.0);
    ProcessStats {
        resident_bytes: kib("VmRSS:"),
        anonymous_bytes: kib("RssAnon:"),
        file_bytes: kib("RssFile:"),
        peak_bytes: kib("VmHWM:"),
        virtual_bytes: kib("VmSize:"),
        threads: field(&status, "Threads:"),
        cpu_seconds: cpu_seconds(&stat),
        open_fds: disk.list(Path::new("/proc/self/fd")).ok().map(|entries| entries.len() as f64),
    }
}

/// The soft limit of open files, from `/proc/self/limits`.
pub(crate) fn open_files_max(disk: &dyn Disk) -> Option<usize> {
    let limits = text(disk, "/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn text(disk: &dyn Disk, path: &str) -> Option<String> {
    String::from_utf8(disk.read(Path::new(path)).ok()?).ok()
}

fn field(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// User and system time: fields 14 and 15; counted after the name, which may have spaces.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whatever_the_name_of_the_process() {
        let stat = "12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds(""), None);
        assert_eq!(field("Name:\tx\nVmRSS:\t  2048 kB\n", "VmRSS:"), Some(2048.0));
    }
}
