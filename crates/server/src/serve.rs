//! Start, run and stop of the whole server: sockets, replay, background threads, signals.
//!
//! Invariants: the port answers (health, progress) while the log is replayed; after a stop every acknowledged
//! sample is durable and the next start has nothing to replay.
//! Not here: what requests do (`http`).

pub(crate) mod bucket_maintenance;
mod carbon;
mod connection;
mod error;
pub(crate) mod gateway;
mod issuer_keys;
pub(crate) mod owner;
mod refusals;
pub(crate) mod rounds;
pub(crate) mod rule_lease;
mod scheduler;
pub(crate) mod scrape;
mod shutdown;
mod stall;
pub(crate) mod stop;
mod stream;
mod tls;
mod udp;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use chronolith_base::{Env, thread};
use chronolith_cluster::open_log;
use chronolith_cluster::options::Role;
use chronolith_rules::notifier::Alert;
use chronolith_service::evaluation::rules::{delete_tenant as delete_rules, restore as restore_rules};
use chronolith_service::limits::{CARBON_THREADS_MAX, THREAD_STACK_BYTES};
use chronolith_service::options::CarbonProtocol;
use chronolith_tsdb::{Bucket, BucketOptions, BucketSources, OpenError, Tsdb, WalJobs};
use tokio::net::UdpSocket;
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use self::bucket_maintenance::set_cluster_options;
pub use self::error::RunError;
use self::issuer_keys::KeyFetcher;
use self::owner::OwnedPartition;
use self::rounds::guarded;
use self::shutdown::{Running, StopSignals};
use self::stop::Stop;
use crate::http;
use crate::limits::{ACCEPT_PAUSE, ACCEPT_QUEUE_MAX};
use crate::options::{Reload, ServerOptions};
use crate::peers::QueryNode;
use crate::web::Web;

/// Pause between two rounds of background work.
const TICK_PAUSE: Duration = Duration::from_secs(1);
/// Blocking threads of tokio, in addition to the threads of writes and queries.
const BLOCKING_THREADS_EXTRA: usize = 16;
/// Async workers for requests to the bucket, which decode postings and series as well.
const BUCKET_WORKERS: usize = 2;

/// Progress of the opening of the store.
#[derive(Clone)]
pub(crate) enum Opening {
    Running,
    Done,
    Failed(Arc<OpenError>),
    /// The server stays up and reports it in its health and readiness endpoints.
    Panicked,
}

/// A running server. Dropping it without [`Server::stop`] ends it as a crash would.
pub struct Server {
    running: Running,
    address: SocketAddr,
    opening: watch::Receiver<Opening>,
}

impl Server {
    /// Listens, and opens the store on a thread of its own.
    ///
    /// # Errors
    /// [`RunError::Bind`] and [`RunError::Threads`]; failures of the store come from [`Server::wait_ready`].
    pub fn start(env: Env, options: ServerOptions, reload: Option<Reload>) -> Result<Server, RunError> {
        let runtime = runtime(&options)?;
        let bind = |error| RunError::Bind { setting: "http", address: options.listen.clone(), error };
        let listener = runtime.block_on(listen(&options.listen)).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let web = Arc::new(Web::new(env, options, reload));
        web.service.queries.log.open(&*web.service.env.disk).map_err(RunError::QueryLog)?;
        web.service.audit.open(&*web.service.env.disk).map_err(RunError::AuditLog)?;
        web.service.read_rules().map_err(RunError::GraphiteRules)?;
        web.service.access.read(&web.service.env).map_err(RunError::Access)?;
        web.read_web_config().map_err(RunError::WebConfig)?;
        web.read_node_token().map_err(RunError::NodeToken)?;
        if let Some(tls) = web.carbon_tls() {
            tls.read(&web.service.env).map_err(RunError::WebConfig)?;
        }
        start_notifier(&web, &runtime)?;
        scheduler::read_rule_files(&web)?;
        let (closing, closed) = watch::channel(false);
        runtime.spawn(accept(web.clone(), listener, http::router(web.clone()), closed.clone()));
        listen_for_points(&web, &runtime, &closed)?;
        let stop = Arc::new(Stop::default());
        let (opened, opening) = watch::channel(Opening::Running);
        let running = Running { web, runtime, bucket: None, closing, stop, threads: Vec::new() };
        let mut server = Server { running, address, opening };
        server.spawn_access()?;
        server.spawn_web_config()?;
        server.spawn_opening(opened)?;
        tracing::info!(%address, "listening");
        Ok(server)
    }

