//! Connections whose points are not stored: they never end like one whose points are durable.

use std::net::SocketAddr;

use chronolith_base::disk::MemDisk;
use chronolith_model::TenantLimits;
use chronolith_tsdb::{HeadMemory, LimitsTable};

use super::*;

/// Connections of one refusal.
const CONNECTION_COUNT: usize = 1_000;
/// Connections that are open at the same time.
const OPEN_MAX: usize = 50;
/// Points of one connection.
const POINT_COUNT: usize = 3;
/// Points that an ingestion rate of one point per second lets pass at first.
const BURST: u64 = 10;

/// End of a connection as its sender sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SeenEnd {
    Fin,
    Reset,
}

/// Bytes of a connection in each protocol.
#[derive(Debug, Clone, Copy)]
enum Sent {
    Lines,
    Gzip,
    Pickle,
}

fn bytes_of(sent: Sent, number: usize) -> Vec<u8> {
    let lines: String = (0..POINT_COUNT).map(|n| format!("c{number}.m{n} {n} 1000\n")).collect();
    match sent {
        Sent::Lines => lines.into_bytes(),
        Sent::Gzip => gzipped(lines.as_bytes()),
        Sent::Pickle => (0..POINT_COUNT).flat_map(|n| frame_of(&format!("c{number}.m{n}"))).collect(),
    }
}

/// A frame with one point: `pickle.dumps([(path, (1000, 1.5))], protocol=2)`.
fn frame_of(path: &str) -> Vec<u8> {
    let mut pickle = b"\x80\x02]q\x00X".to_vec();
    pickle.extend_from_slice(&(path.len() as u32).to_le_bytes());
    pickle.extend_from_slice(path.as_bytes());
    pickle.extend_from_slice(b"q\x01M\xe8\x03G?\xf8\x00\x00\x00\x00\x00\x00\x86q\x02\x86q\x03a.");
    [&(pickle.len() as u32).to_be_bytes(), pickle.as_slice()].concat()
}

/// Sends bytes on a connection of their own and returns how it ends.
async fn end_of(address: SocketAddr, bytes: Vec<u8>) -> SeenEnd {
    let mut stream = TcpStream::connect(address).await.expect("accepts");
    let mut answer = Vec::new();
    let sent = async {
        stream.write_all(&bytes).await?;
        stream.shutdown().await?;
        stream.read_to_end(&mut answer).await
    };
    let end = if sent.await.is_ok() { SeenEnd::Fin } else { SeenEnd::Reset };
    assert_eq!(answer, b"", "nothing is written to senders");
    end
}

/// Sends the points of many connections; returns how many ended in order.
async fn count_fins(carbon: &Carbon, sent: &[Sent]) -> usize {
    let mut fin_count = 0;
    let mut running = tokio::task::JoinSet::new();
    for number in 0..CONNECTION_COUNT {
        if running.len() == OPEN_MAX {
            let end = running.join_next().await.expect("runs").expect("no panic");
            fin_count += usize::from(end == SeenEnd::Fin);
        }
        running.spawn(end_of(carbon.address, bytes_of(sent[number % sent.len()], number)));
    }
    for end in running.join_all().await {
        fin_count += usize::from(end == SeenEnd::Fin);
    }
    fin_count
}

/// A server with one listener over a disk that can fail.
async fn start(protocol: CarbonProtocol, change: fn(&mut ServerOptions, &MemDisk)) -> (Carbon, Arc<MemDisk>) {
    let (env, _clock, disk) = Env::fake(NOW_MS, 1);
    let mut options = ServerOptions::new("/data".into());
    change(&mut options, &disk);
    let carbon = Carbon::over(protocol, "", options, |options| Arc::new(Web::new(env, options, None))).await;
    (carbon, disk)
}

