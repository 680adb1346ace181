//! Benchmark `hostile-order`: one valid remote write request with a million samples of one series, in random,
//! descending and interleaved order, while another tenant writes and queries.
//!
//! Invariants: a query counts all samples of the request afterwards; the run fails if a request costs
//! [`CPU_MAX_SECONDS`] or more of the server's CPU time, or if the p99 of the other tenant's writes or
//! queries during it reaches [`P99_MAX_MS`].
//! Not here: one order after the other in process, with more orders (`hostile_order`, an example of the
//! head).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use chronolith_base::{Clock, Rng, SystemClock};

use crate::body::Body;
use crate::http::{QueryConnection, WriteConnection, query_path};
use crate::options::DataDirectory;
use crate::proc::cpu_seconds;
use crate::server::{Kind, Server, Setup};
use crate::traffic::{Values, labels};

const CPU_MAX_SECONDS: f64 = 1.0;
const P99_MAX_MS: f64 = 50.0;
const NEIGHBOUR_SERIES: usize = 50;
const NEIGHBOUR: &str = "neighbour";
/// Between two requests of a client of the neighbour: its own CPU time is counted too and should stay small.
const PAUSE: Duration = Duration::from_millis(5);
/// Run time of the neighbour before the hostile request.
const BEFORE: Duration = Duration::from_millis(300);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Samples of the request, 1 ms apart.
    #[arg(long, default_value_t = 1_000_000)]
    samples: usize,
    #[command(flatten)]
    data: DataDirectory,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Random,
    Descending,
    /// The first half and the second one in turn.
    Interleaved,
}

/// Runs all orders one after the other.
pub(crate) fn run(options: &Options) -> Result<()> {
    let setup = Setup {
        series_count: 1,
        flags: vec!["--multitenancy=true".to_owned(), "--self-scrape=off".to_owned()],
        ..Setup::default()
    };
    let server = Server::start_with(Kind::Chronolith, &options.data, setup)?;
    for order in [Order::Random, Order::Descending, Order::Interleaved] {
        let measured = Measured::of(&server, order, options.samples)?;
        println!("{}", measured.summary(order));
        measured.check(order)?;
    }
    Ok(())
}

/// Cost of one request, and latencies of its neighbour in the meantime.
struct Measured {
    body_bytes: usize,
    wall: Duration,
    /// CPU time of the whole server, including the neighbour's requests.
    cpu_seconds: f64,
    writes_ms: Vec<f64>,
    queries_ms: Vec<f64>,
}

impl Measured {
    fn of(server: &Server, order: Order, count: usize) -> Result<Measured> {
        let tenant = format!("{order:?}").to_lowercase();
        let end_ms = SystemClock::new().now_ms();
        let start_ms = end_ms - count as i64;
        let mut body = Body::with_counts([(labels(0), count)].into_iter());
        let times = order.times(count).into_iter();
        body.set_each(times.map(|time| (start_ms + time, (time % 1000) as f64)));
        let stop = AtomicBool::new(false);
        let measured = std::thread::scope(|scope| -> Result<Measured> {
            let writer = scope.spawn(|| repeat(&stop, writer(server.port)?));
            let reader = scope.spawn(|| repeat(&stop, reader(server.port)?));
            std::thread::sleep(BEFORE);
            let sent = send(server, &tenant, &body);
            stop.store(true, Ordering::Relaxed);
            let writes_ms = writer.join().expect("no panic")?;
            let queries_ms = reader.join().expect("no panic")?;
            let (wall, cpu_seconds) = sent?;
            Ok(Measured { body_bytes: body.bytes().len(), wall, cpu_seconds, writes_ms, queries_ms })
        })?;
        let range = format!("count_over_time({{cluster=\"bench-eu-1\"}}[{}ms])", count + 1);
        let mut connection = QueryConnection::open_as(server.port, &tenant)?;
        let (status, answer) = connection.get(&query_path(&range, end_ms))?;
        let expected = format!("\"{count}\"");
        ensure!(status == 200 && answer.contains(&expected), "not all samples are there: {answer:.300}");
        Ok(measured)
    }

