//! Size and speed of dense and packed chunks compared with XOR chunks.
//!
//! `cargo bench -p chronolith-format --bench dense_speed`; with `-- partial`, the time to read five minutes
//! of a chunk of 4096 samples. `cargo test` runs one round of both over one series per family.
//!
//! Six families of series, weighted as a mix; scraped every 15 s with 1 of 2000 scrapes missed ("regular"),
//! or with a jitter of 3 ms sigma and 1 % of up to 200 ms ("jitter"); times count into the bytes. Every chunk
//! is compared bit for bit. Times are the best of several rounds of wall clock, so run it on an idle machine.

mod families;

use chronolith_base::{Clock, Rng, SystemClock};
use chronolith_format::{chunk::dense, chunk::xor};
use chronolith_model::{Columns, TimeRange};
use families::{FAMILIES, Habit, SAMPLES, jittered_times, regular_times};

/// Size of a measurement.
#[derive(Clone, Copy)]
struct Size {
    /// Series per family.
    series_count: u64,
    round_count: usize,
}

const MEASURED: Size = Size { series_count: 32, round_count: 5 };
const TESTED: Size = Size { series_count: 1, round_count: 1 };

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

/// Encodes as blocks do: a byte in front of each chunk names its encoding.
fn encode_packed(columns: &Columns, count: usize, scratch: &mut dense::DenseScratch, out: &mut Chunks) {
    for (times, values) in columns.times.chunks(count).zip(columns.values.chunks(count)) {
        let start = out.bytes.len();
        out.bytes.push(0);
        let chunk = dense::encode_packed(dense::ChunkTimes::Own(times), values, scratch, &mut out.bytes);
        out.bytes[start] = chunk.encoding;
        out.ends.push(out.bytes.len());
    }
}

fn decode_packed(bytes: &[u8], out: &mut Columns) {
    decode_part(bytes, TimeRange::ALL, out);
}

