//! Against a real S3 server, where it is installed: versitygw over a directory.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use chronolith_base::{Disk, RealDisk};

use super::block_uploads::Bench;
use super::*;
use crate::error::BucketError;
use crate::snapshots::SnapshotReader;
use crate::store::CreateOutcome;
use crate::store::list::ListOptions;
use crate::store::multipart::PART_BYTES;
use crate::store::read::ReadRange;
use crate::store::request::Operation;
use crate::store::retry::Outcome;
use crate::upload::{Published, Uploader};

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