    fn summary(&self, order: Order) -> String {
        format!(
            "{order:?}: {:.2} MB, {:.2} s, {:.2} s of CPU; neighbour: {} writes, p99 {:.1} ms; \
             {} queries, p99 {:.1} ms",
            self.body_bytes as f64 / 1e6,
            self.wall.as_secs_f64(),
            self.cpu_seconds,
            self.writes_ms.len(),
            p99(&self.writes_ms),
            self.queries_ms.len(),
            p99(&self.queries_ms),
        )
    }

    fn check(&self, order: Order) -> Result<()> {
        let cpu = self.cpu_seconds;
        ensure!(cpu < CPU_MAX_SECONDS, "{order:?}: {cpu:.2} s of CPU, allowed {CPU_MAX_SECONDS}");
        for (name, sorted) in [("writes", &self.writes_ms), ("queries", &self.queries_ms)] {
            let found = p99(sorted);
            ensure!(found < P99_MAX_MS, "{order:?}: p99 of {name} is {found:.1} ms, allowed {P99_MAX_MS}");
        }
        Ok(())
    }
}

impl Order {
    /// Each number below `count` once.
    fn times(self, count: usize) -> Vec<i64> {
        let mut times: Vec<i64> = (0..count as i64).collect();
        match self {
            Order::Random => {
                let rng = Rng::from_seed(1);
                (1..count).rev().for_each(|i| times.swap(i, rng.below(i as u64 + 1) as usize));
            }
            Order::Descending => times.reverse(),
            Order::Interleaved => {
                let half = count.div_ceil(2) as i64;
                let in_turn = (0..half).flat_map(|i| [i, half + i]);
                times = in_turn.filter(|&time| time < count as i64).collect();
            }
        }
        times
    }
}

/// Sends the request: how long the answer took, and the CPU time of the server meanwhile.
fn send(server: &Server, tenant: &str, body: &Body) -> Result<(Duration, f64)> {
    let mut connection = WriteConnection::open_as(server.port, "/api/v1/write", tenant)?;
    let cpu_before = cpu_seconds(server.pid())?;
    let start = Instant::now();
    connection.post(body.bytes())?;
    let wall = start.elapsed();
    Ok((wall, cpu_seconds(server.pid())?.since(cpu_before).total()))
}

/// Latencies of `request` until `stop` is set, in milliseconds, ascending.
fn repeat(stop: &AtomicBool, mut request: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let mut latencies_ms = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        request()?;
        latencies_ms.push(start.elapsed().as_secs_f64() * 1000.0);
        std::thread::sleep(PAUSE);
    }
    latencies_ms.sort_unstable_by(f64::total_cmp);
    Ok(latencies_ms)
}

fn writer(port: u16) -> Result<impl FnMut() -> Result<()>> {
    let mut connection = WriteConnection::open_as(port, "/api/v1/write", NEIGHBOUR)?;
    let mut values = Values::new(0, NEIGHBOUR_SERIES);
    let mut body = Body::new((0..NEIGHBOUR_SERIES).map(labels));
    Ok(move || {
        body.set(SystemClock::new().now_ms(), values.step());
        connection.post(body.bytes())
    })
}

fn reader(port: u16) -> Result<impl FnMut() -> Result<()>> {
    let mut connection = QueryConnection::open_as(port, NEIGHBOUR)?;
    Ok(move || {
        let now_ms = SystemClock::new().now_ms();
        let (status, body) = connection.get(&query_path("sum({cluster=\"bench-eu-1\"})", now_ms))?;
        ensure!(status == 200, "HTTP {status}: {body:.300}");
        Ok(())
    })
}

fn p99(sorted: &[f64]) -> f64 {
    let at = sorted.len().saturating_sub(1) * 99 / 100;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}
