//! UDP listeners: datagrams become batches, in line protocol or as the protocol of the listener says.
//!
//! Invariants: the database exists before the first point is stored; datagrams wait in a bounded queue and
//! are dropped and counted beyond it, since their senders cannot wait.
//! Not here: the line protocol (`ingest`).

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::MemoryBudget;
use chronolith_ingest::line_protocol::{self, DecodeOptions, ParseReason, Precision, Refused};
use chronolith_model::databases::{BucketStoreId, CatalogChange};
use chronolith_model::{ReadContext, StoreId, TenantId, WriteBatch};
use chronolith_service::access::Identity;
use chronolith_service::activity::rejects::WriteSender;
use chronolith_service::options::UdpListener;
use chronolith_service::write::destination::Destination;
use chronolith_service::write::{OnePiece, TargetStore, WriteFailure, WriteTarget};
use chronolith_tsdb::{Tsdb, Writer};
use tokio::net::UdpSocket;
// Tokio's `channel` has a limit, unlike the function of the same name in the standard library.
use tokio::sync::mpsc::{self, channel as bounded_channel};
use tokio::sync::watch;

use crate::web::Web;

/// Largest datagram of UDP in bytes.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;
/// Datagrams that wait to be stored.
const QUEUE_COUNT_MAX: usize = 4096;
/// Bytes of datagrams that are stored together.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Longest wait of a gateway for the databases in the bucket, ns.
const CATALOG_WAIT_NS: u64 = 10_000_000_000;
/// Pause while the store is not open yet.
const OPENING_PAUSE: Duration = Duration::from_millis(100);

/// Storage of datagrams: the protocol of a listener.
pub(super) trait DatagramStore: Clone + Send + Sync + 'static {
    /// Name of the listener in logs.
    fn name(&self) -> &str;

    /// Returns true if datagrams of `sender` are stored; datagrams of others are dropped.
    fn admits(&self, sender: IpAddr) -> bool;

    /// Stores datagrams, with a newline between them; returns when they are durable. Blocks the thread.
    ///
    /// # Errors
    /// The text for the log.
    fn store(&self, web: &Web, store: &Destination, body: Vec<u8>) -> Result<(), String>;
}

/// Line protocol into a database.
#[derive(Clone)]
pub(super) struct LineProtocol(pub(super) UdpListener);

/// Listens until the stop.
pub(super) async fn listen(
    web: Arc<Web>,
    protocol: impl DatagramStore,
    socket: UdpSocket,
    mut closing: watch::Receiver<bool>,
) {
    let (sender, receiver) = bounded_channel(QUEUE_COUNT_MAX);
    let storing = tokio::spawn(store_all(web.clone(), protocol.clone(), receiver));
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let received = tokio::select! {
            _ = closing.changed() => break,
            received = socket.recv_from(&mut buffer) => received,
        };
        let metrics = &web.metrics.line_protocol;
        match received {
            Ok((_, sender)) if !protocol.admits(sender.ip()) => {}
            Ok((len, _)) => {
                metrics.datagrams.add(1);
                if sender.try_send(buffer[..len].to_vec()).is_err() {
                    metrics.datagrams_dropped.add(1);
                }
            }
            Err(error) => {
                metrics.datagrams_dropped.add(1);
                tracing::warn!(%error, "receiving a datagram failed");
                tokio::time::sleep(OPENING_PAUSE).await;
            }
        }
    }
    drop(sender);
    // Datagrams that were received are stored before the store closes.
    let _ = storing.await;
}

/// Returns the destination of points once it is open, also while the store is being closed.
pub(super) async fn opened(web: &Web) -> Destination {
    loop {
        let lifecycle = &web.service.lifecycle;
        if let Some(gateway) = lifecycle.roles.gateway() {
            return Destination::Log(gateway.clone());
        }
        match lifecycle.opened() {
            Some(store) => return Destination::Store(store.clone()),
            None => tokio::time::sleep(OPENING_PAUSE).await,
        }
    }
}

