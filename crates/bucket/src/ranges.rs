//! Requests of a round: ranges joined where the bytes between them cost less than a request, and long
//! requests split over connections that would be idle.
//!
//! Invariants: joined requests cover whole ranges, and every range is in exactly one of them; split ones
//! cover the same bytes.
//! Source of the cost model: a round of R requests over C connections takes about ceil(R / C) latencies plus
//! the time of its bytes, so that a request below the number of connections costs only its overhead, and one
//! above it a share of a latency as well.

use chronolith_block::source::{ByteRange, coalesce};

/// Time that a request costs in addition to its latency: headers, signature, a task.
const OVERHEAD_US: f64 = 60.0;
/// Bytes between two ranges that are never read in vain.
const GAP_BYTES_MAX: u64 = 4 << 20;

/// Latency from which requests are split: below it the storage is near, and one connection is as fast as
/// several.
const SPLIT_LATENCY_US_MIN: f64 = 2_000.0;

/// Measured speed of the storage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Speed {
    /// Time to the first byte of an answer.
    pub(crate) first_byte_us: f64,
    /// Bytes per microsecond of one connection.
    pub(crate) bytes_per_us: f64,
    /// Requests that are answered at the same time.
    pub(crate) connection_count: usize,
}

impl Speed {
    /// Bytes that arrive in the time of a latency: to read as many in vain costs less than another request.
    pub(crate) fn latency_bytes(&self) -> f64 {
        self.first_byte_us * self.bytes_per_us
    }

    /// Longest gap between two ranges that is read rather than saved, when `request_count` requests are left.
    fn gap_bytes(&self, request_count: usize) -> u64 {
        let connections = self.connection_count.max(1);
        let waits_us =
            if request_count > connections { self.first_byte_us / connections as f64 } else { 0.0 };
        let gap = (OVERHEAD_US.min(self.first_byte_us) + waits_us) * self.bytes_per_us;
        (gap as u64).min(GAP_BYTES_MAX)
    }
}

/// Returns true if `ranges` are in the order of files and offsets, and no two of them have a byte in common.
pub(crate) fn are_disjoint(ranges: &[ByteRange]) -> bool {
    ranges.is_sorted_by(|a, b| a.file < b.file || (a.file == b.file && a.end <= b.start))
}

/// Joins `ranges` to the requests of a round.
pub(crate) fn join(ranges: &mut Vec<ByteRange>, speed: &Speed) {
    coalesce(ranges, speed.gap_bytes(0));
    let connections = speed.connection_count.max(1);
    let excess = ranges.len().saturating_sub(connections);
    if excess == 0 {
        return;
    }
    // The smallest gaps first, until no request waits for another one.
    let gap_max = speed.gap_bytes(ranges.len());
    let mut gaps: Vec<u64> =
        ranges.windows(2).filter_map(gap_between).filter(|gap| *gap <= gap_max).collect();
    if gaps.is_empty() {
        return;
    }
    let nth = excess.min(gaps.len()) - 1;
    let (_, &mut gap, _) = gaps.select_nth_unstable(nth);
    coalesce(ranges, gap);
}

/// Splits long requests to pieces whose bytes take about a latency each, as long as there are idle
/// connections.
pub(crate) fn split(requests: &mut Vec<ByteRange>, speed: &Speed) {
    assert!(are_disjoint(requests), "requests are joined before they are split");
    let idle = speed.connection_count.saturating_sub(requests.len());
    let latency_bytes = speed.latency_bytes();
    if idle == 0 || requests.is_empty() || speed.first_byte_us < SPLIT_LATENCY_US_MIN {
        return;
    }
    let pieces_max = 1 + idle / requests.len();
    let mut split = Vec::with_capacity(requests.len());
    for request in &*requests {
        let pieces = ((request.len() as f64 / latency_bytes).round() as u64).clamp(1, pieces_max as u64);
        let piece_bytes = request.len().div_ceil(pieces);
        let mut start = request.start;
        while start < request.end {
            let end = (start + piece_bytes).min(request.end);
            split.push(ByteRange { start, end, ..*request });
            start = end;
        }
    }
    // Buffers and permits are counted for the bytes of the joined requests.
    assert_eq!(byte_count(&split), byte_count(requests), "pieces have the bytes of their requests");
    *requests = split;
}

