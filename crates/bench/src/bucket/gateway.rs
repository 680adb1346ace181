//! An S3 server (versitygw over a directory) as a process of this benchmark, and uploads to it.
//!
//! Invariants: it ends with this value; uploads go to it without the proxy.
//! Not here: delays (`proxy`), content of the blocks (`content`).

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chronolith_base::Env;
use chronolith_block::{Block, write_sidecar};
use chronolith_bucket::store::list::ListOptions;
use chronolith_bucket::upload::SidecarFile;
use chronolith_bucket::{Purpose, RequestContext, Store, StoreConfig, Uploader};
use chronolith_format::bucket::catalogue::BucketBlock;
use chronolith_model::TenantId;
use tokio::runtime::Runtime;

use crate::http::free_port;
use crate::server::die_with_parent;

pub(super) const BUCKET: &str = "metrics";
pub(super) const ACCESS_KEY: &str = "bench";
pub(super) const SECRET_KEY: &str = "bench-secret";
pub(super) const REGION: &str = "us-east-1";
const READY_WAIT: Duration = Duration::from_secs(20);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// Client of a bucket that uploads blocks.
pub(super) struct Client {
    store: Arc<Store>,
    env: Env,
    runtime: Runtime,
}

impl Client {
    pub(super) fn open(config: &StoreConfig) -> Result<Client> {
        let env = Env::real();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let store = Arc::new(Store::open(config, &env, runtime.handle().clone())?);
        Ok(Client { store, env, runtime })
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Keys and sizes of the objects of `tenant`.
    pub(super) fn objects(&self, tenant: &str) -> Result<Vec<(String, u64)>> {
        let options = ListOptions { prefix: tenant.to_owned(), ..ListOptions::default() };
        let page = self.runtime.block_on(self.store.list(&self.request(tenant)?, &options))?;
        Ok(page.objects.into_iter().map(|object| (object.key, object.object_bytes)).collect())
    }

    /// Uploads the block in `dir` with its sidecar; it is not in the catalogue yet.
    pub(super) fn upload(&self, tenant: &str, dir: &Path) -> Result<BucketBlock> {
        let sidecar = make_sidecar(&self.env, dir)?;
        let request = self.request(tenant)?;
        let uploaded = self.runtime.block_on(self.uploader().upload(&request, dir, Some(sidecar.clone())));
        std::fs::remove_file(&sidecar.path)?;
        uploaded.with_context(|| format!("uploading {}", dir.display()))
    }

    /// Enters blocks in the catalogue of `tenant`.
    pub(super) fn publish(&self, tenant: &str, records: &[BucketBlock]) -> Result<()> {
        let request = self.request(tenant)?;
        self.runtime.block_on(self.uploader().publisher().publish(&request, records))?;
        Ok(())
    }

    /// Uploads the files of the block in `dir`, as programs do that know no sidecar and no catalogue.
    pub(super) fn upload_files(&self, tenant: &str, dir: &Path) -> Result<()> {
        let request = self.request(tenant)?;
        self.runtime.block_on(self.uploader().upload(&request, dir, None))?;
        Ok(())
    }

    fn uploader(&self) -> Uploader {
        Uploader::new(self.store.clone(), &self.env, self.runtime.handle().clone())
    }

    fn request(&self, tenant: &str) -> Result<RequestContext> {
        let clock = &*self.env.clock;
        Ok(RequestContext::with_timeout(clock, TenantId::new(tenant)?, REQUEST_TIMEOUT, Purpose::Tool))
    }
}

/// A running S3 server.
pub(super) struct Gateway {
    child: Child,
    pub(super) port: u16,
    pub(super) client: Client,
}

impl Gateway {
    /// Starts `program` over `dir` and waits until it answers.
    pub(super) fn start(program: &Path, dir: &Path) -> Result<Gateway> {
        std::fs::create_dir_all(dir.join(BUCKET))?;
        let port = free_port()?;
        let args = ["--port".to_owned(), format!("127.0.0.1:{port}"), "posix".to_owned()];
        let child = die_with_parent(program, &[&args[..], &[dir.display().to_string()]].concat())
            .env("ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("ROOT_SECRET_KEY", SECRET_KEY)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let gateway = Gateway { child, port, client: Client::open(&store_config(port))? };
        let start = Instant::now();
        while gateway.client.objects("anonymous").is_err() {
            ensure!(start.elapsed() < READY_WAIT, "the S3 server does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(gateway)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Settings of a client of the S3 server at `port`.
pub(super) fn store_config(port: u16) -> StoreConfig {
    let mut config = StoreConfig::new(&format!("s3://{BUCKET}"));
    config.endpoint = Some(format!("http://127.0.0.1:{port}"));
    config.allow_http = true;
    config.region = Some(REGION.to_owned());
    config.access_key_id = Some(ACCESS_KEY.to_owned());
    config.secret_access_key = Some(SECRET_KEY.to_owned());
    config
}

/// Flags of a read-only server over the bucket at `port`.
pub(super) fn read_only_flags(port: u16) -> Vec<String> {
    let flags = [
        "--read-only=true".to_owned(),
        "--multitenancy=true".to_owned(),
        format!("--bucket=s3://{BUCKET}"),
        format!("--bucket.endpoint=http://127.0.0.1:{port}"),
        "--bucket.allow-http=true".to_owned(),
        format!("--bucket.region={REGION}"),
        format!("--bucket.access-key-id={ACCESS_KEY}"),
        format!("--bucket.secret-access-key={SECRET_KEY}"),
    ];
    flags.to_vec()
}

/// Writes the sidecar of the block in `dir` next to that directory.
fn make_sidecar(env: &Env, dir: &Path) -> Result<SidecarFile> {
    let path: PathBuf = dir.with_extension("sidecar");
    let block = Block::open(env, dir)?;
    let mut bytes = Vec::new();
    let summary = write_sidecar(env, &block, |piece| bytes.extend_from_slice(piece))?;
    std::fs::write(&path, &bytes)?;
    Ok(SidecarFile { path, head_bytes: summary.head_len })
}
