//! Bytes of a block of a day by part: `cargo run --release -p chronolith-block --example block_bytes`.
//!
//! Twenty targets scraped every 15 s, each with sixty series of six families in the weights of a mix, ten
//! labels a series. Times: steady with missed scrapes; jittered, the same for all series of a target;
//! jittered, each series on its own (senders that stamp every series apart). XOR chunks stand for what
//! Prometheus writes.

#[path = "../../format/benches/dense_speed/families.rs"]
mod families;

use std::path::Path;

use chronolith_base::{Clock, Disk, Env, Rng, SystemClock};
use chronolith_block::{Block, BlockSource, BlockWriter};
use chronolith_model::{BlockEncoding, Labels, TimeRange};
use families::{FAMILIES, Habit, START_MS, jittered_times, regular_times};

const TARGETS: u64 = 20;
const SERIES_PER_TARGET: u64 = 60;
const DAY_MS: i64 = 86_400_000;

/// Owner of the timestamps of a series.
#[derive(Clone, Copy, PartialEq)]
enum Clocks {
    PerTarget,
    PerSeries,
}

struct Series {
    labels: Labels,
    times: Vec<i64>,
    values: Vec<f64>,
}

fn make(habit: Habit, clocks: Clocks) -> Vec<Series> {
    let mut all = Vec::new();
    for target in 0..TARGETS {
        for place in 0..SERIES_PER_TARGET {
            let seed = target * 1000 + place;
            let clock = if clocks == Clocks::PerTarget { target } else { 1_000_000 + seed };
            let mut times = habit(&Rng::from_seed(clock));
            let keep = times.partition_point(|time| *time < START_MS + DAY_MS);
            times.truncate(keep);
            let (family, values) = family_of(place, &Rng::from_seed(seed));
            all.push(Series { labels: labels_of(target, place, family), times, values });
        }
    }
    all.sort_by(|a, b| a.labels.cmp(&b.labels));
    all
}

/// The family of a series, by the weights, and its values.
fn family_of(place: u64, rng: &Rng) -> (&'static str, Vec<f64>) {
    let mut share = (place as f64 + 0.5) / SERIES_PER_TARGET as f64;
    for (name, weight, values) in FAMILIES {
        if share < weight {
            return (name, values(rng));
        }
        share -= weight;
    }
    let (name, _, values) = FAMILIES[0];
    (name, values(rng))
}

fn labels_of(target: u64, place: u64, family: &str) -> Labels {
    let (name, instance) = (format!("metric_{place}"), format!("10.0.0.{target}:9100"));
    Labels::from_pairs([
        ("__name__", name.as_str()),
        ("cluster", "prod"),
        ("datacenter", "dc1"),
        ("env", "production"),
        ("family", family),
        ("instance", instance.as_str()),
        ("job", "node"),
        ("region", "eu-west-1"),
        ("team", "platform"),
        ("zone", "a"),
    ])
}

fn main() {
    println!("| times | encoding | chunks B/sample | index | all | encode ns/sample |");
    println!("|---|---|---|---|---|---|");
    let cases: [(&str, Habit, Clocks); 3] = [
        ("steady", regular_times, Clocks::PerTarget),
        ("jitter by target", jittered_times, Clocks::PerTarget),
        ("jitter by series", jittered_times, Clocks::PerSeries),
    ];
    let clock = SystemClock::new();
    for (name, habit, clocks) in cases {
        let all = make(habit, clocks);
        for encoding in [BlockEncoding::Dense, BlockEncoding::Prometheus] {
            let (env, _, disk) = Env::fake(START_MS, 1);
            let dir = Path::new("/blocks");
            let mut writer = BlockWriter::create(&env, dir).expect("memory").with_encoding(encoding);
            let start_ns = clock.mono_ns();
            for series in &all {
                let values = &series.values[..series.times.len()];
                writer.add_samples(&series.labels, &series.times, values).expect("memory");
            }
            let range = TimeRange::new(START_MS - DAY_MS, START_MS + 2 * DAY_MS);
            let meta = writer.finish(BlockSource::head(range)).expect("memory").expect("a block");
            let encode_ns = (clock.mono_ns() - start_ns) as f64 / meta.stats.num_samples as f64;
            let path = dir.join(meta.ulid.to_string());
            let block = Block::open(&env, &path).expect("own block");
            let index = disk.read(&path.join("index")).expect("memory").len() as u64;
            let by = |bytes: u64| bytes as f64 / meta.stats.num_samples as f64;
            println!(
                "| {name} | {encoding:?} | {:.3} | {:.3} | {:.3} | {encode_ns:.0} |",
                by(block.size_bytes() - index),
                by(index),
                by(block.size_bytes()),
            );
        }
    }
}
