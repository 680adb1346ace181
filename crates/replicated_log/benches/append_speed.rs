//! Time from an append to its acknowledgement, and CPU seconds per GB, of the log in a directory and of a
//! topic.
//!
//! `CHRONOLITH_TEST_KAFKA=HOST:PORT cargo bench -p chronolith-replicated-log --features kafka --bench
//! append_speed`, or with `--features kafka-librdkafka`; `kits/kafka/broker.py serve` starts a broker and
//! prints the address. Without the variable or the feature, the directory alone is measured. `cargo test`
//! runs a few records.
//!
//! One thread appends to four partitions in turn and waits for the oldest record in flight.
//! CPU time is the process's, so a broker's is not in it; with a directory it has the thread that writes and
//! syncs.

use std::collections::VecDeque;

use bytes::Bytes;
use chronolith_base::{Clock as _, Env, Rng, SystemClock};
use chronolith_replicated_log::dir::{DirLog, DirOptions};
use chronolith_replicated_log::{PartitionId, ReadLimits, ReplicatedLog};
use rustix::time::{ClockId, clock_gettime};

const PARTITION_COUNT: u32 = 4;

/// Size of a measurement.
#[derive(Clone, Copy)]
struct Load {
    record_bytes: usize,
    record_count: usize,
    in_flight_count: usize,
}

const LARGE: Load = Load { record_bytes: 200_000, record_count: 2500, in_flight_count: 8 };
const ONE_BY_ONE: Load = Load { record_bytes: 200_000, record_count: 500, in_flight_count: 1 };
const SMALL: Load = Load { record_bytes: 2000, record_count: 100_000, in_flight_count: 64 };
const TESTED: Load = Load { record_bytes: 2000, record_count: 20, in_flight_count: 4 };

fn main() {
    let loads: &[Load] =
        if std::env::args().any(|arg| arg == "--bench") { &[LARGE, ONE_BY_ONE, SMALL] } else { &[TESTED] };
    let dir = tempfile::tempdir().expect("a directory");
    for load in loads {
        let options = DirOptions::new(dir.path().join("log"), PARTITION_COUNT);
        let log = DirLog::open(&Env::real(), options).expect("opens");
        measure("dir", &log, *load);
    }
    kafka(loads);
}