fn decode_part(bytes: &[u8], range: TimeRange, out: &mut Columns) {
    let (encoding, bytes) = bytes.split_first().expect("an encoding");
    let result = match *encoding {
        dense::ENCODING_DENSE => dense::decode(bytes, range, out),
        _ => dense::decode_packed(bytes, range, |_| unreachable!("own times"), out),
    };
    result.expect("own bytes decode");
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
    round_count: usize,
    mut encode: impl FnMut(&Columns, &mut Chunks),
    decode: impl Fn(&[u8], &mut Columns),
) -> Figures {
    let clock = SystemClock::new();
    let sample_count = (all.len() * SAMPLES) as f64;
    let mut best = Figures { bytes: 0.0, encode_ns: f64::MAX, decode_ns: f64::MAX };
    let mut chunks: Vec<Chunks> = all.iter().map(|_| Chunks::default()).collect();
    let mut found = Columns::default();
    for _ in 0..round_count {
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

fn measure_all(all: &[Columns], round_count: usize, count: usize) -> [Figures; 3] {
    let mut scratch = dense::DenseScratch::new();
    let mut buf = Vec::new();
    let dense = measure(
        all,
        round_count,
        |columns, out| encode_dense(columns, count, &mut scratch, out),
        |bytes, out| dense::decode(bytes, TimeRange::ALL, out).expect("own bytes decode"),
    );
    let packed = measure(
        all,
        round_count,
        |columns, out| encode_packed(columns, count, &mut scratch, out),
        decode_packed,
    );
    let xor = measure(
        all,
        round_count,
        |columns, out| encode_xor(columns, count, &mut buf, out),
        |bytes, out| xor::decode(bytes, TimeRange::ALL, out).expect("own bytes decode"),
    );
    [dense, packed, xor]
}

/// Nanoseconds to read a few samples at the front, in the middle and at the end of a long chunk, and all of
/// it.
fn measure_parts(all: &[Columns], round_count: usize, encode: impl Fn(&Columns, &mut Chunks)) -> [f64; 4] {
    let clock = SystemClock::new();
    let mut chunks = Chunks::default();
    all.iter().for_each(|columns| encode(columns, &mut chunks));
    let mut best = [f64::MAX; 4];
    let mut found = Columns::default();
    for _ in 0..round_count * 4 {
        for (which, best) in best.iter_mut().enumerate() {
            let start = clock.mono_ns();
            let mut begin = 0;
            for (&end, columns) in chunks.ends.iter().zip(all) {
                let last = PART_CHUNK_SAMPLES - PART_SAMPLES;
                let at = [0, last / 2, last, 0][which];
                let len = if which == 3 { PART_CHUNK_SAMPLES } else { PART_SAMPLES };
                let range = TimeRange::inclusive(columns.times[at], columns.times[at + len - 1]);
                found.clear();
                decode_part(&chunks.bytes[begin..end], range, &mut found);
                assert_eq!(found.times, columns.times[at..at + len]);
                begin = end;
            }
            *best = best.min((clock.mono_ns() - start) as f64 / all.len() as f64);
        }
    }
    best
}

/// Samples of a chunk that is read in parts, and of a part: five minutes.
const PART_CHUNK_SAMPLES: usize = 4096;
const PART_SAMPLES: usize = 20;

fn print_parts(size: Size) {
    println!("| partial: times | family | codec | front ns | middle ns | end ns | all ns |");
    println!("|---|---|---|---|---|---|---|");
    let habits: [(&str, Habit); 2] = [("regular", regular_times), ("jitter", jittered_times)];
    for (habit, times) in habits {
        for (family_idx, (name, _, values)) in (1u64..).zip(FAMILIES) {
            let series = |series_idx: u64| {
                let rng = Rng::from_seed(family_idx * 1000 + series_idx);
                let time_rng = Rng::from_seed(family_idx * 1000 + series_idx + 500);
                let mut columns =
                    Columns { times: times(&time_rng), values: values(&rng), ..Columns::default() };
                columns.times.truncate(PART_CHUNK_SAMPLES);
                columns.values.truncate(PART_CHUNK_SAMPLES);
                columns
            };
            let all: Vec<Columns> = (0..size.series_count).map(series).collect();
            let dense = measure_parts(&all, size.round_count, |columns, out| {
                out.bytes.push(dense::ENCODING_DENSE);
                encode_dense(columns, PART_CHUNK_SAMPLES, &mut dense::DenseScratch::new(), out);
            });
            let packed = measure_parts(&all, size.round_count, |columns, out| {
                encode_packed(columns, PART_CHUNK_SAMPLES, &mut dense::DenseScratch::new(), out);
            });
            for (codec, [front, middle, end, all]) in [("dense", dense), ("packed", packed)] {
                println!("| {habit} | {name} | {codec} | {front:.0} | {middle:.0} | {end:.0} | {all:.0} |");
            }
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| args.iter().any(|arg| arg == name);
    // `cargo bench` passes the flag, `cargo test` does not.
    match (has("--bench"), has("partial")) {
        (true, true) => print_parts(MEASURED),
        (true, false) => print_codecs(MEASURED),
        (false, _) => {
            print_parts(TESTED);
            print_codecs(TESTED);
        }
    }
}

fn print_codecs(size: Size) {
    let habits: [(&str, Habit); 2] = [("regular", regular_times), ("jitter", jittered_times)];
    println!(
        "| times | n | codec | counter | gauge 2dec | const-ish | float sum | bytes 4k | small int | mix B | enc ns | dec ns | enc/dec by family |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (habit, times) in habits {
        for count in [120, 1024, 2048, 4096, 8192] {
            let mut mixes = [Figures::default(); 3];
            let mut rows = ["dense", "packed", "xor"]
                .map(|codec| (format!("| {habit} | {count} | {codec} "), String::new()));
            for (family_idx, (_, weight, values)) in (1u64..).zip(FAMILIES) {
                let series = |series_idx: u64| {
                    let rng = Rng::from_seed(family_idx * 1000 + series_idx);
                    let time_rng = Rng::from_seed(family_idx * 1000 + series_idx + 500);
                    Columns { times: times(&time_rng), values: values(&rng), ..Columns::default() }
                };
                let all: Vec<Columns> = (0..size.series_count).map(series).collect();
                for ((figures, row), mix) in
                    measure_all(&all, size.round_count, count).into_iter().zip(&mut rows).zip(&mut mixes)
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