    fn spawn_opening(&mut self, opened: watch::Sender<Opening>) -> Result<(), RunError> {
        let web = self.running.web.clone();
        let mut options = web.options.bucket.clone();
        if let Some(options) = &mut options {
            options.field_separator.clone_from(&web.service.options.tsdb.field_separator);
            set_cluster_options(options, &web.service.options.cluster);
        }
        let bucket = options.map(|options| self.open_bucket(&options)).transpose()?;
        if let Some(bucket) = bucket.clone().filter(|sources| sources.bucket().is_read_only()) {
            web.service.lifecycle.set_sources(bucket);
            tracing::info!("ready, read-only over the bucket");
            let _ = opened.send(Opening::Done);
            return Ok(());
        }
        let roles = web.service.lifecycle.roles.roles();
        if let Some(sources) = bucket.clone().filter(|_| roles.has(Role::Query)) {
            web.service.lifecycle.set_sources(sources);
        }
        let bucket = bucket.map(|sources| sources.bucket().clone());
        let owned = match bucket.clone() {
            Some(bucket) => self.open_roles(bucket)?,
            None => None,
        };
        let maintains_bucket = roles.has(Role::Store);
        if roles.is_all() {
            self.spawn_store(opened, move |web| {
                let options = web.service.options.tsdb_options();
                let progress = web.service.lifecycle.replay_progress();
                Tsdb::open_with_bucket(web.service.env.clone(), options, progress, bucket)
            })?;
            self.spawn_work_of_requests()?;
            return self.spawn_self_scrape();
        }
        match owned {
            Some(owned) => {
                let of_store = owned.clone();
                self.spawn_store(opened, move |web| of_store.open_store(web))?;
                let web = web.clone();
                let stop = self.running.stop.clone();
                let run = move || owned.run(&web, &stop);
                self.running.threads.push(thread::spawn("owner", run).map_err(RunError::Threads)?);
            }
            None if maintains_bucket => {
                self.spawn_open_store(opened, move |web| bucket_maintenance::open_store(web, bucket))?;
                self.spawn_maintenance()?;
            }
            None => drop(opened.send(Opening::Done)),
        }
        if maintains_bucket {
            self.spawn_rounds("bucket-maintenance", |_| TICK_PAUSE, |store| store.bucket_jobs().maintain())?;
        }
        if roles.has(Role::Gateway) { self.spawn_self_scrape() } else { Ok(()) }
    }

    /// Opens the log of a process with roles, and its gateway; returns the partition that it owns.
    fn open_roles(&mut self, bucket: Arc<Bucket>) -> Result<Option<OwnedPartition>, RunError> {
        let web = self.running.web.clone();
        let options = &web.service.options.cluster;
        let (Some(log), Some(runtime)) = (&options.log, &self.running.bucket) else { return Ok(None) };
        let handle = runtime.handle().clone();
        let log = open_log(&web.service.env, &handle, log)?;
        tracing::info!(topic = %log.identity(), partitions = log.partition_count()?, "replicated log opened");
        if options.roles.has(Role::Gateway) {
            gateway::open(&web, log.clone(), &bucket, handle.clone());
            // A query node hands the counts of its own lookups over.
            let owners = if web.is_query_node() { None } else { gateway::open_owners(&web, &handle)? };
            let stop = self.running.stop.clone();
            let run = {
                let web = web.clone();
                let stop = stop.clone();
                move || gateway::run(&web, &stop)
            };
            self.running.threads.push(thread::spawn("gateway", run).map_err(RunError::Threads)?);
            if let Some(owners) = owners {
                let web = web.clone();
                let run = move || gateway::run_owners(&web, &owners, &stop);
                self.running.threads.push(thread::spawn("owner-lookup", run).map_err(RunError::Threads)?);
            }
        }
        rule_lease::open(&web, &bucket, handle.clone());
        spawn_cluster_rules(self)?;
        let is_owner = options.roles.has(Role::Owner);
        is_owner.then(|| OwnedPartition::find(log, bucket, handle, &options.owner)).transpose()
    }