fn byte_count(ranges: &[ByteRange]) -> u64 {
    ranges.iter().map(ByteRange::len).sum()
}

fn gap_between(pair: &[ByteRange]) -> Option<u64> {
    match pair {
        [a, b] if a.file == b.file => Some(b.start.saturating_sub(a.end)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use chronolith_block::source::BlockFile;
    use proptest::prelude::*;

    use super::*;

    const S3: Speed = Speed { first_byte_us: 30_000.0, bytes_per_us: 90.0, connection_count: 16 };
    const LOCAL: Speed = Speed { first_byte_us: 2.0, bytes_per_us: 8000.0, connection_count: 2 };

    fn ranges(count: u64, len: u64, gap: u64) -> Vec<ByteRange> {
        let one = |idx: u64| {
            let start = idx * (len + gap);
            ByteRange { file: BlockFile::Segment(0), start, end: start + len }
        };
        (0..count).map(one).collect()
    }

    #[track_caller]
    fn check(mut from: Vec<ByteRange>, speed: &Speed, request_count: usize) {
        join(&mut from, speed);
        assert_eq!(from.len(), request_count);
    }

    #[test]
    fn gaps_of_a_local_directory_are_not_read() {
        check(ranges(98, 43_000, 43_000), &LOCAL, 98);
        check(ranges(98, 43_000, 1000), &LOCAL, 1);
    }

    #[test]
    fn requests_below_the_number_of_connections_stay_apart() {
        check(ranges(16, 100_000, 100_000), &S3, 16);
        check(ranges(16, 100_000, 5000), &S3, 1);
    }

    #[test]
    fn requests_that_would_wait_are_joined_over_the_smallest_gaps() {
        check(ranges(64, 100_000, 100_000), &S3, 1);
        let mut uneven = ranges(16, 1000, 100_000);
        let last = uneven.last().map_or(0, |range| range.end);
        let near = ByteRange { file: BlockFile::Segment(0), start: last + 50_000, end: last + 60_000 };
        uneven.push(near);
        check(uneven, &S3, 16);
    }

    #[test]
    fn gaps_beyond_a_latency_of_bytes_are_not_read() {
        check(ranges(64, 1000, 10 << 20), &S3, 64);
    }

    #[test]
    fn long_requests_are_split_over_idle_connections() {
        let check = |count, len, speed: &Speed, request_count| {
            let mut requests = ranges(count, len, 1 << 20);
            split(&mut requests, speed);
            assert_eq!(requests.len(), request_count);
            let bytes: u64 = requests.iter().map(ByteRange::len).sum();
            assert_eq!(bytes, count * len);
        };
        check(1, 1 << 20, &S3, 1);
        check(1, 6_500_000, &S3, 2);
        check(1, 100_000_000, &S3, 16);
        check(10, 100_000_000, &S3, 10);
        check(8, 100_000_000, &S3, 16);
        check(20, 100_000_000, &S3, 20);
        check(1, 100_000_000, &LOCAL, 1);
    }

    proptest! {
        #[test]
        fn every_range_is_within_one_request(
            starts in prop::collection::vec((0u64..1 << 24, 1u64..1 << 18, 0u32..3), 0..80),
            first_byte_us in 1.0f64..100_000.0,
            bytes_per_us in 1.0f64..10_000.0,
            connection_count in 0usize..40,
        ) {
            let of = |&(start, len, file): &(u64, u64, u32)| {
                ByteRange { file: BlockFile::Segment(file), start, end: start + len }
            };
            let wanted: Vec<ByteRange> = starts.iter().map(of).collect();
            let mut requests = wanted.clone();
            join(&mut requests, &Speed { first_byte_us, bytes_per_us, connection_count });
            for range in wanted {
                let covers =
                    |r: &&ByteRange| r.file == range.file && r.start <= range.start && range.end <= r.end;
                prop_assert_eq!(requests.iter().filter(covers).count(), 1);
            }
        }
    }
}
