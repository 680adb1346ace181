//! Calls over sockets: failures, slow owners, cut answers, deadlines, queries that end.

use std::path::Path;

use chronolith_base::{Disk as _, Env, MemDisk, MemoryBudget, SystemClock};
use chronolith_cluster::peers::{NodeLookup, NodeReport, OwnerDirectory, PartitionReport};
use chronolith_cluster::{PartitionId, TopicId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::*;
use crate::options::NodeOptions;
use crate::peers::token::NodeToken;

const TOKEN: &str = "token-of-the-nodes-1";

/// Behaviour of an owner.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Behaviour {
    /// Answers with these bytes.
    Answers(&'static str),
    /// Answers with a status and a text.
    Refuses(u16, &'static str),
    /// Announces ten bytes more than it sends.
    EndsEarly(&'static str),
    /// Sends nothing until the connection ends.
    Hangs,
    /// Sends parts without an end.
    NeverEnds,
}

/// Owner on a port of its own.
struct Fake {
    address: String,
    /// Requests so far, and connections that the other side has closed.
    counts: watch::Receiver<(usize, usize)>,
}

impl Fake {
    async fn start(behaviour: Behaviour) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (changed, counts) = watch::channel((0, 0));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, behaviour, changed.clone()));
            }
        });
        Fake { address, counts }
    }

    async fn wait(&self, reached: impl Fn(usize, usize) -> bool) {
        let mut counts = self.counts.clone();
        let waited = counts.wait_for(|(requests, closed)| reached(*requests, *closed));
        timeout(Duration::from_secs(60), waited).await.expect("in time").expect("the owner runs");
    }
}

async fn serve(mut stream: TcpStream, behaviour: Behaviour, changed: watch::Sender<(usize, usize)>) {
    loop {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\ncall") {
            let mut part = [0; 1024];
            match stream.read(&mut part).await {
                Ok(count) if count > 0 => request.extend_from_slice(&part[..count]),
                _ => {
                    changed.send_modify(|(_, closed)| *closed += 1);
                    return;
                }
            }
        }
        let text = String::from_utf8_lossy(&request).to_lowercase();
        assert!(text.starts_with("post /internal/v1/select http/1.1\r\n"), "{text}");
        assert!(text.contains(&format!("authorization: bearer {TOKEN}\r\n")), "{text}");
        changed.send_modify(|(requests, _)| *requests += 1);
        let response = |status: u16, len: usize, body: &str| {
            format!("HTTP/1.1 {status} X\r\ncontent-length: {len}\r\n\r\n{body}")
        };
        let text = match behaviour {
            Behaviour::Answers(body) => response(200, body.len(), body),
            Behaviour::Refuses(status, body) => response(status, body.len(), body),
            Behaviour::EndsEarly(body) => {
                let text = response(200, body.len() + 10, body);
                stream.write_all(text.as_bytes()).await.expect("sent");
                return;
            }
            Behaviour::Hangs => continue,
            Behaviour::NeverEnds => {
                let mut text = response(200, usize::MAX >> 1, "");
                while stream.write_all(text.as_bytes()).await.is_ok() {
                    text = "x".repeat(64 << 10);
                }
                changed.send_modify(|(_, closed)| *closed += 1);
                return;
            }
        };
        stream.write_all(text.as_bytes()).await.expect("sent");
    }
}

/// Lookup of ready owners of partition 3.
struct Ready(Vec<String>);

impl NodeLookup for Ready {
    fn addresses(&self) -> Result<Vec<String>, String> {
        Ok(self.0.clone())
    }

    fn reports(&self, addresses: &[String]) -> Vec<Result<NodeReport, String>> {
        let own = PartitionReport {
            partition: PartitionId(3),
            next_offset: Some(1),
            not_ready: None,
            is_log_away: false,
            progress: None,
            series: Vec::new(),
        };
        let report = NodeReport { topic: TopicId([1; 16]), partitions: vec![own] };
        addresses.iter().map(|_| Ok(report.clone())).collect()
    }
}

struct Fixture {
    calls: Calls,
    directory: OwnerDirectory,
}

impl Fixture {
    /// Calls to owners of partition 3, of which the first one is asked first.
    fn new(addresses: &[&str]) -> Fixture {
        let disk = MemDisk::new();
        let put = |path: &str, text: &str| {
            disk.create_dir_all(Path::new("/secrets")).expect("a directory");
            let file = disk.create(Path::new(path)).expect("a file");
            file.write_at(text.as_bytes(), 0).expect("written");
        };
        put("/secrets/node", TOKEN);
        let token = NodeToken::read(Path::new("/secrets/node"), &disk).expect("a token");
        let client = NodeClient::new(&NodeOptions::default(), &token, &disk).expect("a client");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let calls = Calls {
            client: Arc::new(client),
            counters: Arc::new(PeerCounters::default()),
            clock: clock.clone(),
            runtime: Handle::current(),
        };
        let directory = OwnerDirectory::new(clock);
        directory.refresh(&Ready(addresses.iter().map(|one| (*one).to_owned()).collect()));
        // Nodes are sorted by address; all but the first one have failed, and so come last.
        let owners = directory.owners_of(PartitionId(3));
        let others = owners.asked().iter().filter(|node| node.address() != addresses[0]);
        others.for_each(|node| node.note_failure());
        Fixture { calls, directory }
    }

    /// Sends a call and reads its answer on a thread that may wait.
    async fn read(&self, ctx: ReadContext) -> Result<String, QueryError> {
        let transport = PartitionTransport::new(self.calls.clone(), self.directory.owners_of(PartitionId(3)));
        let read = move || {
            let mut stream = transport.send(b"call".to_vec(), &ctx);
            let mut text = Vec::new();
            while let Some(mut part) = stream.next_bytes(&ctx)? {
                text.append(&mut part);
            }
            Ok(String::from_utf8(text).expect("a text"))
        };
        tokio::task::spawn_blocking(read).await.expect("no panic")
    }
}