    /// Opens the store on a thread of its own.
    fn spawn_open_store(
        &mut self,
        opened: watch::Sender<Opening>,
        open: impl FnOnce(&Web) -> Result<Arc<Tsdb>, OpenError> + Send + 'static,
    ) -> Result<(), RunError> {
        let web = self.running.web.clone();
        let open = move || {
            // The receiver is gone when the server stops during the replay.
            let _ = opened.send(open_store(&web, open));
        };
        // Not joined: a replay cannot be interrupted, and a stop must not wait for it.
        thread::spawn("replay", open).map(drop).map_err(RunError::Threads)
    }

    /// Starts maintenance of the store, and uploads to the bucket.
    fn spawn_maintenance(&mut self) -> Result<(), RunError> {
        self.spawn_rounds("maintenance", |_| TICK_PAUSE, |store| store.maintenance().run())?;
        if self.running.web.options.bucket.is_some() {
            // An upload waits for requests, which must hold up no other work.
            self.spawn_rounds("bucket-upload", |_| TICK_PAUSE, |store| store.bucket_jobs().upload_blocks())?;
        }
        Ok(())
    }

    /// Opens the store on a thread of its own, and starts its background work.
    fn spawn_store(
        &mut self,
        opened: watch::Sender<Opening>,
        open: impl FnOnce(&Web) -> Result<Arc<Tsdb>, OpenError> + Send + 'static,
    ) -> Result<(), RunError> {
        self.spawn_open_store(opened, open)?;
        self.spawn_maintenance()?;
        // A thread of its own: a block that takes a minute to write must not hold up the interval's sync.
        self.spawn_rounds(
            "wal-sync",
            |store| store.wal_jobs().sync_pause(),
            |store| store.wal_jobs().sync(),
        )?;
        // Writing zeros waits for the disk, and must hold up neither syncs nor blocks.
        self.spawn_rounds(
            "wal-prepare",
            |_| WalJobs::PREPARE_PAUSE,
            |store| store.wal_jobs().prepare_segment(),
        )?;
        // Neither blocks nor syncs of the log wait for slices, nor the other way round.
        self.spawn_rounds("checkpoint", |_| TICK_PAUSE, |store| store.wal_jobs().roll_checkpoint())
    }

    /// Starts the background work of a server whose store clients may change: rules, removal of tenants, and
    /// maintenance of the bucket, which several owners would do twice.
    fn spawn_work_of_requests(&mut self) -> Result<(), RunError> {
        // Waits for rounds of other threads, which must hold up none of them.
        let service = self.running.web.service.clone();
        let delete_tenants = move |store: &Tsdb| {
            store.tenant_deletions().run(|tenant| delete_rules(&service, tenant));
        };
        self.spawn_rounds("tenant-deletion", |_| TICK_PAUSE, delete_tenants)?;
        if self.running.web.options.bucket.is_some() {
            // Uploads do not wait for removals.
            self.spawn_rounds("bucket-maintenance", |_| TICK_PAUSE, |store| store.bucket_jobs().maintain())?;
        }
        self.spawn_scheduler()?;
        self.spawn_notifier()
    }

