//! Multipart uploads under faults: content, parts, abort.

use std::path::Path;
use std::sync::atomic::Ordering;

use chronolith_base::{Disk, DiskFile, MemDisk};

use super::*;
use crate::error::BucketError;
use crate::store::multipart::PART_BYTES;
use crate::store::read::ReadRange;

fn file(body: &[u8]) -> Arc<dyn DiskFile> {
    let disk = MemDisk::new();
    disk.create_dir_all(Path::new("/d")).unwrap();
    let file = disk.create(Path::new("/d/x")).unwrap();
    file.write_at(body, 0).unwrap();
    Arc::from(file)
}

async fn check_upload(backend: Arc<dyn Backend>, len: usize, plan: FaultPlan) {
    let rig = Rig::over(backend, plan, 5);
    let body = pattern(len as u64, len);
    let context = RequestContext { purpose: Purpose::Upload, ..rig.query(600_000) };
    rig.store.put_multipart(&context, "t/chunks/000001", file(&body)).await.unwrap();
    rig.faults.set_plan(FaultPlan::default());
    let found = rig.store.read(&context, "t/chunks/000001", ReadRange::Whole, None).await.unwrap();
    assert!(found.bytes == body, "{len} bytes");
    assert_eq!(rig.faults.aborts.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_uploaded_in_parts() {
    for len in [0, 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES + 12_345] {
        check_upload(Arc::new(InMemory::new()), len, FaultPlan::default()).await;
        let dir = tempfile::tempdir().unwrap();
        check_upload(local_backend(dir.path()), len, FaultPlan::default()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_and_refusals_of_parts_are_retried() {
    let plan = FaultPlan { unavailable: 200, lost_answer: 200, ..FaultPlan::default() };
    check_upload(Arc::new(InMemory::new()), 5 * PART_BYTES + 7, plan).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_upload_is_aborted_and_leaves_no_object() {
    let rig = Rig::memory(FaultPlan::default());
    let context = rig.query(600_000);
    let short = file(&pattern(1, 2 * PART_BYTES));
    let cut = ShorterThanItSays { file: short, claimed_len: 3 * PART_BYTES as u64 };
    let error = rig.store.put_multipart(&context, "x", Arc::new(cut)).await.unwrap_err();
    assert!(matches!(error, BucketError::SourceFile { .. }), "{error}");
    assert_eq!(rig.faults.aborts.load(Ordering::Relaxed), 1);
    let absent = rig.store.head(&context, "x").await;
    assert!(matches!(absent, Err(BucketError::NotFound { .. })), "{absent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_upload_is_aborted() {
    let rig = Rig::memory(FaultPlan { delayed: 1000, delay_ms: 200, ..FaultPlan::default() });
    let body = file(&pattern(1, 4 * PART_BYTES));
    let context = rig.query(600_000);
    let upload = rig.store.put_multipart(&context, "x", body);
    // Dropped after it has begun, at the latest when the first part is on its way.
    let is_dropped = tokio::time::timeout(Duration::from_millis(350), upload).await.is_err();
    assert!(is_dropped);
    for _ in 0..100 {
        if rig.faults.aborts.load(Ordering::Relaxed) == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no abort");
}

/// A file that was cut after its length was read.
struct ShorterThanItSays {
    file: Arc<dyn DiskFile>,
    claimed_len: u64,
}

impl DiskFile for ShorterThanItSays {
    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        self.file.write_at(bytes, offset)
    }
    fn read_at(&self, out: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.file.read_at(out, offset)
    }
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.claimed_len)
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.file.set_len(len)
    }
    fn allocate(&self, len: u64) -> std::io::Result<()> {
        self.file.allocate(len)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }
}
