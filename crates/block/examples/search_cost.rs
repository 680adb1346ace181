//! Cost of a regex over many label values, the first time and again.
//!
//! `cargo run --release -p chronolith-block --example search_cost -- [VALUES]` writes a block of `VALUES`
//! series (200 000 by default), each with a value of its own of `path`, into memory, and prints microseconds
//! of selecting by patterns.

use std::path::Path;

use chronolith_base::{Clock, Env, SystemClock};
use chronolith_block::{Block, BlockSource, BlockWriter};
use chronolith_format::chunk::xor;
use chronolith_model::{Labels, MatchOp, Matcher, Queryable, ReadContext, Selector, TimeRange};

fn main() {
    let value_count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200_000_u32);
    let (env, _, _) = Env::fake(1_600_000_000_000, 1);
    let range = TimeRange::new(1_600_000_000_000, 1_600_007_200_000);
    let mut writer = BlockWriter::create(&env, Path::new("/blocks")).expect("is created");
    let chunk = xor::encode(&[range.start, range.start + 15_000], &[1.0, 2.0]);
    for idx in 0..value_count {
        let path = format!("/api/v1/resource/{idx:07}/detail");
        let job = format!("job-{}", idx as u64 * 10 / u64::from(value_count));
        let labels =
            Labels::from_pairs([("__name__", "http_requests_total"), ("job", &*job), ("path", &*path)]);
        writer.add(&labels, &chunk).expect("is written");
    }
    let meta = writer.finish(BlockSource::head(range)).expect("is finished").expect("has series");
    let block = Block::open(&env, &Path::new("/blocks").join(meta.ulid.to_string())).expect("opens");
    let clock = SystemClock::new();
    let ctx = ReadContext::unlimited(env.clock.clone());
    for pattern in [".*77/detail", "/api/.*/00001../detail", ".*/nothing"] {
        let path = Matcher::new("path", MatchOp::Regex, pattern).expect("compiles");
        let matchers = [Matcher::equal("job", "job-7"), path];
        let selector = Selector { matchers: &matchers, range };
        let select = || {
            let started_ns = clock.mono_ns();
            let mut found = Vec::new();
            let mut batches = block.select(&selector, &ctx).expect("selects");
            while batches.next_batch(&mut found).expect("reads") {}
            ((clock.mono_ns() - started_ns) / 1000, found.len())
        };
        let (first_us, count) = select();
        let again_us = (0..5).map(|_| select().0).min().unwrap_or(0);
        println!("{pattern}: {count} series, {first_us} us, again {again_us} us");
    }
    println!("{} bytes remembered", block.regex_cache_bytes());
}