    /// Starts the self-scrape, unless it is off or nothing can be written.
    fn spawn_self_scrape(&mut self) -> Result<(), RunError> {
        let is_read_only = self.running.web.service.options.is_read_only;
        if is_read_only {
            tracing::info!("read-only: writes, deletions and other changes are refused");
        }
        if self.running.web.options.self_scrape_interval_ms > 0 && !is_read_only {
            let web = self.running.web.clone();
            let stop = self.running.stop.clone();
            let instance = self.address.to_string();
            let scrape = move || scrape::run(&web, &instance, &stop);
            self.running.threads.push(thread::spawn("self-scrape", scrape).map_err(RunError::Threads)?);
        }
        Ok(())
    }

    /// Opens the bucket, with a runtime of its own for its requests. Nothing is read from it yet.
    fn open_bucket(&mut self, options: &BucketOptions) -> Result<Arc<BucketSources>, RunError> {
        let web = &self.running.web;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("bucket")
            .worker_threads(BUCKET_WORKERS)
            .build()
            .map_err(RunError::Threads)?;
        let sources =
            BucketSources::open(options, &web.service.env, runtime.handle()).map_err(RunError::Bucket)?;
        let node = open_query_node(web, &sources, runtime.handle()).map_err(RunError::NodeToken)?;
        let sources = match &node {
            Some(node) => sources.with_recent(Arc::new(node.sources())),
            None => sources,
        };
        tracing::info!(url = options.store.url, "bucket opened");
        let sources = Arc::new(sources);
        web.service.set_bucket(sources.clone());
        self.running.bucket = Some(runtime);
        if let Some(node) = node {
            self.spawn_owner_lookups(node)?;
        }
        Ok(sources)
    }

    /// Looks the owners of partitions up, again and again until the stop.
    fn spawn_owner_lookups(&mut self, node: Arc<QueryNode>) -> Result<(), RunError> {
        let web = self.running.web.clone();
        let stop = self.running.stop.clone();
        let run = move || {
            loop {
                guarded(&web, "owner-lookup", || {
                    node.refresh();
                    if let Some(gateway) = web.service.lifecycle.roles.gateway() {
                        gateway.set_tenant_series(node.directory().tenant_series());
                    }
                });
                if stop.wait(node.refresh_pause()) {
                    return;
                }
            }
        };
        self.running.threads.push(thread::spawn("owner-lookup", run).map_err(RunError::Threads)?);
        Ok(())
    }

    /// Reads the access file again whenever it has changed, and fetches the keys of issuers.
    fn spawn_access(&mut self) -> Result<(), RunError> {
        if !self.running.web.service.access.has_file() {
            return Ok(());
        }
        let web = self.running.web.clone();
        let stop = self.running.stop.clone();
        let mut fetcher = KeyFetcher::new(self.running.runtime.handle().clone());
        let run = move || {
            loop {
                guarded(&web, "access", || {
                    web.refresh_access();
                    web.take_fetched_keys();
                    fetcher.start_due(&web);
                });
                if stop.wait(TICK_PAUSE) {
                    return;
                }
            }
        };
        self.running.threads.push(thread::spawn("access", run).map_err(RunError::Threads)?);
        Ok(())
    }

    /// Reads the web configuration file, the file of carbon's TLS, and their certificates again whenever one
    /// of them has changed.
    fn spawn_web_config(&mut self) -> Result<(), RunError> {
        let web = self.running.web.clone();
        if web.web_config().is_none() && web.carbon_tls().is_none() {
            return Ok(());
        }
        let stop = self.running.stop.clone();
        let run = move || {
            while !stop.wait(TICK_PAUSE) {
                guarded(&web, "web-config", || web.refresh_web_config());
                guarded(&web, "web-config", || web.refresh_carbon_tls());
            }
        };
        self.running.threads.push(thread::spawn("web-config", run).map_err(RunError::Threads)?);
        Ok(())
    }

