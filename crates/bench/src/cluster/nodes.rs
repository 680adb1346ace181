//! Processes of a cluster on this machine: gateways, owners, query nodes, stores, a bucket in a directory.
//!
//! Invariants: all processes end with the thread that has started them; query nodes find owners by a file,
//! which changes with them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::proc::CpuSeconds;
use crate::server::{Kind, Server, Setup};

const POLL: Duration = Duration::from_millis(20);

/// Options of the nodes.
pub(super) struct NodeSetup {
    /// Address of the log, which the first gateway creates.
    pub(super) log: String,
    /// Partitions of the log, at least one.
    pub(super) partition_count: usize,
    /// Partitions of a tenant, if the map has as many.
    pub(super) tenant_partitions: usize,
    /// Copies of each partition, at most the brokers.
    pub(super) replication_factor: usize,
    /// Codec of the batches of the log.
    pub(super) compression: String,
    /// Series that all nodes have to take together.
    pub(super) series_count: usize,
    /// Owners of each partition, at least one.
    pub(super) owners_per_partition: usize,
    /// Gateways, at least one.
    pub(super) gateway_count: usize,
    /// Query nodes, at least one.
    pub(super) query_count: usize,
    /// Processes that maintain the bucket.
    pub(super) store_count: usize,
    /// Other options of owners.
    pub(super) owner_flags: Vec<String>,
    /// Other options of processes that maintain the bucket.
    pub(super) store_flags: Vec<String>,
    /// Other options of all nodes.
    pub(super) node_flags: Vec<String>,
    /// Age from which each query node reads the catalogue again; one without an entry has the default.
    pub(super) query_polls: Vec<Duration>,
}

impl NodeSetup {
    /// A gateway, an owner per partition and a query node; a tenant has all partitions.
    pub(super) fn new(log: String, partition_count: usize, series_count: usize) -> NodeSetup {
        NodeSetup {
            log,
            partition_count,
            tenant_partitions: partition_count,
            replication_factor: 1,
            compression: "lz4".to_owned(),
            series_count,
            owners_per_partition: 1,
            gateway_count: 1,
            query_count: 1,
            store_count: 0,
            owner_flags: Vec::new(),
            store_flags: Vec::new(),
            node_flags: Vec::new(),
            query_polls: Vec::new(),
        }
    }
}

/// End of an owner before it starts again.
#[derive(Debug, Clone, Copy)]
pub(super) enum OwnerEnd {
    /// Killed, as by the kernel.
    Kill,
    /// Killed, and its directory removed: it reads the log from the offset of the bucket.
    LoseDirectory,
    /// Stopped, and its directory gets another name.
    MoveDirectory,
}

/// Start of an owner that has read its partition from the log.
pub(super) struct CaughtUp {
    /// Samples that it has applied until it was ready.
    pub(super) sample_count: f64,
    /// From exec until it was ready.
    pub(super) wall_s: f64,
    /// CPU time until then.
    pub(super) cpu_s: f64,
}

/// Log, bucket and options of all nodes.
pub(super) struct Site {
    setup: NodeSetup,
    /// Directory of the directories of nodes.
    data: PathBuf,
    /// Bucket, token and addresses of owners; removed at the end.
    shared: tempfile::TempDir,
}

impl Site {
    fn new(data: &Path, setup: NodeSetup) -> Result<Site> {
        let shared = tempfile::tempdir_in(data)?;
        std::fs::create_dir(shared.path().join("bucket"))?;
        std::fs::write(shared.path().join("token"), "bench-of-the-nodes-0123456789abcdef\n")?;
        Ok(Site { setup, data: data.to_owned(), shared })
    }

    fn start_gateway(&self) -> Result<Server> {
        let NodeSetup { partition_count, replication_factor, compression, .. } = &self.setup;
        let flags = [
            self.log_flag(),
            format!("--log.compression={compression}"),
            format!("--log.create-topic={partition_count}:{replication_factor}"),
            self.tenant_partitions_flag(),
        ];
        self.start_node("gateway", flags)
    }

