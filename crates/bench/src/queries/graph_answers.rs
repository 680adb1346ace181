//! Benchmark `graph-answers`: answers as a graph asks for them, of 0.1, 1 and 10 MB of JSON, over the head
//! and over blocks, with gzip, with zstd and plain, over one connection that is kept alive.
//!
//! Invariants: all servers run at the same time and are asked in alternation, so that what disturbs the
//! machine disturbs them alike; answers equal Prometheus's and are the same in all codings; result
//! caches are bypassed; nothing is decompressed while the clock runs; a coding that a server does not send is
//! not measured.
//! Not here: the series (`corpus`), shapes that reduce many series to few (`queries`).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use chronolith_base::{Clock, SystemClock};

use super::compare::Answer;
use super::corpus::Corpus;
use crate::driver::{Benchmark, Run};
use crate::http::{Accept, QueryConnection, range_path};
use crate::latency::median;
use crate::options::Servers;
use crate::proc::{CpuSeconds, Stopwatch};
use crate::report::Table;
use crate::server::{Kind, Server};

const HEAD_SPAN_MS: i64 = 55 * 60_000;
const BLOCKS_SPAN_MS: i64 = 4 * 3_600_000 + 20 * 60_000;
/// Distance of the end of the blocks from the present: all of their windows are closed then.
const BLOCKS_AGE_MS: i64 = 5 * 3_600_000;
/// The first window of a rate lies within the corpus.
const FIRST_WINDOW_MS: i64 = 6 * 60_000;
const STEP_S: i64 = 15;
const ROUNDS_MIN: usize = 9;
const ROUNDS_MAX: usize = 200;
/// Times of the peers and of ours that are promised.
const RATIO_MIN: f64 = 2.0;
const BYTES_RATIO_MAX: f64 = 1.1;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    only: Servers,
    /// Series of each corpus.
    #[arg(long, default_value_t = 4000)]
    series: usize,
    /// Seconds for each row, for all servers and codings together.
    #[arg(long, default_value_t = 12)]
    seconds: u64,
    /// Measures the corpus of the head alone.
    #[arg(long)]
    head: bool,
    /// Rows to measure: those whose name contains one of these (default: all).
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
}

/// A query whose answer is a matrix of about one size.
struct Graph {
    name: String,
    path: String,
}

/// Codings to ask for. Grafana and Go's clients accept the first one, browsers the second one, too.
const CODINGS: [Accept; 3] = [Accept::Gzip, Accept::Zstd, Accept::Plain];

/// Cost of the requests of one graph: one server, one coding.
#[derive(Default)]
struct Cost {
    walls_ms: Vec<f64>,
    cpu: CpuSeconds,
    wire_bytes: usize,
}

impl Cost {
    fn wall_ms(&self) -> f64 {
        median(&self.walls_ms)
    }

    fn cpu_ms(&self) -> f64 {
        self.cpu.total() * 1000.0 / self.walls_ms.len() as f64
    }
}

/// Costs of one graph and one server in the codings that it sends.
type Costs = Vec<(Accept, Cost)>;

/// Figures of one graph.
struct Row {
    name: String,
    costs: Vec<(Kind, Costs)>,
}

/// One server, asked for one graph.
struct Client<'a> {
    server: &'a Server,
    connection: QueryConnection,
    costs: Costs,
}