    /// Reads the alerting configuration and the files that it names again whenever one of them has changed.
    fn spawn_notifier(&mut self) -> Result<(), RunError> {
        if !self.running.web.notifier().has_file() {
            return Ok(());
        }
        let web = self.running.web.clone();
        let stop = self.running.stop.clone();
        let run = move || {
            while !stop.wait(TICK_PAUSE) {
                guarded(&web, "alerting-config", || web.refresh_notifier());
            }
        };
        self.running.threads.push(thread::spawn("alerting-config", run).map_err(RunError::Threads)?);
        Ok(())
    }

    /// Starts rounds of rules and continuous queries.
    fn spawn_scheduler(&mut self) -> Result<(), RunError> {
        let web = self.running.web.clone();
        let stop = self.running.stop.clone();
        let settings = scheduler::settings(&web, self.address);
        let run = move || scheduler::run(&web, &settings, &stop);
        self.running.threads.push(thread::spawn("scheduler", run).map_err(RunError::Threads)?);
        Ok(())
    }

    /// Runs `round` on the store again and again on a thread of its own, `pause` apart, until the stop.
    fn spawn_rounds(
        &mut self,
        name: &'static str,
        pause: impl Fn(&Tsdb) -> Duration + Send + 'static,
        round: impl Fn(&Tsdb) + Send + 'static,
    ) -> Result<(), RunError> {
        let web = self.running.web.clone();
        let stop = self.running.stop.clone();
        let run = move || {
            while !stop.wait(web.service.lifecycle.opened().map_or(TICK_PAUSE, |store| pause(store))) {
                let Some(store) = web.service.lifecycle.opened() else { continue };
                // A bug in one round must not end flushing, syncs or the checkpoint for good.
                guarded(&web, name, || round(store));
            }
        };
        self.running.threads.push(thread::spawn(name, run).map_err(RunError::Threads)?);
        Ok(())
    }

    /// Queues alerts for all Alertmanagers of the alerting configuration. Waits for none of them.
    pub fn send_alerts(&self, alerts: &[Arc<Alert>]) {
        self.running.web.notifier().send(alerts);
    }

    /// Makes the server an owner for query nodes. Called once.
    #[cfg(test)]
    pub(crate) fn set_owner(&self, owner: Arc<dyn chronolith_cluster::owner::PartitionOwner>) {
        self.running.web.service.lifecycle.roles.set_owner(owner);
    }

    /// Address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the replay is done.
    ///
    /// # Errors
    /// [`RunError::Open`].
    pub fn wait_ready(&self) -> Result<(), RunError> {
        self.running.runtime.block_on(opened(self.opening.clone()))
    }

    /// Runs until SIGTERM or SIGINT, then stops. SIGHUP reloads the configuration.
    ///
    /// # Errors
    /// As [`Server::wait_ready`] and [`Server::stop`].
    pub fn run_until_signal(self) -> Result<(), RunError> {
        let until = run_until_signal(self.running.web.clone(), self.opening.clone());
        let signals = self.running.runtime.block_on(until)?;
        self.running.stop(Some(signals))
    }

    /// Withdraws readiness, stops accepting after the delay that is set, lets requests finish (bounded),
    /// closes the store.
    ///
    /// # Errors
    /// [`RunError::Close`] and [`RunError::Interrupted`].
    pub fn stop(self) -> Result<(), RunError> {
        self.running.stop(None)
    }
}

/// Starts rounds of rules under the lease of the cluster, if the process has one.
fn spawn_cluster_rules(server: &mut Server) -> Result<(), RunError> {
    let web = server.running.web.clone();
    let Some(lease) = web.service.lifecycle.roles.rule_lease() else { return Ok(()) };
    let pause = lease.refresh_pause();
    let run = {
        let web = web.clone();
        let stop = server.running.stop.clone();
        move || rule_lease::run(&web, pause, &stop)
    };
    server.running.threads.push(thread::spawn("rule-lease", run).map_err(RunError::Threads)?);
    server.spawn_scheduler()?;
    server.spawn_notifier()
}

