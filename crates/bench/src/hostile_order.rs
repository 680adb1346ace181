//! Benchmark `hostile-order`: one valid remote write request with a million samples of one series, in random,
//! descending and interleaved order, while another tenant writes and queries.
//!
//! Invariants: a query counts all samples of the request afterwards; the run fails if a request costs
//! [`CPU_MAX_SECONDS`] or more of the server's CPU time, or if the p99 of the other tenant's writes or
//! queries during it reaches [`P99_MAX_MS`].
//! Not here: one order after the other in process, with more orders (`hostile_order`, an example of the
//! head).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use chronolith_base::{Clock, Rng, SystemClock};

use crate::body::Body;
use crate::driver::{Benchmark, Run};
use crate::http::{QueryConnection, WriteConnection, query_path};
use crate::latency::{at, repeat};
use crate::proc::{Spent, Stopwatch};
use crate::report::{Figure, Table};
use crate::server::{Kind, Server, Setup};
use crate::traffic::{SeriesBody, labels};

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
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Random,
    Descending,
    /// The first half and the second one in turn.
    Interleaved,
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        Ok(vec![Kind::Chronolith])
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        let setup = Setup::new(1).own_flags(["--multitenancy=true", "--self-scrape=off"]);
        let mut measured = Vec::new();
        run.measure_server(Kind::Chronolith, setup, |server| {
            for order in Order::ALL {
                measured.push(Measured::of(server, order, self.samples)?);
            }
            Ok(())
        })?;
        let mut table = Table::new(
            format!("one request of {} samples", self.samples),
            Order::ALL.map(|order| format!("{order:?}")),
        );
        table.figures(&FIGURES, measured.iter());
        run.table(table);
        for (order, one) in Order::ALL.iter().zip(&measured) {
            run.keep(&format!("{order:?}"), one.check());
        }
        Ok(())
    }
}

/// Cost of one request, and latencies of its neighbour in the meantime.
struct Measured {
    body_bytes: usize,
    /// CPU time of the whole server, including the neighbour's requests.
    spent: Spent,
    writes_ms: Vec<f64>,
    queries_ms: Vec<f64>,
}

const FIGURES: [Figure<Measured>; 7] = [
    ("request, MB", 2, |m| m.body_bytes as f64 / 1e6),
    ("answer, s", 2, |m| m.spent.wall_seconds),
    ("CPU, s", 2, |m| m.spent.cpu.total()),
    ("writes of the neighbour", 0, |m| m.writes_ms.len() as f64),
    ("p99 of writes, ms", 1, |m| at(&m.writes_ms, 0.99)),
    ("queries of the neighbour", 0, |m| m.queries_ms.len() as f64),
    ("p99 of queries, ms", 1, |m| at(&m.queries_ms, 0.99)),
];

impl Measured {
    fn of(server: &Server, order: Order, count: usize) -> Result<Measured> {
        let tenant = format!("{order:?}").to_lowercase();
        let end_ms = SystemClock::new().now_ms();
        let start_ms = end_ms - count as i64;
        let mut body = Body::with_counts([(labels(0), count)].into_iter());
        let times = order.times(count).into_iter();
        body.set_each(times.map(|time| (start_ms + time, (time % 1000) as f64)));
        let stop = AtomicBool::new(false);
        let is_over = || stop.load(Ordering::Relaxed);
        let measured = std::thread::scope(|scope| -> Result<Measured> {
            let writer = scope.spawn(|| repeat(PAUSE, is_over, writer(server.port)?));
            let reader = scope.spawn(|| repeat(PAUSE, is_over, reader(server.port)?));
            std::thread::sleep(BEFORE);
            let sent = send(server, &tenant, &body);
            stop.store(true, Ordering::Relaxed);
            let writes_ms = writer.join().expect("no panic")?;
            let queries_ms = reader.join().expect("no panic")?;
            Ok(Measured { body_bytes: body.bytes().len(), spent: sent?, writes_ms, queries_ms })
        })?;
        let range = format!("count_over_time({{cluster=\"bench-eu-1\"}}[{}ms])", count + 1);
        let mut connection = QueryConnection::open_as(server.port, &tenant)?;
        let (status, answer) = connection.get(&query_path(&range, end_ms))?;
        let expected = format!("\"{count}\"");
        ensure!(status == 200 && answer.contains(&expected), "not all samples are there: {answer:.300}");
        Ok(measured)
    }

    fn check(&self) -> Result<()> {
        let cpu = self.spent.cpu.total();
        ensure!(cpu < CPU_MAX_SECONDS, "{cpu:.2} s of CPU, allowed {CPU_MAX_SECONDS}");
        for (name, list_ms) in [("writes", &self.writes_ms), ("queries", &self.queries_ms)] {
            let found = at(list_ms, 0.99);
            ensure!(found < P99_MAX_MS, "p99 of {name} is {found:.1} ms, allowed {P99_MAX_MS}");
        }
        Ok(())
    }
}

impl Order {
    const ALL: [Order; 3] = [Order::Random, Order::Descending, Order::Interleaved];

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

/// Sends the request: time until the answer, and the CPU time of the server meanwhile.
fn send(server: &Server, tenant: &str, body: &Body) -> Result<Spent> {
    let mut connection = WriteConnection::open_as(server.port, tenant)?;
    let stopwatch = Stopwatch::start(server.pid())?;
    connection.post(body.bytes())?;
    stopwatch.spent()
}

fn writer(port: u16) -> Result<impl FnMut() -> Result<()>> {
    let mut connection = WriteConnection::open_as(port, NEIGHBOUR)?;
    let mut series = SeriesBody::new(0..NEIGHBOUR_SERIES);
    Ok(move || connection.post(series.step(SystemClock::new().now_ms())))
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
