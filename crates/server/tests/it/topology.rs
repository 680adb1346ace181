//! Processes that tests write to and read from: a server with its WAL, gateway and owner of the only
//! partition of a log in a directory, or these with a query node that answers reads.
//!
//! Invariant: a read with [`STRONG`] sees every write that was acknowledged before, in each of them.
//! Not here: gateway and owner as processes of their own (`kits/cluster`), since one process has the log.
#![expect(clippy::disallowed_methods, reason = "waits for real servers")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chronolith_base::Env;
use chronolith_cluster::options::{LogAddress, LogOptions, NewTopic, PartitionChoice};
use chronolith_server::{RunError, Server, ServerOptions};
use chronolith_tsdb::BucketOptions;

/// Header of a read that waits until the owner has applied its partition; a server with its WAL passes it
/// over.
pub(crate) const STRONG: &str = "X-Chronolith-Read-Consistency: strong";
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Age of the databases of a tenant from which a process reads them again.
const BUCKET_POLL: Duration = Duration::from_millis(50);

/// Place of the samples until they are in blocks, and the process that answers reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topology {
    /// A server with its WAL.
    Single,
    /// Gateway and owner in one process, over a log in a directory.
    DirLog,
    /// Gateway, owner, and a query node.
    QueryNode,
}

/// Running servers.
pub(crate) struct TestServers {
    writer: Server,
    query_node: Option<Server>,
}

impl Topology {
    pub(crate) const ALL: [Topology; 3] = [Topology::Single, Topology::DirLog, Topology::QueryNode];

    /// Starts servers over `dir`, and waits until they take writes and answer queries.
    ///
    /// # Errors
    /// The text of the error of a server that does not start.
    pub(crate) fn try_start(
        self,
        dir: &Path,
        change: impl FnOnce(&mut ServerOptions),
    ) -> Result<TestServers, String> {
        let mut options = options_over(dir.join("data"));
        change(&mut options);
        if self != Topology::Single {
            let bucket = dir.join("bucket");
            Env::real().disk.create_dir_all(&bucket).expect("a directory");
            std::fs::write(dir.join("token"), "token-of-the-nodes-1\n").expect("written");
            set_roles(&mut options, dir);
        }
        let writer = started(options).map_err(|error| error.to_string())?;
        if let Err(error) = writer.wait_ready() {
            writer.stop().expect("stops without a store");
            return Err(error.to_string());
        }
        wait_for_200(writer.address(), "/-/ready");
        let query_node = (self == Topology::QueryNode).then(|| start_query_node(dir, writer.address()));
        Ok(TestServers { writer, query_node })
    }

    /// As [`Topology::try_start`], for servers that start.
    pub(crate) fn start(self, dir: &Path, change: impl FnOnce(&mut ServerOptions)) -> TestServers {
        self.try_start(dir, change).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

impl TestServers {
    /// Address of writes.
    pub(crate) fn writer(&self) -> SocketAddr {
        self.writer.address()
    }

    /// Address of reads.
    pub(crate) fn reader(&self) -> SocketAddr {
        self.query_node.as_ref().unwrap_or(&self.writer).address()
    }

    pub(crate) fn stop(self) {
        if let Some(node) = self.query_node {
            node.stop().expect("the query node stops");
        }
        self.writer.stop().expect("stops");
    }
}

fn options_over(data_dir: PathBuf) -> ServerOptions {
    let mut options = ServerOptions::new(data_dir);
    options.listen = "127.0.0.1:0".to_owned();
    options.self_scrape_interval_ms = 0;
    options
}

fn bucket_of(dir: &Path) -> BucketOptions {
    let mut bucket = BucketOptions::new(&format!("file://{}", dir.join("bucket").display()));
    bucket.catalog.poll = BUCKET_POLL;
    bucket
}

fn set_roles(options: &mut ServerOptions, dir: &Path) {
    let mut log = LogOptions::new(LogAddress::Dir(dir.join("log")));
    log.new_topic = Some(NewTopic { partition_count: 1, replication_factor: 1 });
    let cluster = &mut options.service.cluster;
    cluster.roles = "gateway,owner".parse().expect("roles");
    cluster.log = Some(log);
    cluster.owner.partition = Some(PartitionChoice::Number(0));
    options.bucket = Some(bucket_of(dir));
    options.nodes.token_file = Some(dir.join("token"));
}

fn start_query_node(dir: &Path, owner: SocketAddr) -> Server {
    let mut options = options_over(dir.join("query"));
    options.service.cluster.roles = "query".parse().expect("a role");
    options.bucket = Some(BucketOptions { is_read_only: true, ..bucket_of(dir) });
    options.nodes.token_file = Some(dir.join("token"));
    options.nodes.owners = Some(owner.to_string().parse().expect("an address"));
    let node = started(options).expect("the query node starts");
    node.wait_ready().expect("opens");
    // A query is answered once owners have been looked up.
    wait_for_200(node.address(), "/api/v1/query?query=up");
    node
}

fn started(options: ServerOptions) -> Result<Server, RunError> {
    Server::start(Env::real(), options, None)
}

fn wait_for_200(address: SocketAddr, path: &str) {
    let start = Instant::now();
    while status_of(address, path) != "200" {
        assert!(start.elapsed() < READY_WITHIN, "{address}{path} is not 200");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn status_of(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(READY_WITHIN)).expect("timeout");
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).unwrap_or("").to_owned()
}
