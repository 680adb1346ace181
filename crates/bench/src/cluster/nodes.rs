//! Processes of a cluster on this machine: gateways, owners, query nodes, and a bucket in a directory.
//!
//! Invariant: all processes end with this one.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::proc::CpuSeconds;
use crate::server::{Kind, Server, Setup};

const POLL: Duration = Duration::from_millis(20);

/// Options of the nodes.
pub(super) struct NodeSetup {
    /// Address of the log, which the first gateway creates.
    pub(super) log: String,
    /// Partitions of the log, at least one.
    pub(super) partition_count: usize,
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
    /// Other options of owners.
    pub(super) owner_flags: Vec<String>,
    /// Age from which each query node reads the catalogue again; one without an entry has the default.
    pub(super) query_polls: Vec<Duration>,
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

/// Running nodes, each of which may be killed and started by any thread.
pub(super) struct Nodes {
    gateways: Vec<Mutex<Server>>,
    owners: Vec<Mutex<Server>>,
    queries: Vec<Mutex<Server>>,
    /// Ports for writes.
    pub(super) gateway_ports: Vec<u16>,
    /// Ports for queries.
    pub(super) query_ports: Vec<u16>,
    /// Flags with log and bucket, for tools.
    tool_flags: [String; 2],
    /// Bucket and token; removed at the end.
    _shared: tempfile::TempDir,
}

impl Nodes {
    /// Starts all nodes and waits until they are ready.
    pub(super) fn start(data: &Path, setup: NodeSetup) -> Result<Nodes> {
        let shared = tempfile::tempdir_in(data)?;
        let bucket_dir = shared.path().join("bucket");
        std::fs::create_dir(&bucket_dir)?;
        let token = shared.path().join("token");
        std::fs::write(&token, "bench-of-the-nodes-0123456789abcdef\n")?;
        let common = [
            format!("--bucket=file://{}", bucket_dir.display()),
            format!("--cluster.node-token-file={}", token.display()),
            // Samples of now would keep a window open.
            "--self-scrape=off".to_owned(),
        ];
        let log = format!("--log={}", setup.log);
        let start = |flags: Vec<String>| {
            let flags: Vec<String> = common.iter().cloned().chain(flags).collect();
            Server::start(Kind::Chronolith, data, Setup::new(setup.series_count).own_flags(flags))
        };
        let partition_count = setup.partition_count;
        let gateway_flags = [
            "--role=gateway".to_owned(),
            log.clone(),
            format!("--log.compression={}", setup.compression),
            format!("--log.create-topic={partition_count}:{}", setup.replication_factor),
            format!("--log.tenant-partitions={partition_count}"),
        ];
        let mut gateways = Vec::new();
        for _ in 0..setup.gateway_count {
            gateways.push(start(gateway_flags.to_vec())?);
        }
        let mut owners = Vec::new();
        for number in 0..partition_count * setup.owners_per_partition {
            let partition = format!("--owner.partition={}", number % partition_count);
            let flags = ["--role=owner".to_owned(), log.clone(), partition];
            owners.push(start(flags.into_iter().chain(setup.owner_flags.iter().cloned()).collect())?);
        }
        let addresses: Vec<String> = owners.iter().map(|owner| format!("127.0.0.1:{}", owner.port)).collect();
        let addresses = format!("--owners={}", addresses.join(","));
        let mut queries = Vec::new();
        for idx in 0..setup.query_count {
            let poll = setup.query_polls.get(idx).map(|poll| format!("--bucket.poll={}s", poll.as_secs()));
            let flags = ["--role=query".to_owned(), addresses.clone()];
            queries.push(start(flags.into_iter().chain(poll).collect())?);
        }
        let ports = |servers: &[Server]| servers.iter().map(|server| server.port).collect();
        Ok(Nodes {
            gateway_ports: ports(&gateways),
            query_ports: ports(&queries),
            gateways: gateways.into_iter().map(Mutex::new).collect(),
            owners: owners.into_iter().map(Mutex::new).collect(),
            queries: queries.into_iter().map(Mutex::new).collect(),
            tool_flags: [log, common[0].clone()],
            _shared: shared,
        })
    }