/// Makes a query node of a server that has the addresses of owners.
pub(crate) fn open_query_node(
    web: &Web,
    sources: &BucketSources,
    handle: &Handle,
) -> Result<Option<Arc<QueryNode>>, String> {
    let options = &web.options.nodes;
    let Some(owners) = options.owners.as_ref().filter(|_| web.is_query_node()) else { return Ok(None) };
    let client = web.open_node_client()?;
    let node = Arc::new(QueryNode::new(owners, client, sources, &web.service.env, handle));
    web.set_query_node(node.clone());
    Ok(Some(node))
}

/// Reads the alerting configuration, if there is one, and starts a sender for each Alertmanager.
fn start_notifier(web: &Web, runtime: &Runtime) -> Result<(), RunError> {
    web.notifier().start(runtime.handle().clone());
    if web.notifier().read(&web.service.env).map_err(RunError::Alerting)? {
        let (alertmanagers, ignored_blocks) = web.notifier().summary();
        tracing::info!(
            alertmanagers,
            ignored_blocks = ignored_blocks.join(" "),
            "alerting configuration read"
        );
    }
    Ok(())
}

fn runtime(options: &ServerOptions) -> Result<Runtime, RunError> {
    let blocking = options.service.write.concurrency
        + options.service.query.concurrency
        + CARBON_THREADS_MAX
        + BLOCKING_THREADS_EXTRA;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("http")
        .thread_stack_size(THREAD_STACK_BYTES)
        .max_blocking_threads(blocking)
        .build()
        .map_err(RunError::Threads)
}

/// Opens the store by `open` and takes it into use. A failure shows in the health of the server, be it a
/// panic.
pub(crate) fn open_store(web: &Web, open: impl FnOnce(&Web) -> Result<Arc<Tsdb>, OpenError>) -> Opening {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| open(web))) {
        Ok(Ok(store)) => {
            report(&store);
            // Before callers can change them.
            web.service.rules.configured.load(|tenant| store.tenant_deletions().is_running(tenant));
            restore_rules(&web.service);
            web.service.set_store(store, Vec::new());
            Opening::Done
        }
        Ok(Err(error)) => {
            web.service.lifecycle.set_failure(format!("start failed: {error}"));
            Opening::Failed(Arc::new(error))
        }
        Err(_) => {
            web.metrics.background.thread_panics.add(1);
            web.service
                .lifecycle
                .set_failure("start failed: the replay panicked, see standard error".to_owned());
            Opening::Panicked
        }
    }
}

/// Listens on the first address of `host:port` that can be had.
async fn listen(address: &str) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
    for address in lookup_host(address).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restart must not wait for connections of the process before it.
        socket.set_reuseaddr(true)?;
        match socket.bind(address).and_then(|()| socket.listen(ACCEPT_QUEUE_MAX)) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Opens the listeners of line protocol over UDP and of carbon.