    fn start_owner(&self, partition: usize) -> Result<Server> {
        let flags =
            [self.log_flag(), format!("--owner.partition={partition}"), self.tenant_partitions_flag()];
        self.start_node("owner", flags.into_iter().chain(self.setup.owner_flags.clone()))
    }

    fn start_query_node(&self, idx: usize) -> Result<Server> {
        let poll = self.setup.query_polls.get(idx).map(|poll| format!("--bucket.poll={}s", poll.as_secs()));
        let owners = format!("--owners=file://{}", self.owners_file().display());
        self.start_node("query", [owners].into_iter().chain(poll))
    }

    fn owners_file(&self) -> PathBuf {
        self.shared.path().join("owners")
    }

    fn start_node(&self, role: &str, flags: impl IntoIterator<Item = String>) -> Result<Server> {
        let own = [
            format!("--role={role}"),
            self.bucket_flag(),
            format!("--cluster.node-token-file={}", self.shared.path().join("token").display()),
            // Samples of now would keep a window open.
            "--self-scrape=off".to_owned(),
        ];
        let all = own.into_iter().chain(self.setup.node_flags.clone()).chain(flags);
        Server::start(Kind::Chronolith, &self.data, Setup::new(self.setup.series_count).own_flags(all))
    }

    fn log_flag(&self) -> String {
        format!("--log={}", self.setup.log)
    }

    fn tenant_partitions_flag(&self) -> String {
        format!("--log.tenant-partitions={}", self.setup.tenant_partitions)
    }

    fn bucket_flag(&self) -> String {
        format!("--bucket=file://{}", self.shared.path().join("bucket").display())
    }

    /// Runs `chronolith cluster` with arguments, and the addresses of log and bucket; returns what it prints.
    pub(super) fn tool(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(Kind::Chronolith.program()?);
        command.arg("cluster").args(args).args([self.log_flag(), self.bucket_flag()]);
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cluster {}: {}\n{text}{errors}", args.join(" "), output.status);
        Ok(text)
    }
}

/// Running nodes, each of which may be killed and started by any thread.
pub(super) struct Nodes {
    gateways: Vec<Mutex<Server>>,
    owners: RwLock<Vec<Arc<Owner>>>,
    queries: Vec<Mutex<Server>>,
    stores: Vec<Mutex<Server>>,
    /// Ports for writes.
    pub(super) gateway_ports: Vec<u16>,
    /// Ports for queries.
    pub(super) query_ports: Vec<u16>,
    /// Log and bucket, for tools.
    pub(super) site: Site,
}

/// An owner of a partition.
struct Owner {
    partition: usize,
    server: Mutex<Server>,
}

impl Owner {
    fn server(&self) -> MutexGuard<'_, Server> {
        lock(&self.server)
    }
}

impl Nodes {
    /// Starts all nodes and waits until they are ready.
    pub(super) fn start(data: &Path, setup: NodeSetup) -> Result<Nodes> {
        let mut nodes = Nodes {
            gateways: Vec::new(),
            owners: RwLock::default(),
            queries: Vec::new(),
            stores: Vec::new(),
            gateway_ports: Vec::new(),
            query_ports: Vec::new(),
            site: Site::new(data, setup)?,
        };
        for _ in 0..nodes.site.setup.gateway_count {
            let gateway = nodes.site.start_gateway()?;
            nodes.gateway_ports.push(gateway.port);
            nodes.gateways.push(Mutex::new(gateway));
        }
        for number in 0..nodes.site.setup.partition_count * nodes.site.setup.owners_per_partition {
            nodes.add_owner(number % nodes.site.setup.partition_count)?;
        }
        for idx in 0..nodes.site.setup.query_count {
            let query = nodes.site.start_query_node(idx)?;
            nodes.query_ports.push(query.port);
            nodes.queries.push(Mutex::new(query));
        }
        for _ in 0..nodes.site.setup.store_count {
            let flags = nodes.site.setup.store_flags.clone();
            let store = nodes.site.start_node("store", flags)?;
            nodes.stores.push(Mutex::new(store));
        }
        Ok(nodes)
    }

