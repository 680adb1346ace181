//! Size and speed of dense chunks beside XOR chunks: `cargo run --release -p chronolith-format --example dense_speed`.
//!
//! Six families of series, weighted as a mix; scraped every 15 s with 1 of 2000 scrapes missed ("regular"), or
//! with a jitter of 3 ms sigma and 1 % of up to 200 ms ("jitter"); times count into the bytes. Every chunk is
//! compared bit for bit. Times are the best of several rounds of wall clock, so run it on an idle machine.

use chronolith_base::{Clock, Rng, SystemClock};
use chronolith_format::{dense, xor};
use chronolith_model::{Columns, TimeRange};

const SERIES: usize = 32;
const SAMPLES: usize = 8192;
const ROUNDS: usize = 5;
const SCRAPE_MS: i64 = 15_000;
const START_MS: i64 = 1_700_000_000_000;

/// Makes the values of one series.
type Generator = fn(&Rng) -> Vec<f64>;

/// Makes the times of one series.
type Habit = fn(&Rng) -> Vec<i64>;

const FAMILIES: [(&str, f64, Generator); 6] = [
    ("counter", 0.30, counter),
    ("gauge 2dec", 0.10, gauge),
    ("const-ish", 0.40, mostly_constant),
    ("float sum", 0.05, float_sum),
    ("bytes 4k", 0.08, memory),
    ("small int", 0.07, small_integers),
];

fn uniform(rng: &Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn normal(rng: &Rng) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(rng)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}

fn log_uniform(rng: &Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(uniform(rng))
}

fn poisson(rng: &Rng, rate: f64) -> f64 {
    if rate > 60.0 {
        return (rate + rate.sqrt() * normal(rng)).round().max(0.0);
    }
    let (limit, mut product, mut count) = ((-rate).exp(), uniform(rng), 0.0);
    while product > limit {
        product *= uniform(rng);
        count += 1.0;
    }
    count
}

fn counter(rng: &Rng) -> Vec<f64> {
    let rate = log_uniform(rng, 0.1, 500.0);
    let mut total = (rate * uniform(rng) * 10_000.0).round();
    let step = |_| {
        total = if rng.below(4000) == 0 { 0.0 } else { total + poisson(rng, rate) };
        total
    };
    (0..SAMPLES).map(step).collect()
}

fn gauge(rng: &Rng) -> Vec<f64> {
    let mut level = 0.0;
    let mean = log_uniform(rng, 20.0, 80.0);
    let step = |_| {
        level = level * 0.95 + 0.35 * normal(rng);
        ((mean + level) * 100.0).round() / 100.0
    };
    (0..SAMPLES).map(step).collect()
}

fn mostly_constant(rng: &Rng) -> Vec<f64> {
    let changes = uniform(rng) > 0.7;
    let mut value = [0.0, 1.0, 0.0, 1.0, 3.0, 16.0, 0.5, 1_690_000_123.45][rng.below(8) as usize];
    let step = |_| {
        if changes && rng.below(200) == 0 {
            value = rng.below(30) as f64;
        }
        value
    };
    (0..SAMPLES).map(step).collect()
}

fn float_sum(rng: &Rng) -> Vec<f64> {
    let rate = log_uniform(rng, 0.1, 50.0);
    let mut total = 0.0;
    let step = |_| {
        for _ in 0..poisson(rng, rate) as usize {
            total -= 0.05 * (1.0 - uniform(rng)).ln();
        }
        total
    };
    (0..SAMPLES).map(step).collect()
}

fn memory(rng: &Rng) -> Vec<f64> {
    let mut pages = log_uniform(rng, 1e4, 1e6).round();
    let step = |_| {
        if rng.below(5) < 3 {
            pages = (pages + 60.0 * normal(rng)).round().max(100.0);
        }
        pages * 4096.0
    };
    (0..SAMPLES).map(step).collect()
}

fn small_integers(rng: &Rng) -> Vec<f64> {
    let mean = log_uniform(rng, 3.0, 12.0);
    (0..SAMPLES).map(|_| (mean + 1.5 * normal(rng)).round().max(0.0)).collect()
}

fn regular_times(rng: &Rng) -> Vec<i64> {
    let mut step = 0;
    let next = |_| {
        step += if rng.below(2000) == 0 { 2 } else { 1 };
        START_MS + step * SCRAPE_MS
    };
    (0..SAMPLES).map(next).collect()
}

fn jittered_times(rng: &Rng) -> Vec<i64> {
    let jitter = |time: i64| {
        let late = if rng.below(100) == 0 { rng.below(200) as f64 } else { 3.0 * normal(rng) };
        time + late.round() as i64
    };
    regular_times(rng).into_iter().map(jitter).collect()
}

/// Bytes, encode and decode nanoseconds, each per sample.
#[derive(Clone, Copy, Default)]
struct Figures {
    bytes: f64,
    encode_ns: f64,
    decode_ns: f64,
}