fn listen_for_points(
    web: &Arc<Web>,
    runtime: &Runtime,
    closed: &watch::Receiver<bool>,
) -> Result<(), RunError> {
    for options in web.service.options.influx.udp.clone() {
        let socket = udp_socket(runtime, "influx.udp", &options.listen)?;
        runtime.spawn(udp::listen(web.clone(), udp::LineProtocol(options), socket, closed.clone()));
    }
    let all = &web.service.options.write.carbon;
    for (idx, options) in all.listeners.iter().enumerate() {
        let setting = match options.protocol {
            CarbonProtocol::Plaintext => "carbon.listen",
            CarbonProtocol::Pickle => "carbon.pickle-listen",
        };
        let bind = |error| RunError::Bind { setting, address: options.listen.clone(), error };
        let socket = runtime.block_on(listen(&options.listen)).map_err(bind)?;
        let local = socket.local_addr().map_err(bind)?;
        let input = web.service.carbon.of_listener(idx);
        let listener = Arc::new(carbon::listener::Listener::new(web.clone(), options.clone(), input));
        // Datagrams cannot be encrypted.
        let has_udp = options.protocol == CarbonProtocol::Plaintext && all.tls_file.is_none();
        tracing::info!(
            address = %local,
            listener = listener.input.name,
            tenant = %options.tenant,
            tls = all.tls_file.is_some(),
            udp = has_udp,
            allow = all.allowed.as_ref().map_or_else(|| "all".to_owned(), ToString::to_string),
            "listening for carbon"
        );
        if has_udp {
            let datagrams = udp_socket(runtime, setting, &local.to_string())?;
            let lines = carbon::Datagrams(listener.clone());
            runtime.spawn(udp::listen(web.clone(), lines, datagrams, closed.clone()));
        }
        runtime.spawn(carbon::accept(listener, socket, closed.clone()));
    }
    Ok(())
}

fn udp_socket(runtime: &Runtime, setting: &'static str, address: &str) -> Result<UdpSocket, RunError> {
    let bound = runtime.block_on(UdpSocket::bind(address));
    bound.map_err(|error| RunError::Bind { setting, address: address.to_owned(), error })
}

fn report(store: &Tsdb) {
    let stats = store.statistics().stats();
    let series = stats.head.series;
    let blocks = stats.blocks;
    let replay_ms = stats.replay.ms;
    tracing::info!(series, blocks, replay_ms, "ready");
}

async fn opened(mut opening: watch::Receiver<Opening>) -> Result<(), RunError> {
    let state = opening.wait_for(|state| !matches!(state, Opening::Running)).await;
    match state.as_deref() {
        Ok(Opening::Failed(error)) => Err(RunError::Open(error.clone())),
        // The sender goes only after it has sent.
        Ok(Opening::Running | Opening::Done | Opening::Panicked) | Err(_) => Ok(()),
    }
}

/// Gives the signals, one of which has come.
async fn run_until_signal(web: Arc<Web>, opening: watch::Receiver<Opening>) -> Result<StopSignals, RunError> {
    let mut signals = StopSignals::new()?;
    let mut hangup = signal(SignalKind::hangup()).map_err(RunError::Threads)?;
    let opened = opened(opening);
    tokio::pin!(opened);
    let mut is_open = false;
    loop {
        tokio::select! {
            result = &mut opened, if !is_open => {
                result?;
                is_open = true;
            }
            () = signals.next() => return Ok(signals),
            _ = hangup.recv() => {
                let web = web.clone();
                tokio::task::spawn_blocking(move || http::reload_by_signal(&web));
            }
        }
    }
}

async fn accept(web: Arc<Web>, listener: TcpListener, router: Router, mut closed: watch::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = closed.changed() => return,
        };
        match accepted {
            Ok((stream, _)) => admit(&web, stream, &router, &closed),
            Err(error) => {
                web.metrics.http.accept_failures.add(1);
                tracing::warn!(%error, "accepting a connection failed");
                if web.connections.evict_idlest() {
                    web.metrics.http.connections_evicted.add(1);
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves a connection if there is room, or makes room by closing the connection that has been idle longest.
fn admit(web: &Arc<Web>, stream: TcpStream, router: &Router, closed: &watch::Receiver<bool>) {
    web.metrics.http.connections_accepted.add(1);
    if web.connections.is_full() {
        if !web.connections.evict_idlest() {
            web.metrics.http.accept_failures.add(1);
            return;
        }
        web.metrics.http.connections_evicted.add(1);
    }
    // Answers are written in one piece; waiting for more bytes to send would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "setting TCP_NODELAY failed");
    }
    let guard = web.connections.register(web.service.env.clock.clone());
    tokio::spawn(connection::serve(guard, stream, web.clone(), router.clone(), closed.clone()));
}

#[cfg(test)]
mod tests;
