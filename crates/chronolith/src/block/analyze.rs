//! `chronolith block analyze`: cardinality of labels and cost of metrics in a block, as
//! `promtool tsdb analyze` counts them, and bytes per metric, encodings and lengths of chunks.
//!
//! Invariant: bytes of a metric are the bytes of its chunks; times that several chunks share belong to the
//! chunk that stores them. Memory: a counter per label pair of the block.
//! Not here: reading chunks (`chronolith-block`).

mod counts;
mod report;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_block::{Block, visit_chunks};
use clap::{Arg, ArgMatches, Command};

use self::counts::BlockCounts;
use crate::progress::{Bar, WithoutTerminal, cells};

pub(super) fn command() -> Command {
    Command::new("analyze").about("Count series, label pairs, samples and bytes of blocks").arg(
        Arg::new("limit")
            .long("limit")
            .value_name("N")
            .default_value("20")
            .value_parser(clap::value_parser!(usize))
            .help("Rows of each list"),
    )
}

pub(super) fn run(
    env: &Env,
    dirs: &[PathBuf],
    matches: &ArgMatches,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let limit = matches.get_one::<usize>("limit").copied().unwrap_or(20);
    let mut bar = Bar::new(env, WithoutTerminal::Log);
    for dir in dirs {
        let block = Block::open(env, dir).with_context(|| format!("opening {}", dir.display()))?;
        let total = block.meta().stats.num_series;
        let mut counts = BlockCounts::default();
        visit_chunks(&block, &mut |labels, chunks| {
            counts.add_series(labels, chunks);
            let done = counts.series;
            bar.draw(|seconds| format!("{}  {done} of {total} series, {seconds} s", cells(done, total)));
        })?;
        bar.clear();
        let text = match matches.get_flag("json") {
            true => report::json(&block, &counts, limit),
            false => report::text(&block, &counts, limit),
        };
        out.write_all(text.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}
