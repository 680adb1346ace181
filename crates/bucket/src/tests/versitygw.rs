//! Against a real S3 server, where it is installed: versitygw over a directory.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use chronolith_base::{Disk, RealDisk};
use chronolith_block::{Block, BlockSource, BlockWriter, MergeRules};
use chronolith_model::{BlockEncoding, DuplicatePolicy, ReadContext, Selector, TimeRange};

use super::block_uploads::Bench;
use super::reading::{Answer, START_MS, labels, read_all, window};
use super::*;
use crate::error::BucketError;
use crate::lease::Leases;
use crate::maintenance::MaintenanceRun;
use crate::maintenance::download::download_block;
use crate::maintenance::removal::{find_due, remove_due};
use crate::snapshots::SnapshotReader;
use crate::store::CreateOutcome;
use crate::store::list::ListOptions;
use crate::store::multipart::PART_BYTES;
use crate::store::read::ReadRange;
use crate::store::request::Operation;
use crate::store::retry::Outcome;
use crate::upload::{Published, Uploader};
use crate::{BlockCatalog, CatalogOptions};

const ENV: &str = "CHRONOLITH_TEST_VERSITYGW";
const SECRET: &str = "test-secret";

/// A server that ends with the test.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the server; `None` (and a line that reports it) when it is not there.
fn start(dir: &Path) -> Option<Server> {
    let program = std::env::var_os(ENV).unwrap_or_else(|| "versitygw".into());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    RealDisk::new().create_dir_all(&dir.join("metrics")).unwrap();
    let started = Command::new(program)
        .env("ROOT_ACCESS_KEY", "test")
        .env("ROOT_SECRET_KEY", SECRET)
        .args(["--port", &format!("127.0.0.1:{port}"), "posix"])
        .arg(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(child) => Some(Server { child, port }),
        Err(_) => {
            println!("NOT RUN: versitygw missing");
            None
        }
    }
}

fn open(server: &Server, secret: &str) -> (Env, Store) {
    let mut config = StoreConfig::new("s3://metrics/some/prefix");
    config.endpoint = Some(format!("http://127.0.0.1:{}", server.port));
    config.allow_http = true;
    config.region = Some("us-east-1".to_owned());
    config.access_key_id = Some("test".to_owned());
    config.secret_access_key = Some(secret.to_owned());
    let env = Env::real();
    let store = Store::open(&config, &env, Handle::current()).unwrap();
    (env, store)
}

fn context(env: &Env) -> RequestContext {
    let timeout = Duration::from_secs(600);
    RequestContext::with_timeout(&*env.clock, TenantId::anonymous(), timeout, Purpose::Query)
}

