//! Load of carbon lines: 100,000 series over four TCP connections in rounds of ten seconds.
//!
//! Invariants: every server gets the same bytes; a connection is closed for writing after its last line and
//! read until the server closes it, so the time has the server reading everything.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::rows::{Naming, Row};
use crate::traffic::mix;
use crate::workers::in_parallel;

/// Seconds between two points of a series.
pub(super) const STEP_S: i64 = 10;
/// Connections; series `s` is sent over connection `s % CONNECTION_COUNT`.
pub(super) const CONNECTION_COUNT: usize = 4;
/// Series of one host.
const METRICS_PER_HOST: usize = 10;
/// Bytes per write.
const WRITE_BYTES: usize = 256 << 10;
/// Longest time without a reaction of the server.
const STALL_MAX: Duration = Duration::from_secs(600);

/// Lines of one row.
pub(super) struct Load {
    /// Start of the line of each series, up to the value.
    names: Vec<Vec<u8>>,
    start_s: i64,
    reversed: usize,
}

impl Load {
    /// The last round is a minute before `now_s`.
    pub(super) fn new(row: &Row, now_s: i64) -> Load {
        let start_s = (now_s - 60) / STEP_S * STEP_S - row.round_count() as i64 * STEP_S;
        let names = (0..row.series_count).map(|idx| name(row.naming, idx)).collect();
        Load { names, start_s, reversed: row.reversed }
    }

    /// Time of a round, in seconds.
    pub(super) fn time_s(&self, round: usize) -> i64 {
        self.start_s + round as i64 * STEP_S
    }

    /// Number of series.
    pub(super) fn series_count(&self) -> usize {
        self.names.len()
    }

    /// Bytes of a line on average, in the first round.
    pub(super) fn line_bytes(&self) -> f64 {
        let mut out = Vec::new();
        (0..self.names.len()).for_each(|idx| self.push_line(idx, 0, &mut out));
        out.len() as f64 / self.names.len() as f64
    }

    /// Sends rounds to the server and waits until it has read them; returns the seconds.
    pub(super) fn send(&self, port: u16, rounds: Range<usize>) -> Result<f64> {
        let order = order_of(rounds, self.reversed);
        let open = || TcpStream::connect(("127.0.0.1", port)).context("the server takes no connection");
        let connections = (0..CONNECTION_COUNT).map(|_| open()).collect::<Result<Vec<_>>>()?;
        let start = Instant::now();
        in_parallel(connections, |idx, stream| self.send_part(idx, stream, &order))?;
        Ok(start.elapsed().as_secs_f64())
    }

    fn send_part(&self, connection: usize, mut stream: TcpStream, order: &[usize]) -> Result<()> {
        stream.set_write_timeout(Some(STALL_MAX))?;
        stream.set_read_timeout(Some(STALL_MAX))?;
        let mut out = Vec::with_capacity(WRITE_BYTES + 256);
        for &round in order {
            for idx in (connection..self.names.len()).step_by(CONNECTION_COUNT) {
                self.push_line(idx, round, &mut out);
                if out.len() >= WRITE_BYTES {
                    stream.write_all(&out)?;
                    out.clear();
                }
            }
        }
        stream.write_all(&out)?;
        stream.shutdown(Shutdown::Write)?;
        stream.read_to_end(&mut Vec::new()).context("the server does not close the connection")?;
        Ok(())
    }

    fn push_line(&self, idx: usize, round: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.names[idx]);
        out.push(b' ');
        let random = mix((idx as u64) << 32 | round as u64);
        if idx.is_multiple_of(2) {
            // A counter that grows by less than a thousand per round.
            push_number(round as u64 * 1000 + random % 1000, out);
        } else {
            push_number(random % 10_000, out);
            out.push(b'.');
            out.extend_from_slice(&two_digits(random >> 32));
        }
        out.push(b' ');
        push_number(self.time_s(round).cast_unsigned(), out);
        out.push(b'\n');
    }
}

/// Rounds in the order in which they are sent: groups of `reversed` rounds are each reversed.
fn order_of(rounds: Range<usize>, reversed: usize) -> Vec<usize> {
    let rounds: Vec<usize> = rounds.collect();
    rounds.chunks(reversed.max(1)).flat_map(|group| group.iter().rev().copied()).collect()
}

fn name(naming: Naming, idx: usize) -> Vec<u8> {
    let host = idx / METRICS_PER_HOST;
    let metric = idx % METRICS_PER_HOST;
    let dc = host % 4;
    let text = match naming {
        Naming::Untagged => format!("load.dc{dc}.host{host:05}.metric{metric:02}"),
        Naming::Tagged => format!("load.metric{metric:02};dc=dc{dc};host=host{host:05}"),
    };
    text.into_bytes()
}

fn two_digits(number: u64) -> [u8; 2] {
    let number = (number % 100) as u8;
    [b'0' + number / 10, b'0' + number % 10]
}

fn push_number(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_rounds_are_reversed() {
        assert_eq!(order_of(1..6, 1), [1, 2, 3, 4, 5]);
        assert_eq!(order_of(1..6, 2), [2, 1, 4, 3, 5]);
        assert_eq!(order_of(1..4, 500), [3, 2, 1]);
    }

    #[test]
    fn lines_have_a_name_a_value_and_a_time() {
        let row = Row { series_count: 20, ..super::super::rows::all().remove(0) };
        let load = Load::new(&row, 1_700_000_000);
        let mut out = Vec::new();
        load.push_line(13, 2, &mut out);
        let text = String::from_utf8(out).unwrap();
        let fields: Vec<&str> = text.trim_end().split(' ').collect();
        assert_eq!(fields[0], "load.dc1.host00001.metric03");
        assert!(fields[1].parse::<f64>().is_ok_and(|value| value < 10_000.0), "{text}");
        assert_eq!(fields[2].parse::<i64>().unwrap(), load.time_s(2));
        assert_eq!(name(Naming::Tagged, 13), b"load.metric03;dc=dc1;host=host00001");
    }
}