impl Client<'_> {
    /// Connects and asks once in each coding; the answer, which has the same text in all of them.
    fn open<'a>(server: &'a Server, graph: &Graph) -> Result<(Client<'a>, Answer)> {
        let name = server.kind().name();
        let mut connection = QueryConnection::open(server.port)?;
        connection.set_accept(Accept::Plain);
        let (status, text) = connection.get(&graph.path)?;
        ensure!(status == 200, "{name}: HTTP {status}: {text:.300}");
        let answer = Answer::parse(&text)?;
        ensure!(answer.series_count() > 0, "{name}: an empty answer");
        let mut costs = Vec::new();
        for accept in CODINGS {
            connection.set_accept(accept);
            let received = connection.fetch(&graph.path)?;
            ensure!(received.status == 200, "{name}: HTTP {} for {accept:?}", received.status);
            Answer::parse(&received.text()?)?.check_equal(&answer)?;
            if received.coding() == accept {
                costs.push((accept, Cost::default()));
            }
        }
        println!("{:<24} {name:<16} {} bytes plain", graph.name, text.len());
        Ok((Client { server, connection, costs }, answer))
    }

    /// Asks once in each coding that the server sends.
    fn ask(&mut self, graph: &Graph) -> Result<()> {
        for (accept, cost) in &mut self.costs {
            self.connection.set_accept(*accept);
            let stopwatch = Stopwatch::start(self.server.pid())?;
            let received = self.connection.fetch(&graph.path)?;
            let spent = stopwatch.spent()?;
            cost.walls_ms.push(spent.wall_seconds * 1e3);
            cost.cpu = cost.cpu.plus(spent.cpu);
            ensure!(received.status == 200, "HTTP {}", received.status);
            ensure!(received.coding() == *accept, "{:?} for {accept:?}", received.coding());
            cost.wire_bytes = received.body.len();
        }
        Ok(())
    }
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        self.only.of(&Kind::ALL)
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        let now_ms = SystemClock::new().now_ms();
        let head = Corpus::graphs("graph-head", self.series, HEAD_SPAN_MS, now_ms - 60_000);
        let mut rows = measure_corpus(self, run, &head)?;
        if !self.head {
            // `long` is the name by which the corpus of blocks is loaded.
            let blocks = Corpus::graphs("long", self.series, BLOCKS_SPAN_MS, now_ms - BLOCKS_AGE_MS);
            rows.extend(measure_corpus(self, run, &blocks)?);
        }
        report(self, &rows, run);
        Ok(())
    }
}

/// Rates of counters and gauges as they are, each in three sizes.
fn graphs(options: &Options, corpus: &Corpus) -> Vec<Graph> {
    let start_ms = corpus.start_ms + FIRST_WINDOW_MS;
    let range = (start_ms / 1000 * 1000, corpus.end_ms() / 1000 * 1000, STEP_S);
    // Series by size: 20 per instance of the counters. A step has 30 bytes as a rate, 26 as a gauge.
    let (counters, gauges) = if corpus.name != "long" {
        (["1", "1?[0-9]", "[1-8]?[0-9]"], ["1?[0-9]", "1?[0-9]?[0-9]", "[0-9]+"])
    } else {
        (["1\",code=\"200", "[12]", "1?[0-9]"], ["[0-4]", "[0-3]?[0-9]", "[0-3]?[0-9]?[0-9]"])
    };
    let place = if corpus.name != "long" { "head" } else { "blocks" };
    let sizes = ["0.1 MB", "1 MB", "10 MB"].into_iter();
    let of_sizes = sizes.zip(counters).zip(gauges).flat_map(|((size, counters), gauges)| {
        let (instance, rest) = counters.split_once('"').unwrap_or((counters, ""));
        let rest = if rest.is_empty() { String::new() } else { format!("\"{rest}") };
        let rate =
            format!("rate(http_requests_total{{instance=~\"10[.]0[.]0[.]{instance}:9100{rest}\"}}[5m])");
        let gauge = format!("unique_requests{{path=~\".*/{gauges}\"}}");
        [("rates", rate), ("gauges", gauge)].map(|(what, query)| Graph {
            name: format!("{place}, {size} of {what}"),
            path: range_path(&query, range),
        })
    });
    let is_wanted = |graph: &Graph| {
        options.rows.is_empty() || options.rows.iter().any(|part| graph.name.contains(part.as_str()))
    };
    of_sizes.filter(is_wanted).collect()
}

fn measure_corpus(options: &Options, run: &Run, corpus: &Corpus) -> Result<Vec<Row>> {
    println!("\n{}: {} series, {} steps", corpus.name, corpus.series_count(), corpus.step_count);
    let blocks = super::plain_blocks(run, corpus)?;
    let servers = run.kinds().into_iter().map(|kind| super::filled(run, kind, corpus, blocks.as_ref()));
    let servers = servers.collect::<Result<Vec<Server>>>()?;
    let graphs = graphs(options, corpus);
    graphs.iter().map(|graph| measure(options, &servers, graph).with_context(|| graph.name.clone())).collect()
}

fn measure(options: &Options, servers: &[Server], graph: &Graph) -> Result<Row> {
    let mut clients = Vec::new();
    let mut answers = Vec::new();
    for server in servers {
        let (client, answer) = Client::open(server, graph)?;
        answers.push((server.kind(), answer));
        clients.push(client);
    }
    check_equal(&answers)?;
    let begun = Instant::now();
    let limit = Duration::from_secs(options.seconds);
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS_MIN && begun.elapsed() > limit {
            break;
        }
        for client in &mut clients {
            client.ask(graph)?;
        }
    }
    let costs = clients.into_iter().map(|client| (client.server.kind(), client.costs));
    Ok(Row { name: graph.name.clone(), costs: costs.collect() })
}

