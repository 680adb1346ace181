//! Tests of carbon listeners: bytes on a socket, and what PromQL reads afterwards.

mod allow;
mod not_stored;
mod tls;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UdpSocket;

use super::*;
use crate::http::tests::Fixture;
use crate::http::tests::NOW_MS;
use crate::options::ServerOptions;
use chronolith_base::Env;
use chronolith_ingest::carbon::RefusedReason;
use chronolith_model::TenantId;
use chronolith_service::options::{CarbonListener, CarbonProtocol};

/// A server with one carbon listener.
struct Carbon {
    server: Fixture,
    listener: Arc<Listener>,
    address: std::net::SocketAddr,
    stop: watch::Sender<bool>,
}

impl Carbon {
    async fn start(protocol: CarbonProtocol, prefix: &str) -> Carbon {
        let (env, _clock, _disk) = Env::fake(NOW_MS, 1);
        let options = ServerOptions::new("/data".into());
        Carbon::over(protocol, prefix, options, |options| Arc::new(Web::new(env, options, None))).await
    }

    /// Over the store that `web` opens with options that have the listener.
    async fn over(
        protocol: CarbonProtocol,
        prefix: &str,
        mut server: ServerOptions,
        web: impl FnOnce(ServerOptions) -> Arc<Web>,
    ) -> Carbon {
        let options = CarbonListener {
            listen: "127.0.0.1:0".to_owned(),
            protocol,
            tenant: TenantId::anonymous(),
            prefix: prefix.to_owned(),
        };
        server.service.write.carbon.listeners = vec![options.clone()];
        let server = Fixture::new(web(server)).open();
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let address = socket.local_addr().expect("bound");
        let input = server.web.service.carbon.of_listener(0);
        let listener = Arc::new(Listener::new(server.web.clone(), options, input));
        let (stop, closing) = watch::channel(false);
        tokio::spawn(accept(listener.clone(), socket, closing));
        Carbon { server, listener, address, stop }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("accepts")
    }

    /// Sends bytes on a connection of their own, and waits until the server has closed it.
    async fn send(&self, bytes: &[u8]) {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.expect("is read");
        stream.shutdown().await.expect("is open");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("is closed");
        assert_eq!(answer, b"", "nothing is written to senders");
    }

    /// Number of points that were appended.
    fn points(&self) -> usize {
        self.listener.input.points.as_f64() as usize
    }