/// Chunks of one codec: its bytes end to end, and where each chunk ends.
#[derive(Default)]
struct Chunks {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

fn encode_dense(columns: &Columns, count: usize, scratch: &mut dense::DenseScratch, out: &mut Chunks) {
    for (times, values) in columns.times.chunks(count).zip(columns.values.chunks(count)) {
        dense::encode(times, values, scratch, &mut out.bytes);
        out.ends.push(out.bytes.len());
    }
}

fn encode_xor(columns: &Columns, count: usize, buf: &mut Vec<u8>, out: &mut Chunks) {
    for (times, values) in columns.times.chunks(count).zip(columns.values.chunks(count)) {
        let mut state = xor::XorState::new();
        buf.resize(xor::HEADER_BYTES + count * xor::SAMPLE_BYTES_MAX + 64, 0);
        for (&time, &value) in times.iter().zip(values) {
            state.append(buf, time, value);
        }
        out.bytes.extend_from_slice(&buf[..state.byte_len()]);
        out.ends.push(out.bytes.len());
    }
}

fn measure(
    all: &[Columns],
    mut encode: impl FnMut(&Columns, &mut Chunks),
    decode: impl Fn(&[u8], &mut Columns),
) -> Figures {
    let clock = SystemClock::new();
    let sample_count = (all.len() * SAMPLES) as f64;
    let mut best = Figures { bytes: 0.0, encode_ns: f64::MAX, decode_ns: f64::MAX };
    let mut chunks: Vec<Chunks> = all.iter().map(|_| Chunks::default()).collect();
    let mut found = Columns::default();
    for _ in 0..ROUNDS {
        for part in &mut chunks {
            part.bytes.clear();
            part.ends.clear();
        }
        let start = clock.mono_ns();
        all.iter().zip(&mut chunks).for_each(|(columns, out)| encode(columns, out));
        let encoded = clock.mono_ns();
        for (columns, part) in all.iter().zip(&chunks) {
            let mut begin = 0;
            found.clear();
            for &end in &part.ends {
                decode(&part.bytes[begin..end], &mut found);
                begin = end;
            }
            assert_eq!(found.times.last(), columns.times.last());
        }
        let decoded = clock.mono_ns();
        best.encode_ns = best.encode_ns.min((encoded - start) as f64 / sample_count);
        best.decode_ns = best.decode_ns.min((decoded - encoded) as f64 / sample_count);
        let last = all.last().expect("there are series");
        let same = found.values.iter().zip(&last.values).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same && found.times == last.times, "bit for bit");
    }
    best.bytes = chunks.iter().map(|part| part.bytes.len()).sum::<usize>() as f64 / sample_count;
    best
}

fn measure_both(all: &[Columns], count: usize) -> [Figures; 2] {
    let mut scratch = dense::DenseScratch::new();
    let mut buf = Vec::new();
    let dense = measure(
        all,
        |columns, out| encode_dense(columns, count, &mut scratch, out),
        |bytes, out| dense::decode(bytes, TimeRange::ALL, out).expect("own bytes decode"),
    );
    let xor = measure(
        all,
        |columns, out| encode_xor(columns, count, &mut buf, out),
        |bytes, out| xor::decode(bytes, TimeRange::ALL, out).expect("own bytes decode"),
    );
    [dense, xor]
}

fn main() {
    let habits: [(&str, Habit); 2] = [("regular", regular_times), ("jitter", jittered_times)];
    println!(
        "| times | n | codec | counter | gauge 2dec | const-ish | float sum | bytes 4k | small int | mix B | enc ns | dec ns | enc/dec by family |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (habit, times) in habits {
        for count in [120, 1024, 8192] {
            let mut mixes = [Figures::default(); 2];
            let mut rows =
                ["dense", "xor"].map(|codec| (format!("| {habit} | {count} | {codec} "), String::new()));
            for (family_idx, (_, weight, values)) in (1u64..).zip(FAMILIES) {
                let series = |series_idx: u64| {
                    let rng = Rng::from_seed(family_idx * 1000 + series_idx);
                    let time_rng = Rng::from_seed(family_idx * 1000 + series_idx + 500);
                    Columns { times: times(&time_rng), values: values(&rng), ..Columns::default() }
                };
                let all: Vec<Columns> = (0..SERIES as u64).map(series).collect();
                for ((figures, row), mix) in
                    measure_both(&all, count).into_iter().zip(&mut rows).zip(&mut mixes)
                {
                    row.0 += &format!("| {:.2} ", figures.bytes);
                    row.1 += &format!(" {:.1}/{:.1}", figures.encode_ns, figures.decode_ns);
                    mix.bytes += weight * figures.bytes;
                    mix.encode_ns += weight * figures.encode_ns;
                    mix.decode_ns += weight * figures.decode_ns;
                }
            }
            for (row, mix) in rows.iter().zip(mixes) {
                println!(
                    "{}| {:.3} | {:.1} | {:.2} |{} |",
                    row.0, mix.bytes, mix.encode_ns, mix.decode_ns, row.1
                );
            }
        }
    }
}
