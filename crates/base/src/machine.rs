//! Memory limit of this process: the minimum of its cgroups (version 2 or 1) and the machine's memory.
//!
//! Invariants: a missing or unknown file is no limit, never a wrong one.
//! Not here: the use of the limit (`server`).

use std::path::{Path, PathBuf};

use crate::Disk;

/// A version 1 cgroup without a limit reports the largest multiple of the page size; larger values are no
/// limit.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// Returns the memory limit of this process in bytes; `None` if it is unknown.
#[must_use]
pub fn memory_bytes(disk: &dyn Disk) -> Option<u64> {
    let cgroups = text(disk, Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = cgroups.lines().filter_map(|line| cgroup_bytes(disk, line));
    limits.chain(machine_bytes(disk)).filter(|&bytes| bytes > 0 && bytes < NO_LIMIT_BYTES).min()
}

/// Returns the minimum limit of the cgroup in `line` of `/proc/self/cgroup` and its ancestors.
fn cgroup_bytes(disk: &dyn Disk, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (root, file) = if controllers.is_empty() {
        ("/sys/fs/cgroup", "memory.max")
    } else if controllers.split(',').any(|name| name == "memory") {
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
    } else {
        return None;
    };
    // Within a container the path is a path of the host, and the container's own cgroup is mounted at the
    // root.
    let below = PathBuf::from(root).join(path.trim_start_matches('/'));
    let dirs = below.ancestors().take_while(|dir| dir.starts_with(root));
    dirs.filter_map(|dir| text(disk, &dir.join(file))?.trim().parse().ok()).min()
}

fn machine_bytes(disk: &dyn Disk) -> Option<u64> {
    let info = text(disk, Path::new("/proc/meminfo"))?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn text(disk: &dyn Disk, path: &Path) -> Option<String> {
    String::from_utf8(disk.read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDisk;

    fn check(files: &[(&str, &str)], want: Option<u64>) {
        let disk = MemDisk::new();
        for (path, text) in files {
            disk.create_dir_all(Path::new(path).parent().unwrap()).unwrap();
            disk.create(Path::new(path)).unwrap().write_at(text.as_bytes(), 0).unwrap();
        }
        assert_eq!(memory_bytes(&disk), want, "{files:?}");
    }

    #[test]
    fn the_limit_is_the_minimum_of_cgroups_and_machine() {
        let machine = ("/proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");
        check(&[], None);
        check(&[machine], Some(16 << 20));
        let two = ("/proc/self/cgroup", "0::/system.slice/a.service\n");
        let of = |text| ("/sys/fs/cgroup/system.slice/a.service/memory.max", text);
        check(&[machine, two, of("1048576\n")], Some(1 << 20));
        check(&[machine, two, of("max\n")], Some(16 << 20));
        check(&[machine, two, of("99999999999\n")], Some(16 << 20));
        check(&[machine, two, of("max\n"), ("/sys/fs/cgroup/system.slice/memory.max", "4096\n")], Some(4096));
        check(&[machine, two, ("/sys/fs/cgroup/memory.max", "8192\n")], Some(8192));
        let one = ("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n");
        let of = |text| ("/sys/fs/cgroup/memory/memory.limit_in_bytes", text);
        check(&[machine, one, of("2097152\n")], Some(2 << 20));
        check(&[machine, one, of("9223372036854771712\n")], Some(16 << 20));
        check(
            &[machine, ("/proc/self/cgroup", "garbage\n"), ("/sys/fs/cgroup/memory.max", "5\n")],
            Some(16 << 20),
        );
    }
}
