//! Benchmark `queries`: slow shapes of query over the same samples in each server, answers compared.
//!
//! Invariants: a shape's figures count only if its answer equals Prometheus's (VictoriaMetrics's where both
//! mean the same); every query starts without a cache of results. Prometheus gets old samples as blocks that
//! Chronolith wrote. A peer that refuses a query, or does not live through it, is reported; a difference, or
//! no answer of Chronolith, fails the run.
//! Not here: interpretation of the figures (BENCHMARKS.md).

mod compare;
mod corpus;
mod feed;
pub(crate) mod graph_answers;
pub(crate) mod kernel;
pub(crate) mod limits;
mod measure;
mod report;
mod shapes;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chronolith_base::{Clock, SystemClock};

use crate::driver::{Benchmark, Run};
use crate::options::Servers;
use crate::server::{Kind, Server, Setup};
use compare::Answer;
use corpus::Corpus;
use report::{Line, Outcome, Trouble};
use shapes::{Meaning, Shape};

const DEATH_POLL: Duration = Duration::from_millis(100);
/// A peer that fell over reads its whole log again.
const RESTART_WAIT: Duration = Duration::from_secs(600);
/// Distance of the end of the long corpus from the present: all of its windows are closed then.
const LONG_AGE_MS: i64 = 5 * 3_600_000;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    only: Servers,
    /// Series of the wide corpus, 3 h at 15 s; 0 leaves it out.
    #[arg(long, default_value_t = 100_000)]
    series: usize,
    /// Series of the corpus of the head, 25 min at 15 s; 0 leaves it out.
    #[arg(long, default_value_t = 100_000)]
    head_series: usize,
    /// Measures the corpus of the head alone.
    #[arg(long)]
    head: bool,
    /// Series of the corpus of values, each with a value of one label of its own; 0 leaves it out.
    #[arg(long, default_value_t = 400_000)]
    value_series: usize,
    /// Series of the long corpus; 0 leaves it out.
    #[arg(long, default_value_t = 1000)]
    long_series: usize,
    /// Days of the long corpus, at 15 s.
    #[arg(long, default_value_t = 30)]
    days: i64,
    /// Timed runs of each shape, after one to warm up.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Shapes to ask (default: all).
    #[arg(long, value_delimiter = ',')]
    shapes: Vec<String>,
    /// Keeps the servers up after the last query, until Enter is pressed: for a profiler.
    #[arg(long)]
    hold: bool,
}

impl Benchmark for Options {
    fn variant(&self) -> Option<&str> {
        self.head.then_some("head")
    }

    fn servers(&self) -> Result<Vec<Kind>> {
        self.only.of(&Kind::ALL)
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        ensure!(self.rounds > 0 && self.days > 0, "rounds and days must be above 0");
        let now_ms = SystemClock::new().now_ms();
        let fresh_ms = now_ms - 60_000;
        let mut lines = Vec::new();
        let mut measure = |corpus: &Corpus, shapes: Vec<Shape>| -> Result<()> {
            lines.extend(measure_corpus(self, run, corpus, &wanted(self, shapes))?);
            Ok(())
        };
        if self.head_series > 0 {
            let corpus = Corpus::head(self.head_series, fresh_ms);
            measure(&corpus, shapes::head(&corpus))?;
        }
        if self.series > 0 && !self.head {
            let corpus = Corpus::wide(self.series, fresh_ms);
            measure(&corpus, shapes::wide(&corpus))?;
        }
        if self.value_series > 0 && !self.head {
            let corpus = Corpus::values(self.value_series, fresh_ms);
            measure(&corpus, shapes::values(&corpus))?;
        }
        if self.long_series > 0 && !self.head {
            let corpus = Corpus::long(self.long_series, self.days, now_ms - LONG_AGE_MS);
            measure(&corpus, shapes::long(&corpus))?;
        }
        run.own_part(report::part(&run.kinds(), &lines));
        let failure_count = report::failure_count(&lines);
        ensure!(failure_count == 0, "{failure_count} answers are missing or not equal");
        Ok(())
    }
}

fn wanted(options: &Options, mut shapes: Vec<Shape>) -> Vec<Shape> {
    shapes.retain(|shape| options.shapes.is_empty() || options.shapes.iter().any(|name| name == shape.name));
    shapes
}