/// Stores datagrams in batches, until the queue is closed and empty.
async fn store_all(web: Arc<Web>, protocol: impl DatagramStore, mut receiver: mpsc::Receiver<Vec<u8>>) {
    while let Some(first) = receiver.recv().await {
        let mut body = first;
        while body.len() < BATCH_BYTES_MAX {
            let Ok(next) = receiver.try_recv() else { break };
            body.push(b'\n');
            body.extend_from_slice(&next);
        }
        let store = opened(&web).await;
        let shared = web.clone();
        let of = protocol.clone();
        let stored = tokio::task::spawn_blocking(move || of.store(&shared, &store, body)).await;
        let error = match stored {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(error) => error.to_string(),
        };
        tracing::warn!(error, listener = protocol.name(), "storing datagrams failed, their points are lost");
    }
}

impl DatagramStore for LineProtocol {
    fn name(&self) -> &str {
        &self.0.database
    }

    fn admits(&self, _sender: IpAddr) -> bool {
        true
    }

    fn store(&self, web: &Web, store: &Destination, body: Vec<u8>) -> Result<(), String> {
        let options = &self.0;
        let (target, id) = match store {
            Destination::Store(tsdb) => (target(tsdb, options)?, None),
            Destination::Log(_) => target_in_bucket(web, options)?,
        };
        let precision = Precision::of_write(&options.precision)?;
        let decode = DecodeOptions {
            line_bytes_max: web.service.options.influx.line_bytes_max,
            text_bytes_max: web.service.options.influx.text_bytes_max,
            ..DecodeOptions::new(precision, web.service.env.clock.now_ms().saturating_mul(1_000_000))
        };
        let tenant = TenantId::anonymous();
        let identity = Identity::internal(&tenant);
        let to = WriteTarget {
            identity: &identity,
            store: TargetStore::Policy { store: &target, id },
            writer: Writer::Client,
        };
        let mut writing = web.service.writes.begin(store, to);
        let mut refused = Refused::default();
        let mut decoder = OnePiece::new(|batch: &mut WriteBatch| {
            refused = line_protocol::decode(body, &decode, batch);
            Ok::<(), Infallible>(())
        });
        let applied = writing.apply(&web.service.writes.pools.line_protocol, &mut decoder);
        web.metrics.line_protocol.count(&refused);
        let sender =
            WriteSender { listener: Some(format!("udp {}", options.listen)), ..WriteSender::default() };
        let origin = web.service.writes.origin(&tenant, &sender);
        for (reason, count) in ParseReason::ALL.iter().zip(refused.unparsable) {
            let line = refused.messages.lines().next().unwrap_or("");
            web.service.writes.rejects.record_text(reason.label(), count, line, origin);
        }
        match applied {
            Ok(()) => {}
            Err(WriteFailure::Store(failure)) => return Err(failure.to_string()),
        }
        let outcome = writing.wait(|_| {}).map_err(|failure| failure.to_string())?.outcome;
        web.service.writes.record_outcome(&outcome, target.time_unit(), "", &tenant, &sender);
        Ok(())
    }
}

/// Returns the store of the listener's policy; creates the database if it does not exist.
fn target(store: &Tsdb, options: &UdpListener) -> Result<StoreId, String> {
    let tenant = TenantId::anonymous();
    let find = || {
        let catalog = store.databases().catalog();
        let database = catalog.of(&tenant).and_then(|own| own.database(&options.database))?;
        Some(database.policy(&options.policy).map(|policy| policy.store.clone()))
    };
    if find().is_none() {
        let change = CatalogChange::CreateDatabase { name: options.database.clone(), policy: None };
        store.databases().change(&tenant, &change).map_err(|error| error.to_string())?;
    }
    find().flatten().ok_or_else(|| format!("retention policy not found: {}", options.policy))
}

