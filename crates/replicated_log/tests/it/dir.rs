//! The log in a directory: on a real disk and on one in memory.

use chronolith_base::Env;
use chronolith_replicated_log::dir::{DirLog, DirOptions};

use crate::conformance::{PARTITION_COUNT, RECORD_BYTES_MAX, Suite};

fn check(env: &Env, dir: &std::path::Path, segment_bytes: u64) {
    let mut options = DirOptions::new(dir, PARTITION_COUNT);
    options.segment_bytes = segment_bytes;
    options.record_bytes_max = RECORD_BYTES_MAX;
    Suite { open: &|| Box::new(DirLog::open(env, options.clone()).expect("opens")) }.run();
}

#[test]
fn conformance_on_a_real_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    check(&Env::real(), dir.path(), 64 << 20);
}

/// Segments of a few records: most reads and appends cross their borders.
#[test]
fn conformance_with_small_segments_in_memory() {
    let (env, ..) = Env::fake(1_795_132_800_000, 3);
    check(&env, std::path::Path::new("/logs/topic"), 10_000);
}