/// A refusal of the store: its name, and what brings it about.
type Refusal = (&'static str, fn(&mut ServerOptions, &MemDisk), fn(&MemDisk));

const REFUSALS: [Refusal; 5] = [
    (
        "head-memory-limit",
        |options, _| options.service.tsdb.head_memory.limit = HeadMemory::Bytes(1024),
        |_| {},
    ),
    (
        "min-free-space",
        |options, disk| {
            options.service.tsdb.free_bytes_min = 10 << 40;
            disk.set_capacity_bytes(1 << 30);
        },
        |_| {},
    ),
    ("closed WAL", |_, _| {}, |disk| disk.fail_after(0)),
    ("ingestion_rate", |options, _| limit(options, |limits| limits.ingestion.rate = 1), |_| {}),
    ("series-limit", |options, _| limit(options, |limits| limits.series_max = 1), |_| {}),
];

fn limit(options: &mut ServerOptions, change: fn(&mut TenantLimits)) {
    let mut limits = TenantLimits::default();
    change(&mut limits);
    options.service.tsdb.limits = LimitsTable::from(limits);
}

/// Covers a regression: a connection whose points the store refused ended by the same FIN as after success:
/// senders that wait for the end of a connection dropped 20,460 points in silence. It is reset, and the
/// points are counted.
#[tokio::test(flavor = "multi_thread")]
async fn no_connection_ends_in_order_with_a_point_lost() {
    let of_listener = [
        (CarbonProtocol::Plaintext, &[Sent::Lines, Sent::Gzip][..]),
        (CarbonProtocol::Pickle, &[Sent::Pickle][..]),
    ];
    for (name, change, begin) in REFUSALS {
        for (protocol, sent) in of_listener {
            let (carbon, disk) = start(protocol, change).await;
            begin(&disk);
            let fin_count = count_fins(&carbon, sent).await;
            let input = &carbon.listener.input;
            let resets = input.connections_reset.get();
            let lost = input.points_not_stored.get();
            assert_eq!(resets, (CONNECTION_COUNT - fin_count) as u64, "{name}, {sent:?}");
            let sent_count = (CONNECTION_COUNT * POINT_COUNT) as u64;
            let in_order = (fin_count * POINT_COUNT) as u64;
            assert!(in_order <= BURST, "{name}, {sent:?}: {fin_count} connections end in order");
            // `series-limit` lets one point of a connection pass, of which the others are lost.
            let counted = sent_count - 1..=sent_count;
            assert!(counted.contains(&(lost + in_order)), "{name}, {sent:?}: {lost} lost, {in_order} stored");
        }
    }
}

/// Checks that the same connections over a healthy store end in order, also with points that no retry can
/// save.
#[tokio::test(flavor = "multi_thread")]
async fn connections_whose_valid_points_are_durable_end_in_order() {
    let (carbon, _disk) = start(CarbonProtocol::Plaintext, |_, _| {}).await;
    assert_eq!(count_fins(&carbon, &[Sent::Lines, Sent::Gzip]).await, CONNECTION_COUNT);
    assert_eq!(carbon.points(), CONNECTION_COUNT * POINT_COUNT);
    let invalid: [&[u8]; 8] = [
        b"",
        b"a nan 1000\n",
        b"a\n",
        b"a 1 x\n",
        b"a 1 0\n",
        b"... 1 1000\n",
        b"a\x01b 1 1000\nb 1 1000",
        b"a 1 2 3\n",
    ];
    for bytes in invalid {
        let end = end_of(carbon.address, bytes.to_vec()).await;
        assert_eq!(end, SeenEnd::Fin, "{:?}", String::from_utf8_lossy(bytes));
    }
    assert_eq!(carbon.listener.input.connections_reset.get(), 0);
    let (carbon, _disk) = start(CarbonProtocol::Pickle, |_, _| {}).await;
    assert_eq!(count_fins(&carbon, &[Sent::Pickle]).await, CONNECTION_COUNT);
    let not_a_pickle = [&5u32.to_be_bytes()[..], b"hello", &frame_of("after")].concat();
    assert_eq!(end_of(carbon.address, not_a_pickle).await, SeenEnd::Fin, "the frame is counted as bad");
    assert_eq!(carbon.points(), CONNECTION_COUNT * POINT_COUNT + 1);
    assert_eq!(carbon.listener.input.connections_reset.get(), 0);
}

/// Sends bytes in which no further point can be found: some may be lost, which the sender has to know.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_or_damaged_is_reset() {
    let whole = gzipped(b"a 1 1000\nb 1 1000\n");
    let damaged = [&whole[..], b"no member"].concat();
    let (carbon, _disk) = start(CarbonProtocol::Plaintext, |_, _| {}).await;
    for bytes in [&whole[..whole.len() - 1], &whole[..4], &damaged[..]] {
        assert_eq!(end_of(carbon.address, bytes.to_vec()).await, SeenEnd::Reset, "{bytes:?}");
    }
    assert_eq!(carbon.listener.input.connections_reset.get(), 3);
    let (carbon, _disk) = start(CarbonProtocol::Pickle, |_, _| {}).await;
    let frame = frame_of("p.a");
    for cut in [1, 4, 5, frame.len() - 1] {
        let bytes = [&frame[..], &frame[..cut]].concat();
        assert_eq!(end_of(carbon.address, bytes).await, SeenEnd::Reset, "{cut} bytes of a frame");
    }
    let too_long = [&frame[..], &u32::MAX.to_be_bytes()].concat();
    assert_eq!(end_of(carbon.address, too_long).await, SeenEnd::Reset);
    assert_eq!(carbon.points(), 5, "the frames before are stored");
}