    async fn wait_for_points(&self, count: usize) {
        while self.points() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Values of a selector at a time in seconds, as text.
    async fn read(&self, selector: &str, time_s: u64) -> String {
        let answer = self.server.get(&format!("/api/v1/query?query={selector}&time={time_s}")).await;
        answer.json()["data"]["result"].to_string()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_read_by_promql_and_bad_ones_refuse_themselves_alone() {
    let carbon = Carbon::start(CarbonProtocol::Plaintext, "").await;
    carbon.send(b"web.cpu;host=b;dc=a 2 1000\nbad\nweb..load 0.5 1000\r\nweb.last 7 1000").await;
    let found = carbon.read(r#"%7B__name__%3D%22web.cpu%22%7D"#, 1000).await;
    let expected = r#"[{"metric":{"__name__":"web.cpu","dc":"a","host":"b"},"value":[1000,"2"]}]"#;
    assert_eq!(found, expected);
    let found = carbon.read(r#"%7B__name__%3D~%22web.l.%2B%22%7D"#, 1000).await;
    assert!(found.contains("web.load") && found.contains("web.last"), "{found}");
    assert_eq!(carbon.listener.input.refused_count(RefusedReason::MissingValue), 1);
}

/// Checks that the last value of a time wins, and that no limit of the default store refuses its age.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_value_replaces_an_earlier_one_of_the_same_time() {
    let carbon = Carbon::start(CarbonProtocol::Plaintext, "site.").await;
    carbon.send(b"a 1 2000\na 2 1000\n").await;
    carbon.send(b"a 3 1000\na 4 9999999\n").await;
    assert!(carbon.read("%7B__name__%3D%22site.a%22%7D", 1000).await.contains(r#""3""#));
    assert!(carbon.read("%7B__name__%3D%22site.a%22%7D", 2000).await.contains(r#""1""#));
    assert!(carbon.read("%7B__name__%3D%22site.a%22%7D", 9_999_999).await.contains(r#""4""#));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_connection_is_read_without_waiting_for_its_end() {
    let carbon = Carbon::start(CarbonProtocol::Plaintext, "").await;
    let mut stream = carbon.connect().await;
    for (bytes, points) in [("a 1 10", 0), ("00\nb 1 1000\n", 2), ("c 1 1000\nd", 3)] {
        stream.write_all(bytes.as_bytes()).await.expect("is read");
        carbon.wait_for_points(points).await;
    }
    // The end of the connection ends its last line.
    stream.shutdown().await.expect("is open");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("is closed");
    assert_eq!(carbon.points(), 3);
    assert_eq!(carbon.listener.input.refused_count(RefusedReason::MissingValue), 1, "d has no value");
}

/// Covers a regression: a stop took the start of a line for a point, did not read the bytes that had arrived,
/// and closed connections in order, after which a relay's first write succeeds and is lost. They are reset
/// after their last whole line.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_reads_whole_lines_and_resets_connections() {
    let carbon = Carbon::start(CarbonProtocol::Plaintext, "").await;
    let mut stream = carbon.connect().await;
    let lines: String = (0..200_000).map(|n| format!("stop.m{n} {n} 1000\n")).collect();
    stream.write_all(lines.as_bytes()).await.expect("is read");
    stream.write_all(b"stop.cut 5 1000000").await.expect("is read");
    carbon.stop.send(true).expect("listens");
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer).await.map_err(|error| error.kind());
    assert_eq!(end, Err(io::ErrorKind::ConnectionReset));
    assert_eq!(carbon.points(), 200_000, "all that had arrived but the start of a line");
}

/// Covers a regression: carbon appended on threads of its own, however many writes of others waited.
#[tokio::test(flavor = "multi_thread")]
async fn points_wait_for_a_permit_as_other_writes_do() {
    let carbon = Carbon::start(CarbonProtocol::Plaintext, "").await;
    let tenant = TenantId::anonymous();
    let class = &carbon.server.web.service.admission.write_apply;
    let held: Vec<_> = std::iter::from_fn(|| class.try_acquire(&tenant, 0)).collect();
    let mut stream = carbon.connect().await;
    stream.write_all(b"waits 1 1000\n").await.expect("is read");
    while class.queue.waiting_of(&tenant) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(carbon.points(), 0);
    drop(held);
    carbon.wait_for_points(1).await;
}

/// Sends more bytes than one input has, in pieces that end anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn every_line_of_a_long_stream_is_a_point() {
    let carbon = Carbon::start(CarbonProtocol::Plaintext, "").await;
    let lines: String = (0..60_000).map(|n| format!("long.path.of.host.number.m{n} {n} 1000\n")).collect();
    carbon.send(lines.as_bytes()).await;
    assert_eq!(carbon.points(), 60_000);
    let count = "count(%7B__name__%3D~%22long.path.%2B%22%7D)";
    assert!(carbon.read(count, 1000).await.contains(r#""60000""#));
}

#[tokio::test(flavor = "multi_thread")]
async fn pickled_frames_are_points_and_one_that_is_too_long_ends_the_connection() {
    let carbon = Carbon::start(CarbonProtocol::Pickle, "").await;
    // pickle.dumps([("p.a", (1000, 1.5))], protocol=2)
    let frame =
        b"\x80\x02]q\x00X\x03\x00\x00\x00p.aq\x01M\xe8\x03G?\xf8\x00\x00\x00\x00\x00\x00\x86q\x02\x86q\x03a.";
    let mut bytes = (frame.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(frame);
    bytes.extend_from_slice(&u32::MAX.to_be_bytes());
    let mut stream = carbon.connect().await;
    stream.write_all(&bytes).await.expect("is read");
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer).await.map_err(|error| error.kind());
    assert_eq!(end, Err(io::ErrorKind::ConnectionReset));
    let found = carbon.read("%7B__name__%3D%22p.a%22%7D", 1000).await;
    assert!(found.contains(r#""1.5""#), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_are_lines() {
    let carbon = Carbon::start(CarbonProtocol::Plaintext, "").await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = socket.local_addr().expect("bound");
    let (stop, closing) = watch::channel(false);
    let lines = Datagrams(carbon.listener.clone());
    let listening = tokio::spawn(udp::listen(carbon.server.web.clone(), lines, socket, closing));
    let sender = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    for datagram in ["u.a 1 1000\nu.b 2 1000", "u.c 3 1000\n"] {
        sender.send_to(datagram.as_bytes(), address).await.expect("is sent");
    }
    carbon.wait_for_points(3).await;
    stop.send(true).expect("listens");
    listening.await.expect("ends after all is stored");
    let found = carbon.read("sum(%7B__name__%3D~%22u..%22%7D)", 1000).await;
    assert!(found.contains(r#""6""#), "{found}");
}

fn gzipped(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut encoder, text).expect("memory");
    encoder.finish().expect("memory")
}

impl Carbon {
    /// Example of the refused gzip streams.
    fn bad_gzip(&self) -> Option<String> {
        let newest = self.listener.input.newest_refused();
        newest
            .into_iter()
            .find(|refused| refused.reason == RefusedReason::BadGzip)
            .map(|refused| refused.text)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gzip_is_read_as_lines_in_pieces_and_several_members() {
    let carbon = Carbon::start(CarbonProtocol::Plaintext, "").await;
    let lines: String = (0..60_000).map(|n| format!("packed.path.m{n} {n} 1000\n")).collect();
    // The last line of the stream needs no newline, and one may begin in a member and end in the next.
    let stream = [gzipped(lines.as_bytes()), gzipped(b"packed.x 1 10"), gzipped(b"00\npacked.y 2 1000")];
    carbon.send(&stream.concat()).await;
    assert_eq!(carbon.points(), 60_002);
    let found = carbon.read("sum(%7B__name__%3D~%22packed..%22%7D)", 1000).await;
    assert!(found.contains(r#""3""#), "{found}");
    let mut connection = carbon.connect().await;
    for piece in gzipped(b"split.a 1 1000\nsplit.b 2 1000\n").chunks(1) {
        connection.write_all(piece).await.expect("is read");
        connection.flush().await.expect("is open");
        tokio::task::yield_now().await;
    }
    carbon.wait_for_points(60_004).await;
    assert_eq!(carbon.bad_gzip(), None);
    assert_eq!(carbon.listener.input.gzip_connections.as_f64(), 2.0);
}

/// Checks that a connection may begin with the first byte of gzip and go on without the second.
#[tokio::test(flavor = "multi_thread")]
async fn one_byte_of_gzip_is_a_line() {
    let carbon = Carbon::start(CarbonProtocol::Plaintext, "").await;
    carbon.send(b"\x1f").await;
    carbon.send(b"\x1fa 1 1000\nb 2 1000\n").await;
    assert_eq!(carbon.points(), 2, "1f is a blank");
    assert_eq!(carbon.listener.input.gzip_connections.as_f64(), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_gzip_ends_the_connection_and_keeps_the_lines_before_it() {
    let carbon = Carbon::start(CarbonProtocol::Plaintext, "").await;
    let mut damaged = [gzipped(b"kept.a 1 1000\nkept.b 2 1000\ncut 3 10"), b"\x1f\x8b\x07".to_vec()].concat();
    damaged.extend_from_slice(&gzipped(b"lost 1 1000\n"));
    let mut stream = carbon.connect().await;
    stream.write_all(&damaged).await.expect("is read");
    let mut answer = Vec::new();
    // The server closes it; what it has not read resets the connection.
    drop(stream.read_to_end(&mut answer).await);
    assert_eq!(answer, b"");
    assert_eq!(carbon.points(), 2, "neither the cut line nor those after the damage");
    assert_eq!(carbon.listener.input.refused_count(RefusedReason::BadGzip), 1);
    assert_eq!(carbon.bad_gzip().as_deref(), Some("gzip member 2: expected the bytes 1f 8b 08 at its start"));
    let cut = gzipped(b"kept.c 3 1000\ncut 1 1000\n");
    for bytes in [&cut[..cut.len() - 1], b"\x1f\x8b\x08"] {
        let mut stream = carbon.connect().await;
        stream.write_all(bytes).await.expect("is read");
        stream.shutdown().await.expect("is open");
        let end = stream.read_to_end(&mut answer).await.map_err(|error| error.kind());
        assert_eq!(end, Err(io::ErrorKind::ConnectionReset));
    }
    assert_eq!(carbon.listener.input.refused_count(RefusedReason::BadGzip), 3);
    assert_eq!(carbon.bad_gzip().as_deref(), Some("gzip member 1: the stream ends within it"));
    let refused = carbon.server.get("/api/v1/graphite/refused?reason=bad_gzip").await;
    assert!(refused.json().to_string().contains("the stream ends within it"));
}

/// Sends 64 MiB of zeros, which are 64 KiB of gzip and one line that is too long; the line after it is a
/// point.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_gzip_that_does_not_end_is_refused_once() {
    let carbon = Carbon::start(CarbonProtocol::Plaintext, "").await;
    let mut text = vec![0; 64 << 20];
    text.extend_from_slice(b"\nafter 1 1000\n");
    carbon.send(&gzipped(&text)).await;
    assert_eq!(carbon.points(), 1);
    assert_eq!(carbon.listener.input.refused_count(RefusedReason::LineTooLong), 1);
}
