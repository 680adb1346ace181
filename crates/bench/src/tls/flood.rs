//! Handshakes that do not go on: connections that send the first bytes of a TLS record and nothing more.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use chronolith_base::thread;

/// Start of a record of the handshake of 512 bytes, of which 8 are sent.
const HALF_HELLO: [u8; 8] = [0x16, 3, 1, 2, 0, 1, 0, 1];
/// Connections are opened in groups, one group per this time.
const GROUP_EVERY: Duration = Duration::from_millis(10);

/// Opens `count` such connections within `during` and keeps those that the server leaves open, until `stop`.
/// Returns how many were opened.
pub(super) fn half_open(port: u16, count: usize, during: Duration, stop: &AtomicBool) -> Result<usize> {
    thread::lower_priority_of_long_work(0);
    let start = Instant::now();
    let group = count.div_ceil((during.as_micros() / GROUP_EVERY.as_micros()).max(1) as usize);
    let mut open: Vec<TcpStream> = Vec::with_capacity(count);
    let mut opened = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = (start.elapsed().as_micros() / GROUP_EVERY.as_micros()) as usize * group;
        while opened < due.min(count) {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            // A server may close a connection of this kind at any time.
            if stream.write_all(&HALF_HELLO).is_ok() {
                open.push(stream);
            }
            opened += 1;
        }
        std::thread::sleep(GROUP_EVERY);
    }
    Ok(opened)
}