fn ctx() -> ReadContext {
    ReadContext::unlimited(Env::real().clock)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_read_over_connections_that_are_kept() {
    let owner = Fake::start(Behaviour::Answers("an answer")).await;
    let fixture = Fixture::new(&[&owner.address]);
    for _ in 0..3 {
        assert_eq!(fixture.read(ctx()).await.expect("an answer"), "an answer");
    }
    assert_eq!(*owner.counts.borrow(), (3, 0), "no connection was closed");
    assert_eq!((fixture.calls.counters.complete.get(), fixture.calls.counters.failed.get()), (3, 0));
    assert_eq!(fixture.calls.counters.received_bytes.get(), 27);
}

/// Covers an error that had the cause alone: an operator of 30 owners could not tell which one it was.
#[tokio::test(flavor = "multi_thread")]
async fn errors_name_the_owners_and_not_the_token() {
    let refusing = Fake::start(Behaviour::Refuses(401, "another node token")).await;
    let fixture = Fixture::new(&[&refusing.address, "127.0.0.1:1"]);
    let error = fixture.read(ctx()).await.expect_err("nobody answers").to_string();
    let address = &refusing.address;
    let want =
        format!("{address}: status 401: another node token; 127.0.0.1:1: Connection refused (os error 111)");
    assert_eq!(error, want);
    assert!(!error.contains(TOKEN));
    let transport =
        PartitionTransport::new(fixture.calls.clone(), fixture.directory.owners_of(PartitionId(3)));
    assert!(transport.node().contains(address.as_str()) && transport.node().ends_with("(partition 3)"));
    let none = Fixture::new(&["127.0.0.1:1"]);
    none.directory.refresh(&Ready(Vec::new()));
    let error = none.read(ctx()).await.expect_err("no owner").to_string();
    assert_eq!(error, "no owner of the partition is known");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_owner_is_asked_after_a_failure() {
    let owner = Fake::start(Behaviour::Answers("of the second")).await;
    for behaviour in [Behaviour::Refuses(503, "too many selects"), Behaviour::Refuses(409, "version")] {
        let failing = Fake::start(behaviour).await;
        let fixture = Fixture::new(&[&failing.address, &owner.address]);
        assert_eq!(fixture.read(ctx()).await.expect("an answer"), "of the second", "{behaviour:?}");
        assert_eq!(fixture.calls.counters.hedges.get(), 0);
    }
    let fixture = Fixture::new(&["127.0.0.1:1", &owner.address]);
    assert_eq!(fixture.read(ctx()).await.expect("an answer"), "of the second");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_owner_is_asked_when_the_first_one_is_slow() {
    let slow = Fake::start(Behaviour::Hangs).await;
    let owner = Fake::start(Behaviour::Answers("of the second")).await;
    let fixture = Fixture::new(&[&slow.address, &owner.address]);
    assert_eq!(fixture.read(ctx()).await.expect("an answer"), "of the second");
    let counters = &fixture.calls.counters;
    assert_eq!((counters.hedges.get(), counters.hedge_wins.get(), counters.complete.get()), (1, 1, 1));
    // The slow one need not go on.
    slow.wait(|requests, closed| requests == 1 && closed == 1).await;
}

/// Covers a killed owner: a body that ended early looked like its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_answer_is_an_error() {
    let owner = Fake::start(Behaviour::EndsEarly("a part")).await;
    let fixture = Fixture::new(&[&owner.address]);
    let error = fixture.read(ctx()).await.expect_err("cut").to_string();
    assert!(error.starts_with(&format!("{}: ", owner.address)), "{error}");
    assert_eq!(fixture.calls.counters.failed.get(), 1);
    let owners = fixture.directory.owners_of(PartitionId(3));
    assert_eq!(owners.asked().len(), 1, "a failed owner is asked again if there is no other");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_ends_with_the_time_and_with_the_query() {
    let owner = Fake::start(Behaviour::Hangs).await;
    let fixture = Fixture::new(&[&owner.address]);
    let clock = Env::real().clock;
    let deadline_ns = clock.mono_ns() + 50_000_000;
    let budget = MemoryBudget::new("query", u64::MAX);
    let expired = ReadContext::new(clock, deadline_ns, budget.clone());
    assert!(matches!(fixture.read(expired).await, Err(QueryError::Timeout)));
    owner.wait(|_, closed| closed == 1).await;
    let endless = Fake::start(Behaviour::NeverEnds).await;
    let fixture = Fixture::new(&[&endless.address]);
    let transport =
        PartitionTransport::new(fixture.calls.clone(), fixture.directory.owners_of(PartitionId(3)));
    let read = move || {
        let ctx = ReadContext::new(Env::real().clock, u64::MAX, budget.clone());
        let mut stream = transport.send(b"call".to_vec(), &ctx);
        assert!(budget.used_bytes() >= STREAM_BYTES_MAX as u64, "what may wait is reserved");
        for _ in 0..100 {
            assert!(stream.next_bytes(&ctx).expect("a part").is_some());
        }
        drop(stream);
        assert_eq!(budget.used_bytes(), 0);
    };
    tokio::task::spawn_blocking(read).await.expect("no panic");
    endless.wait(|_, closed| closed == 1).await;
    let none = ReadContext::new(Env::real().clock, u64::MAX, MemoryBudget::new("query", 1000));
    let error = fixture.read(none).await.expect_err("no memory");
    assert!(matches!(error, QueryError::Memory(_)), "{error}");
    assert_eq!(endless.counts.borrow().0, 1, "nothing was sent");
}