fn measure_corpus(options: &Options, run: &Run, corpus: &Corpus, shapes: &[Shape]) -> Result<Vec<Line>> {
    let mut lines: Vec<Line> = shapes.iter().map(|shape| Line::new(corpus, shape)).collect();
    if shapes.is_empty() {
        return Ok(lines);
    }
    println!("\n{}: {} series, {} steps", corpus.name, corpus.series_count(), corpus.step_count);
    let blocks = plain_blocks(run, corpus)?;
    let mut reference: Vec<Option<Answer>> = vec![None; shapes.len()];
    // The reference first, so that the others can be compared with it as they go.
    let mut order = run.kinds();
    order.sort_by_key(|kind| *kind != Kind::Prometheus);
    for kind in order {
        let mut server = filled(run, kind, corpus, blocks.as_ref())?;
        for ((shape, line), reference) in shapes.iter().zip(&mut lines).zip(&mut reference) {
            let outcome = measure_shape(options, &mut server, shape, reference)?;
            println!("{:<16} {:<18} {}", kind.name(), shape.name, outcome.summary());
            line.outcomes.push((kind, outcome));
        }
        if options.hold && kind == Kind::Chronolith {
            println!("process {} on port {}; Enter goes on", server.pid(), server.port);
            std::io::stdin().read_line(&mut String::new())?;
        }
    }
    Ok(lines)
}

fn measure_shape(
    options: &Options,
    server: &mut Server,
    shape: &Shape,
    reference: &mut Option<Answer>,
) -> Result<Outcome> {
    let (cost, answer) = match measure::measure(server, &shape.ask, options.rounds) {
        Ok(measured) => measured,
        Err(error) => return Ok(Outcome::failed(after_failure(server, &error)?)),
    };
    if answer.series_count() == 0 {
        return Ok(Outcome::failed("an empty answer".to_owned()));
    }
    let shares_meaning = server.kind() != Kind::VictoriaMetrics || shape.meaning == Meaning::Shared;
    let difference = match reference {
        Some(reference) if shares_meaning => {
            answer.check_equal(reference).err().map(|e| Trouble::NotEqual(format!("{e:#}")))
        }
        Some(_) => None,
        None => {
            *reference = shares_meaning.then_some(answer);
            None
        }
    };
    Ok(Outcome { cost: Some(cost), trouble: difference })
}

/// Returns the error for the report. A server that crashed during the query is started again, so that the
/// next shapes are measured.
fn after_failure(server: &mut Server, error: &anyhow::Error) -> Result<String> {
    let seen = Instant::now();
    // A connection breaks a moment before the process has ended.
    while server.check_alive().is_ok() {
        if server.is_ready() || seen.elapsed() > RESTART_WAIT {
            return Ok(format!("{error:#}"));
        }
        std::thread::sleep(DEATH_POLL);
    }
    println!("{} ended; it starts again", server.kind().name());
    let seconds = server.start_again(RESTART_WAIT)?;
    server.make_visible()?;
    Ok(format!("the server ended during the query ({error:#}) and was back after {seconds:.0} s"))
}

/// A server with all samples of the corpus.
fn filled(run: &Run, kind: Kind, corpus: &Corpus, blocks: Option<&Server>) -> Result<Server> {
    let mut server = run.start(kind, setup(corpus, "dense"))?;
    if let (Kind::Prometheus, Some(blocks)) = (kind, blocks) {
        let count = feed::copy_blocks(&blocks.data_dir(), &server.data_dir())?;
        server.restart_with::<&str>([])?;
        println!("{}: {count} blocks", kind.name());
        return Ok(server);
    }
    let seconds = feed::send(corpus, &server).with_context(|| server.log_tail())?;
    println!("{}: loaded in {seconds:.1} s", kind.name());
    if kind == Kind::Chronolith && corpus.name == "long" {
        feed::wait_flushed(&mut server)?;
    }
    server.make_visible()?;
    Ok(server)
}

/// A stopped Chronolith server with the corpus in blocks that Prometheus reads, if Prometheus needs them.
fn plain_blocks(run: &Run, corpus: &Corpus) -> Result<Option<Server>> {
    if corpus.name != "long" || !run.kinds().contains(&Kind::Prometheus) {
        return Ok(None);
    }
    let mut server = run.start(Kind::Chronolith, setup(corpus, "prometheus"))?;
    feed::send(corpus, &server)?;
    feed::wait_flushed(&mut server)?;
    server.stop()?;
    Ok(Some(server))
}

fn setup(corpus: &Corpus, block_encoding: &str) -> Setup {
    // Churned series take the place of others, so that more are there over time.
    let setup = Setup::new(corpus.series_count() * 20)
        .own_flags([format!("--block-encoding={block_encoding}"), "--self-scrape=off".to_owned()]);
    // A corpus of the head stays there.
    if corpus.name == "graph-head" {
        return setup;
    }
    // Long enough for a day to be complete before it is cut to a block, however small.
    setup.own_flags(["--flush-delay=30s", "--flush-small-window=0"])
}