/// Compares Chronolith's answer with Prometheus's; VictoriaMetrics does not extrapolate rates.
fn check_equal(answers: &[(Kind, Answer)]) -> Result<()> {
    let of = |wanted: Kind| answers.iter().find(|(kind, _)| *kind == wanted).map(|(_, answer)| answer);
    match (of(Kind::Chronolith), of(Kind::Prometheus)) {
        (Some(ours), Some(theirs)) => ours.check_equal(theirs),
        _ => Ok(()),
    }
}

impl Row {
    /// A figure of one server in one coding; NaN if it was not measured.
    fn figure(&self, kind: Kind, coding: Accept, figure: impl Fn(&Cost) -> f64) -> f64 {
        let of_server = self.costs.iter().find(|(found, _)| *found == kind);
        let cost = of_server.and_then(|(_, costs)| costs.iter().find(|(found, _)| *found == coding));
        cost.map_or(f64::NAN, |(_, cost)| figure(cost))
    }

    /// A figure of `peer` divided by the same of Chronolith.
    fn ratio(&self, peer: Kind, coding: Accept, figure: impl Fn(&Cost) -> f64) -> f64 {
        self.figure(peer, coding, &figure) / self.figure(Kind::Chronolith, coding, &figure)
    }
}

/// Time, CPU time and bytes of each coding, one column per server.
fn coding_tables(kinds: &[Kind], rows: &[Row]) -> Vec<Table> {
    let mut tables = Vec::new();
    for coding in CODINGS {
        let with = match coding {
            Accept::Gzip => "with gzip",
            Accept::Zstd => "with zstd",
            Accept::Plain => "without compression",
        };
        let mut add = |title: &str, decimals: usize, figure: &dyn Fn(&Cost) -> f64| {
            let mut table = Table::new(format!("{title} {with}"), kinds.iter().map(|kind| kind.name()));
            for row in rows {
                let cells = kinds.iter().map(|kind| row.figure(*kind, coding, figure));
                table.row(row.name.clone(), decimals, cells);
            }
            tables.push(table);
        };
        add("Milliseconds", 2, &Cost::wall_ms);
        add("CPU milliseconds of the server", 2, &Cost::cpu_ms);
        add("Bytes on the wire", 0, &|cost| cost.wire_bytes as f64);
    }
    tables
}

fn report(options: &Options, rows: &[Row], run: &mut Run) {
    let kinds = run.kinds();
    coding_tables(&kinds, rows).into_iter().for_each(|table| run.table(table));
    let peers: Vec<Kind> = kinds.into_iter().filter(|kind| *kind != Kind::Chronolith).collect();
    let mut ratios = Table::new(
        "Peer / Chronolith",
        peers.iter().flat_map(|peer| {
            ["time", "CPU", "time, plain", "CPU, plain"].map(|what| format!("{}: {what}", peer.name()))
        }),
    );
    for row in rows {
        let mut cells = Vec::new();
        for peer in &peers {
            let wall = |coding| row.ratio(*peer, coding, Cost::wall_ms);
            let cpu = |coding| row.ratio(*peer, coding, Cost::cpu_ms);
            let with_gzip = [("time", wall(Accept::Gzip)), ("CPU", cpu(Accept::Gzip))];
            cells.extend(with_gzip.map(|(_, ratio)| ratio));
            cells.extend([wall(Accept::Plain), cpu(Accept::Plain)]);
            for (what, found) in with_gzip {
                let name = format!("{}, {what} of {} / ours with gzip", row.name, peer.name());
                run.at_least(name, found, RATIO_MIN);
            }
        }
        ratios.row(row.name.clone(), 2, cells);
        if peers.contains(&Kind::Prometheus) {
            let bytes = 1.0 / row.ratio(Kind::Prometheus, Accept::Gzip, |cost| cost.wire_bytes as f64);
            run.at_most(format!("{}, bytes / Prometheus's", row.name), bytes, BYTES_RATIO_MAX);
        }
    }
    run.table(ratios);
    run.note(format!(
        "{} series per corpus, samples every 15 s, steps of {STEP_S} s; one connection",
        options.series
    ));
    run.note("all servers run at the same time and are asked in alternation");
}

#[cfg(test)]
mod tests;
