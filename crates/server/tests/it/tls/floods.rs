//! Clients of HTTP/2 that send what costs them little and the server much.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Fixture;
use super::client::Client;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const END_STREAM_AND_HEADERS: u8 = 5;
/// `GET http://x/` of the static table.
const REQUEST: &[u8] = &[0x82, 0x84, 0x86, 0x41, 1, b'x'];
/// Longer than the server takes to end a connection.
const CLOSE_WAIT: Duration = Duration::from_secs(20);

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Sends `frames` until the server ends the connection. Returns how many it has taken at most.
async fn flood(fixture: &Fixture, frames: impl Iterator<Item = Vec<u8>>) -> io::Result<usize> {
    let stream = TcpStream::connect(fixture.address()).await?;
    let (mut reader, mut writer) = stream.into_split();
    // Without a reader of its answers, the server would wait to write instead of ending the connection.
    let closed = tokio::spawn(async move {
        let mut answers = Vec::new();
        let _ = reader.read_to_end(&mut answers).await;
    });
    writer.write_all(PREFACE).await?;
    writer.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    let mut count = 0;
    for frame in frames {
        if writer.write_all(&frame).await.is_err() {
            break;
        }
        count += 1;
    }
    let closed = tokio::time::timeout(CLOSE_WAIT, closed).await;
    assert!(closed.is_ok(), "the server ends the connection");
    Ok(count)
}

#[track_caller]
fn check_others(fixture: &Fixture) {
    let client = Client::plain(fixture.address());
    for _ in 0..10 {
        let reply = fixture.clients.block_on(client.get_http2("/-/healthy", &[])).expect("an answer");
        assert_eq!(reply.status, 200);
    }
}

/// Rapid reset (CVE-2023-44487): a request and its end, again and again, within the limit of requests.
#[test]
fn a_client_that_resets_its_requests_at_once_loses_its_connection() {
    let fixture = Fixture::start_with("", None);
    let frames = (0..200_000_u32).map(|number| {
        let stream = 2 * number + 1;
        let mut frames = frame(HEADERS, END_STREAM_AND_HEADERS, stream, REQUEST);
        frames.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        frames
    });
    let sent = fixture.clients.block_on(flood(&fixture, frames)).expect("connects");
    assert!(sent < 200_000, "{sent} requests");
    check_others(&fixture);
}

/// Headers without an end (CVE-2024-27316).
#[test]
fn headers_without_an_end_are_given_up() {
    let fixture = Fixture::start_with("", None);
    let first = frame(HEADERS, 0, 1, REQUEST);
    // A literal header `a: xxx...` per frame.
    let mut header = vec![0, 1, b'a', 0x7f, 0x81, 0x1e];
    header.extend([b'x'; 127 + 0x81 - 0x80 + (0x1e << 7)]);
    let rest = frame(CONTINUATION, 0, 1, &header);
    let frames = std::iter::once(first).chain(std::iter::repeat_n(rest, 20_000));
    let sent = fixture.clients.block_on(flood(&fixture, frames)).expect("connects");
    assert!(sent < 20_000, "{sent} frames of 4 KiB");
    check_others(&fixture);
}