async fn wait_until_ready(env: &Env, store: &Store) {
    for _ in 0..100 {
        if store.list(&context(env), &ListOptions::default()).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("versitygw does not answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_operations_on_an_s3_server() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = start(dir.path()) else { return };
    let (env, store) = open(&server, SECRET);
    wait_until_ready(&env, &store).await;
    let context = context(&env);
    let body = pattern(1, 200_000);
    store.put(&context, "t/01H/index", body.clone()).await.unwrap();
    let found = store.read(&context, "t/01H/index", ReadRange::Exact(5..100_000), None).await.unwrap();
    assert_eq!((found.bytes, found.object_bytes), (body.slice(5..100_000), 200_000));
    let etag = found.etag.unwrap();
    let suffix = store.read(&context, "t/01H/index", ReadRange::Suffix(7), Some(&etag)).await.unwrap();
    assert_eq!(suffix.bytes, body.slice(199_993..));
    store.put(&context, "t/01H/index", body.slice(1..)).await.unwrap();
    let changed = store.read(&context, "t/01H/index", ReadRange::Suffix(7), Some(&etag)).await;
    assert!(matches!(changed, Err(BucketError::Changed { .. })), "{changed:?}");
    for range in [199_000..200_001, 300_000..300_001] {
        let beyond = store.read(&context, "t/01H/index", ReadRange::Exact(range), None).await;
        assert!(matches!(beyond, Err(BucketError::Corrupt { .. })), "{beyond:?}");
    }
    let absent = store.read(&context, "t/01H/absent", ReadRange::Whole, None).await;
    assert!(matches!(absent, Err(BucketError::NotFound { .. })), "{absent:?}");
    let file = RealDisk::new().create(&dir.path().join("file")).unwrap();
    let large = pattern(2, 2 * PART_BYTES + 99);
    file.write_at(&large, 0).unwrap();
    store.put_multipart(&context, "t/01H/chunks/000001", Arc::from(file)).await.unwrap();
    assert!(
        store.read(&context, "t/01H/chunks/000001", ReadRange::Whole, None).await.unwrap().bytes == large
    );
    let options = ListOptions { prefix: "t".to_owned(), keys_max: 1, ..ListOptions::default() };
    let page = store.list(&context, &options).await.unwrap();
    assert_eq!((page.objects[0].key.as_str(), page.objects.len()), ("t/01H/chunks/000001", 1));
    let options = ListOptions { after: page.next_after, ..options };
    let page = store.list(&context, &options).await.unwrap();
    assert_eq!((page.objects[0].key.as_str(), page.next_after), ("t/01H/index", None));
    let options = ListOptions { is_delimited: true, ..ListOptions::default() };
    assert_eq!(store.list(&context, &options).await.unwrap().prefixes, ["t"]);
    store.remove(&context, "t/01H/index").await.unwrap();
    store.remove(&context, "t/01H/index").await.unwrap();
    let (_, wrong) = open(&server, "wrong");
    let denied = wrong.read(&context, "t/01H/index", ReadRange::Whole, None).await;
    assert!(matches!(denied, Err(BucketError::Denied { .. })), "{denied:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_32_creators_wins_on_an_s3_server() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = start(dir.path()) else { return };
    let (env, store) = open(&server, SECRET);
    wait_until_ready(&env, &store).await;
    let context = context(&env);
    for round in 0..5 {
        let key = format!("catalog/{round:020}");
        let creators = (0..32).map(|writer| {
            let (store, context, key) = (&store, &context, &key);
            async move { store.create(context, key, Bytes::from(format!("writer {writer}"))).await.unwrap() }
        });
        let outcomes = futures_util::future::join_all(creators).await;
        let won = outcomes.iter().filter(|outcome| **outcome == CreateOutcome::Created).count();
        assert_eq!(won, 1, "round {round}");
    }
    let exists = store.counters().requests(Operation::Create, Outcome::Exists);
    assert!(exists >= 5 * 31, "{exists}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_are_uploaded_to_an_s3_server_and_recorded_by_racing_writers() {
    const WRITERS: u64 = 8;
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = start(dir.path()) else { return };
    let (env, store) = open(&server, SECRET);
    wait_until_ready(&env, &store).await;
    let bench = Arc::new(Bench::new(FaultPlan::default()));
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..WRITERS {
        let segment_bytes = if n == 0 { 2 * PART_BYTES + 5 } else { 1000 };
        let block = bench.block(n, &[], &[segment_bytes, 10]);
        let (env, store) = open(&server, SECRET);
        let (store, bench) = (Arc::new(store), bench.clone());
        writers.spawn(async move {
            let first = Uploader::new(store.clone(), &bench.env, Handle::current());
            let request = context(&env);
            let record = first.upload(&request, &block, Bench::sidecar(&block)).await.unwrap();
            let published = first.publisher().publish(&request, &[record]).await.unwrap();
            assert!(matches!(published, Published::Recorded(Some(_))), "{published:?}");
            let second = Uploader::new(store, &bench.env, Handle::current());
            second.upload(&request, &block, Bench::sidecar(&block)).await.unwrap();
            assert_eq!(second.counters().sent_bytes, 0, "all objects are equal to the files");
        });
    }
    writers.join_all().await;
    let reader = SnapshotReader::new(Arc::new(store), env.clock.clone());
    let latest = reader.read_latest(&context(&env)).await.unwrap().unwrap();
    assert_eq!((latest.snapshot.number, latest.snapshot.blocks.len() as u64), (WRITERS, WRITERS));
}

/// Merges without a limit.
struct NoLimit;

impl chronolith_block::Pace for NoLimit {
    fn spend(&self, _: u64) -> std::ops::ControlFlow<()> {
        std::ops::ControlFlow::Continue(())
    }
}

/// The samples of a tenant, as queries see them.
fn answer(env: &Env, store: Arc<Store>) -> Answer {
    let catalog = BlockCatalog::new(store, env.clock.clone(), Handle::current(), &CatalogOptions::default());
    let budget = chronolith_base::MemoryBudget::new("query", u64::MAX);
    let ctx = ReadContext::new(env.clock.clone(), u64::MAX, budget);
    let blocks = catalog.blocks_in(TenantId::anonymous(), TimeRange::ALL, &ctx).unwrap();
    let selector = Selector { matchers: &[], range: TimeRange::ALL };
    let mut series: std::collections::BTreeMap<_, Vec<(i64, u64)>> = std::collections::BTreeMap::new();
    for block in &blocks {
        for (labels, samples) in read_all(&mut *block.select(&selector, &ctx), TimeRange::ALL).unwrap() {
            series.entry(labels).or_default().extend(samples);
        }
    }
    series.into_iter().collect()
}

/// Covers upload, compaction by way of a local directory, removal of the inputs.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn blocks_are_compacted_and_removed_on_an_s3_server() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = start(dir.path()) else { return };
    let (env, store) = open(&server, SECRET);
    wait_until_ready(&env, &store).await;
    let store = Arc::new(store);
    let (disk, _, _) = Env::fake(START_MS, 3);
    let local = Env { disk: disk.disk.clone(), ..env.clone() };
    let request = context(&env);
    let uploader = Uploader::new(store.clone(), &local, Handle::current());
    for idx in 0..2 {
        let mut writer = BlockWriter::create(&local, Path::new("blocks")).unwrap();
        for pod in ["x", "y"] {
            let times: Vec<i64> = (0..240).map(|k| window(idx).start + k * 15_000).collect();
            let values: Vec<f64> = (0..240).map(|k| f64::from(k) * 0.1).collect();
            writer.add_samples(&labels(&[("__name__", "m"), ("pod", pod)]), &times, &values).unwrap();
        }
        let meta = writer.finish(BlockSource::head(window(idx))).unwrap().unwrap();
        let block = Path::new("blocks").join(meta.ulid.to_string());
        let record = uploader.upload(&request, &block, None).await.unwrap();
        uploader.publisher().publish(&request, &[record]).await.unwrap();
    }
    let read = async || {
        let (env, store) = (env.clone(), store.clone());
        tokio::task::spawn_blocking(move || answer(&env, store)).await.unwrap()
    };
    let before = read().await;
    assert_eq!(before.iter().map(|(_, samples)| samples.len()).collect::<Vec<_>>(), [480, 480]);

    let leases = Leases::new(store.clone(), &env, Duration::from_secs(60));
    assert!(leases.acquire(&request).await.unwrap());
    let snapshots = uploader.publisher().snapshots();
    let inputs = snapshots.reader().read_latest(&request).await.unwrap().unwrap().snapshot.blocks.clone();
    let mut opened = Vec::new();
    for record in &inputs {
        let work = Path::new("compaction");
        let fetched = download_block(&store, &local, &request, record, work).await.unwrap();
        opened.push(Block::open(&local, &fetched).unwrap());
    }
    let rules = MergeRules {
        encoding: BlockEncoding::Dense,
        duplicates: DuplicatePolicy::KeepFirst,
        output_bytes_max: u64::MAX,
    };
    let outputs =
        chronolith_block::compact(&local, Path::new("compaction"), None, &opened, rules, &NoLimit).unwrap();
    let output = Path::new("compaction").join(outputs[0].meta().ulid.to_string());
    let record = uploader.upload(&request, &output, None).await.unwrap();
    let replaced = uploader.publisher().replace(&request, &inputs, &[record]).await.unwrap();
    assert!(matches!(replaced, Published::Recorded(Some(_))), "{replaced:?}");
    leases.release(&request).await.unwrap();
    assert!(read().await == before, "compacted");

    let now_ms = env.clock.now_ms() + 13 * 3_600_000;
    let run = MaintenanceRun { store: &store, snapshots, request: &request, now_ms };
    let due = find_due(&run, Duration::from_secs(12 * 3600)).await.unwrap();
    let removed = remove_due(&run, &due).await.unwrap();
    assert_eq!((removed.blocks.len(), removed.object_count), (2, 6));
    let options =
        ListOptions { prefix: "anonymous".to_owned(), is_delimited: true, ..ListOptions::default() };
    let left = store.list(&request, &options).await.unwrap().prefixes;
    assert_eq!(left.len(), 3, "one block, catalogue and lease: {left:?}");
    assert!(read().await == before, "inputs removed");
}