#[cfg(any(feature = "kafka", feature = "kafka-librdkafka"))]
fn kafka(loads: &[Load]) {
    use chronolith_replicated_log::kafka::{Compression, KafkaLog, KafkaSettings, NewTopic};

    let Some(address) = std::env::var_os("CHRONOLITH_TEST_KAFKA") else {
        return println!("not run: kafka (CHRONOLITH_TEST_KAFKA=HOST:PORT names a broker)");
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for (name, compression) in [("kafka none", Compression::None), ("kafka zstd", Compression::Zstd)] {
        let topic = name.replace(' ', "-");
        let address = format!("kafka://{}/speed-{topic}", address.display());
        let mut settings = KafkaSettings::new(address.parse().expect("an address"));
        settings.compression = compression;
        settings.new_topic = Some(NewTopic { partition_count: PARTITION_COUNT, replication_factor: 1 });
        let log = KafkaLog::open(&Env::real(), runtime.handle(), settings).expect("opens");
        for load in loads {
            measure(name, &log, *load);
        }
    }
}

#[cfg(not(any(feature = "kafka", feature = "kafka-librdkafka")))]
fn kafka(_: &[Load]) {
    println!("not run: kafka (a feature of this build)");
}

/// Appends, then reads everything; prints one line.
fn measure(name: &str, log: &dyn ReplicatedLog, load: Load) {
    let clock = SystemClock::new();
    let records = records(load.record_bytes);
    let starts: Vec<u64> =
        (0..PARTITION_COUNT).map(|p| log.bounds(PartitionId(p)).expect("bounds").end).collect();
    let mut latencies_ns = Vec::with_capacity(load.record_count);
    let mut waiting = VecDeque::new();
    let start_ns = clock.mono_ns();
    let start_cpu_s = cpu_s();
    for number in 0..load.record_count {
        if waiting.len() == load.in_flight_count {
            finish_oldest(&clock, &mut waiting, &mut latencies_ns);
        }
        let partition = PartitionId(number as u32 % PARTITION_COUNT);
        let ticket = log.append(partition, records[number % records.len()].clone()).expect("is queued");
        waiting.push_back((clock.mono_ns(), ticket));
    }
    while !waiting.is_empty() {
        finish_oldest(&clock, &mut waiting, &mut latencies_ns);
    }
    let append_s = (clock.mono_ns() - start_ns) as f64 / 1e9;
    let append_cpu_s = cpu_s() - start_cpu_s;
    let bytes = load.record_bytes * load.record_count;
    latencies_ns.sort_unstable();
    let quantile = |q: usize| latencies_ns[(latencies_ns.len() - 1) * q / 100] as f64 / 1e6;

    let start_ns = clock.mono_ns();
    let start_cpu_s = cpu_s();
    let read_bytes: usize = starts.iter().enumerate().map(|(p, from)| read_from(log, p as u32, *from)).sum();
    assert_eq!(read_bytes, bytes);
    let read_s = (clock.mono_ns() - start_ns) as f64 / 1e9;
    println!(
        "{name:<10} {:>7} B x {:>6}, {:>2} in flight: {:>5.0} MB/s, p50 {:>5.1} ms, p99 {:>5.1} ms, {:>5.2} CPU s per GB; \
         read {:>5.0} MB/s, {:>5.2} CPU s per GB",
        load.record_bytes,
        load.record_count,
        load.in_flight_count,
        bytes as f64 / append_s / 1e6,
        quantile(50),
        quantile(99),
        append_cpu_s / bytes as f64 * 1e9,
        bytes as f64 / read_s / 1e6,
        (cpu_s() - start_cpu_s) / bytes as f64 * 1e9,
    );
}

type Waiting = VecDeque<(u64, chronolith_replicated_log::Ticket)>;

fn finish_oldest(clock: &SystemClock, waiting: &mut Waiting, latencies_ns: &mut Vec<u64>) {
    let Some((appended_ns, ticket)) = waiting.pop_front() else { return };
    ticket.wait().expect("is acknowledged");
    latencies_ns.push(clock.mono_ns() - appended_ns);
}

fn read_from(log: &dyn ReplicatedLog, partition: u32, from: u64) -> usize {
    let partition = PartitionId(partition);
    let end = log.bounds(partition).expect("bounds").end;
    let limits = ReadLimits { bytes_max: 4 << 20, wait: std::time::Duration::from_secs(10) };
    let mut next = from;
    let mut bytes = 0;
    while next < end {
        let records = log.read(partition, next, limits).expect("reads");
        next = records.last().expect("a record").offset + 1;
        bytes += records.iter().map(|record| record.value.len()).sum::<usize>();
    }
    bytes
}

/// Records of labels, times and values of scraped series, which compress as real ones do.
fn records(record_bytes: usize) -> Vec<Bytes> {
    let rng = Rng::from_seed(1);
    let mut number = 0;
    let mut record = || {
        let mut bytes = Vec::with_capacity(record_bytes + 200);
        while bytes.len() < record_bytes {
            number += 1;
            let labels = format!(
                "__name__http_requests_totalinstance10.0.{}.{}:9100jobnodepath/api/v1/{}status{}",
                number / 250 % 250,
                number % 250,
                rng.below(40),
                200 + rng.below(5)
            );
            bytes.extend_from_slice(labels.as_bytes());
            bytes.extend_from_slice(&(1_795_132_800_000 + rng.below(1000)).to_le_bytes());
            bytes.extend_from_slice(&(rng.below(1_000_000) as f64).to_le_bytes());
        }
        bytes.truncate(record_bytes);
        Bytes::from(bytes)
    };
    (0..64).map(|_| record()).collect()
}

/// CPU time of this process.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