    /// Starts an owner of a partition and tells query nodes about it.
    pub(super) fn add_owner(&self, partition: usize) -> Result<()> {
        let server = self.site.start_owner(partition)?;
        let owner = Owner { partition, server: Mutex::new(server) };
        self.owners.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(owner));
        self.write_owners()
    }

    /// Stops the owners of a partition, and tells query nodes about it before.
    pub(super) fn remove_owners(&self, partition: usize) -> Result<()> {
        let mut removed = self.owners();
        removed.retain(|owner| owner.partition == partition);
        let mut owners = self.owners.write().unwrap_or_else(PoisonError::into_inner);
        owners.retain(|owner| owner.partition != partition);
        drop(owners);
        self.write_owners()?;
        removed.iter().try_for_each(|owner| owner.server().stop())
    }

    /// Owners of all partitions, in the order of their first start.
    fn owners(&self) -> Vec<Arc<Owner>> {
        self.owners.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the file with the addresses of owners.
    fn write_owners(&self) -> Result<()> {
        let address = |owner: &Arc<Owner>| format!("127.0.0.1:{}\n", owner.server().port);
        let text: String = self.owners().iter().map(address).collect();
        let file = self.site.owners_file();
        let next = file.with_extension("next");
        std::fs::write(&next, text)?;
        Ok(std::fs::rename(next, file)?)
    }

    /// Calls `act` with each process: gateways, owners, query nodes, then stores.
    fn for_each(&self, mut act: impl FnMut(&mut Server) -> Result<()>) -> Result<()> {
        self.gateways.iter().try_for_each(|node| act(&mut lock(node)))?;
        self.owners().iter().try_for_each(|owner| act(&mut owner.server()))?;
        self.queries.iter().chain(&self.stores).try_for_each(|node| act(&mut lock(node)))
    }

    /// CPU time of all gateways.
    pub(super) fn gateways_cpu(&self) -> Result<CpuSeconds> {
        cpu_of(&self.gateways)
    }

    /// CPU time of all owners.
    pub(super) fn owners_cpu(&self) -> Result<CpuSeconds> {
        self.owners().iter().try_fold(CpuSeconds::default(), |sum, owner| Ok(sum.plus(owner.server().cpu()?)))
    }

    /// Most memory of each gateway so far, together.
    pub(super) fn gateways_peak_bytes(&self) -> Result<f64> {
        peak_bytes_of(&self.gateways)
    }

    /// Most memory of each owner so far, together.
    pub(super) fn owners_peak_bytes(&self) -> Result<f64> {
        let peak = |owner: &Arc<Owner>| anyhow::Ok(owner.server().memory()?.peak_bytes as f64);
        self.owners().iter().try_fold(0.0, |sum, owner| Ok(sum + peak(owner)?))
    }

    /// Waits until the owners, one per partition, have applied this many samples since they were started.
    pub(super) fn wait_applied(&self, sample_count: usize, limit: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let mut applied = 0.0;
            for owner in self.owners() {
                let mut owner = owner.server();
                owner.check_alive()?;
                applied += owner.metric("owner_accepted_samples")?;
            }
            if applied as usize >= sample_count {
                return Ok(());
            }
            ensure!(start.elapsed() < limit, "{applied} of {sample_count} samples applied after {limit:?}");
            std::thread::sleep(POLL);
        }
    }

    /// Waits until all nodes are ready.
    pub(super) fn wait_ready(&self, limit: Duration) -> Result<()> {
        self.for_each(|node| {
            node.wait_for("being ready", POLL, limit, |node| Ok(node.is_ready().then_some(())))
        })
    }

    /// Waits until the query nodes know an owner of each partition that can be asked.
    pub(super) fn wait_asked(&self, limit: Duration) -> Result<()> {
        self.queries.iter().try_for_each(|node| {
            let look =
                |node: &Server| Ok((node.metric("owner_partitions_unavailable")? == 0.0).then_some(()));
            lock(node).wait_for("finding the owners", POLL, limit, look)
        })
    }

    /// Ends an owner and starts it again; waits until it is ready.
    pub(super) fn restart_owner(&self, idx: usize, end: OwnerEnd, limit: Duration) -> Result<CaughtUp> {
        let owner = self.owners().get(idx).cloned().with_context(|| format!("no owner with index {idx}"))?;
        let mut owner = owner.server();
        match end {
            OwnerEnd::Kill => owner.kill()?,
            OwnerEnd::LoseDirectory => {
                owner.kill()?;
                std::fs::remove_dir_all(owner.data_dir())?;
                std::fs::create_dir(owner.data_dir())?;
            }
            OwnerEnd::MoveDirectory => {
                owner.stop()?;
                owner.move_directory()?;
            }
        }
        let wall_s = owner.start_again(limit)?;
        let cpu_s = owner.cpu()?.total();
        Ok(CaughtUp { sample_count: owner.metric("owner_accepted_samples")?, wall_s, cpu_s })
    }

    /// CPU time of all query nodes.
    pub(super) fn queries_cpu(&self) -> Result<CpuSeconds> {
        cpu_of(&self.queries)
    }

    /// Bytes of answers of owners that all query nodes have received.
    pub(super) fn received_bytes(&self) -> Result<f64> {
        self.queries.iter().try_fold(0.0, |sum, node| Ok(sum + lock(node).metric("owner_received_bytes")?))
    }

    /// Stops each process as an operator does and starts it again, the next one once it is ready.
    pub(super) fn restart_all(&self, limit: Duration) -> Result<usize> {
        let mut count = 0;
        self.for_each(|node| {
            node.stop()?;
            node.start_again(limit)?;
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }

    /// Kills one of all nodes and starts it again, without waiting for it. `draw` may be any number.
    /// Returns counts of what it had done.
    pub(super) fn kill_and_start(&self, draw: usize) -> Result<Published> {
        let mut count = 0;
        self.for_each(|_| {
            count += 1;
            Ok(())
        })?;
        let mut idx = 0;
        let mut published = Published::default();
        self.for_each(|node| {
            if idx == draw % count {
                published = Published::of(node);
                node.kill()?;
                node.exec_again()?;
            }
            idx += 1;
            Ok(())
        })?;
        Ok(published)
    }

    /// Counts of the running processes.
    pub(super) fn published(&self) -> Published {
        let mut sum = Published::default();
        drop(self.for_each(|node| {
            sum.add(Published::of(node));
            Ok(())
        }));
        sum
    }

    /// Ends of all logs, for error messages.
    pub(super) fn log_tails(&self) -> String {
        let mut tails = String::new();
        drop(self.for_each(|node| {
            tails.push_str(&format!("port {}:\n{}\n", node.port, node.log_tail()));
            Ok(())
        }));
        tails
    }
}

fn lock(server: &Mutex<Server>) -> MutexGuard<'_, Server> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes of catalogues by nodes since their start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Published {
    /// Blocks of cuts, by owners.
    pub(super) cut_blocks: usize,
    /// Compactions, by processes with role store.
    pub(super) compactions: usize,
}

impl Published {
    /// Counts of a node; 0 if it does not answer.
    fn of(node: &Server) -> Published {
        let count = |name: &str| node.metric(name).map_or(0, |count| count as usize);
        Published { cut_blocks: count("owner_published_blocks"), compactions: count("bucket_compactions") }
    }

    pub(super) fn add(&mut self, other: Published) {
        self.cut_blocks += other.cut_blocks;
        self.compactions += other.compactions;
    }
}

fn cpu_of(servers: &[Mutex<Server>]) -> Result<CpuSeconds> {
    servers.iter().try_fold(CpuSeconds::default(), |sum, server| Ok(sum.plus(lock(server).cpu()?)))
}

fn peak_bytes_of(servers: &[Mutex<Server>]) -> Result<f64> {
    servers.iter().try_fold(0.0, |sum, server| Ok(sum + lock(server).memory()?.peak_bytes as f64))
}