    fn all(&self) -> impl Iterator<Item = MutexGuard<'_, Server>> {
        self.gateways.iter().chain(&self.owners).chain(&self.queries).map(lock)
    }

    /// CPU time of all gateways.
    pub(super) fn gateways_cpu(&self) -> Result<CpuSeconds> {
        cpu_of(&self.gateways)
    }

    /// CPU time of all owners.
    pub(super) fn owners_cpu(&self) -> Result<CpuSeconds> {
        cpu_of(&self.owners)
    }

    /// Most memory of each gateway so far, together.
    pub(super) fn gateways_peak_bytes(&self) -> Result<f64> {
        peak_bytes_of(&self.gateways)
    }

    /// Most memory of each owner so far, together.
    pub(super) fn owners_peak_bytes(&self) -> Result<f64> {
        peak_bytes_of(&self.owners)
    }

    /// Waits until the owners, one per partition, have applied this many samples since they were started.
    pub(super) fn wait_applied(&self, sample_count: usize, limit: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let mut applied = 0.0;
            for owner in &self.owners {
                let mut owner = lock(owner);
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
        self.all().try_for_each(|mut node| {
            node.wait_for("being ready", POLL, limit, |node| Ok(node.is_ready().then_some(())))
        })
    }

    /// Kills an owner and starts it again over its directory; returns the seconds until it is ready.
    pub(super) fn kill_and_start_owner(&self, idx: usize, limit: Duration) -> Result<f64> {
        let mut owner = lock(&self.owners[idx]);
        owner.kill()?;
        owner.start_again(limit)
    }

    /// Kills an owner, removes its directory, and starts it: it reads the log from the offset of the bucket.
    pub(super) fn start_owner_without_directory(&self, idx: usize, limit: Duration) -> Result<CaughtUp> {
        let mut owner = lock(&self.owners[idx]);
        owner.kill()?;
        std::fs::remove_dir_all(owner.data_dir())?;
        std::fs::create_dir(owner.data_dir())?;
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

    /// Kills one of all nodes and starts it again, without waiting for it. `draw` may be any number.
    /// Returns the blocks that it had published.
    pub(super) fn kill_and_start(&self, draw: usize) -> Result<usize> {
        let count = self.gateways.len() + self.owners.len() + self.queries.len();
        let node = self.all().nth(draw % count);
        let Some(mut node) = node else { return Ok(0) };
        let blocks = blocks_of(&node);
        node.kill()?;
        node.exec_again().map(|_| blocks)
    }

    /// Blocks that running owners have published.
    pub(super) fn published_blocks(&self) -> usize {
        self.owners.iter().map(|owner| blocks_of(&lock(owner))).sum()
    }

    /// Checks with `chronolith cluster verify` that each record is in a live block or is read by owners;
    /// returns its summary.
    pub(super) fn verify_log(&self) -> Result<String> {
        let mut command = Command::new(Kind::Chronolith.program()?);
        command.args(["cluster", "verify"]).args(&self.tool_flags);
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cluster verify: {}\n{text}{errors}", output.status);
        Ok(text)
    }

    /// Ends of all logs, for error messages.
    pub(super) fn log_tails(&self) -> String {
        self.all().map(|node| format!("port {}:\n{}\n", node.port, node.log_tail())).collect()
    }
}

fn lock(server: &Mutex<Server>) -> MutexGuard<'_, Server> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks that a node has published since its start; 0 if it does not answer.
fn blocks_of(node: &Server) -> usize {
    node.metric("owner_published_blocks").map_or(0, |count| count as usize)
}

fn cpu_of(servers: &[Mutex<Server>]) -> Result<CpuSeconds> {
    servers.iter().try_fold(CpuSeconds::default(), |sum, server| Ok(sum.plus(lock(server).cpu()?)))
}

fn peak_bytes_of(servers: &[Mutex<Server>]) -> Result<f64> {
    servers.iter().try_fold(0.0, |sum, server| Ok(sum + lock(server).memory()?.peak_bytes as f64))
}