/// As [`target`] on a gateway, in the databases of the bucket.
fn target_in_bucket(web: &Web, options: &UdpListener) -> Result<(StoreId, Option<BucketStoreId>), String> {
    let sources = web.service.bucket.get().ok_or("the bucket is being opened")?;
    let tenant = TenantId::anonymous();
    let name = &options.database;
    let clock = web.service.env.clock.clone();
    let deadline_ns = clock.mono_ns().saturating_add(CATALOG_WAIT_NS);
    let ctx = ReadContext::new(clock, deadline_ns, MemoryBudget::new("databases", u64::MAX));
    let known = sources.databases_with(&tenant, name, &ctx).map_err(|error| error.to_string())?;
    let catalog = match known.database(name) {
        Some(_) => known,
        None => {
            let change = CatalogChange::CreateDatabase { name: name.clone(), policy: None };
            sources.change_databases(&tenant, &change).map_err(|error| error.to_string())?
        }
    };
    let policy = catalog.database(name).and_then(|database| database.policy(&options.policy));
    let policy = policy.ok_or_else(|| format!("retention policy not found: {}", options.policy))?;
    Ok((policy.store.clone(), policy.bucket_id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::Fixture;
    use crate::http::tests::cluster::Process;

    /// Sends datagrams to a listener, and returns what InfluxQL reads afterwards.
    async fn received(policy: &str, precision: &str, datagrams: &[&str], query: &str) -> String {
        let server = Fixture::ready();
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let address = socket.local_addr().expect("bound");
        let options = UdpListener {
            listen: address.to_string(),
            database: "udp".to_owned(),
            policy: policy.to_owned(),
            precision: precision.to_owned(),
        };
        let (stop, closing) = watch::channel(false);
        let listening = tokio::spawn(listen(server.web.clone(), LineProtocol(options), socket, closing));
        let sender = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        for datagram in datagrams {
            sender.send_to(datagram.as_bytes(), address).await.expect("is sent");
        }
        let metrics = &server.web.metrics.line_protocol;
        while (metrics.datagrams.as_f64() as usize) < datagrams.len() {
            tokio::task::yield_now().await;
        }
        stop.send(true).expect("listens");
        listening.await.expect("ends after all is stored");
        server.get(&format!("/query?db=udp&epoch=ns&q={query}")).await.text
    }

    #[tokio::test]
    async fn datagrams_are_stored_in_the_database_of_the_listener() {
        let datagrams = ["cpu,host=a v=1 1\nbad", "cpu,host=a v=2 2\n"];
        let found = received("", "s", &datagrams, "SELECT%20v%20FROM%20cpu").await;
        assert!(found.contains(r#""values":[[1000000000,1],[2000000000,2]]"#), "{found}");
        let found = received("autogen", "", &["m v=1 7"], "SELECT%20v%20FROM%20autogen.m").await;
        assert!(found.contains(r#""values":[[7,1]]"#), "{found}");
    }

    #[tokio::test]
    async fn datagrams_to_a_gateway_go_to_the_log() {
        let process = Process::started("gateway,owner").await;
        let listener = LineProtocol(UdpListener {
            listen: "127.0.0.1:0".to_owned(),
            database: "udp".to_owned(),
            policy: String::new(),
            precision: "s".to_owned(),
        });
        let web = process.server.web.clone();
        for (value, count) in [(1, 2), (2, 3)] {
            let (web, listener) = (web.clone(), listener.clone());
            let stored = tokio::task::spawn_blocking(move || {
                let destination = web.service.lifecycle.destination().expect("a gateway");
                listener.store(&web, &destination, format!("cpu,host=a v={value} {value}").into_bytes())
            });
            stored.await.expect("no panic").expect("stored");
            process.applied(count).await;
        }
        let found = process.server.get("/query?db=udp&epoch=ns&q=SELECT%20v%20FROM%20cpu").await.text;
        assert!(found.contains(r#""values":[[1000000000,1],[2000000000,2]]"#), "{found}");
    }

    #[tokio::test]
    async fn points_for_a_policy_that_is_missing_are_lost_and_counted() {
        let found = received("none", "", &["m v=1 7"], "SHOW%20MEASUREMENTS").await;
        assert_eq!(found.trim_end(), r#"{"results":[{"statement_id":0}]}"#);
    }
}
