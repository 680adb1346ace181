//! Time of `sumSeries` over 1,000 series of a day at 10 s, without storage.
//!
//! Usage: `sum_speed [TARGET]`; prints the best of seven evaluations.

#[path = "support/ready.rs"]
mod ready;

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_graphite::storage::FetchedSeries;
use chronolith_graphite::{Consolidation, EvalError, Limits, Request, evaluate, time};
use jiff::tz::TimeZone;
use ready::Ready;

const SERIES: usize = 1000;
const STEP: i64 = 10;
const DAY: i64 = 86_400;
const START: i64 = 1_700_000_000;

fn series(idx: usize) -> FetchedSeries {
    let name = format!("servers.web{idx}.cpu.user");
    let values =
        (0..DAY / STEP).map(|point| ((point as usize * 31 + idx * 17) % 1000) as f64 / 10.0).collect();
    FetchedSeries {
        tags: BTreeMap::from([("name".to_owned(), name.clone())]),
        name,
        start: START,
        end: START + DAY,
        step: STEP,
        values: Arc::new(values),
        consolidation: Consolidation::Average,
        x_files_factor: None,
    }
}

#[allow(clippy::disallowed_methods, reason = "this program measures time")]
fn main() -> Result<(), EvalError> {
    let target = std::env::args().nth(1).unwrap_or_else(|| "sumSeries(servers.*.cpu.user)".to_owned());
    let source = Ready { series: (0..SERIES).map(series).collect() };
    let from = (START - 1).to_string();
    let until = (START + DAY).to_string();
    let request = Request {
        targets: vec![target.clone()],
        range: time::request_range(Some(&from), Some(&until), &TimeZone::UTC, START + DAY)?,
        now: START + DAY,
        clock: START + DAY,
        zone: TimeZone::UTC,
        server_zone: TimeZone::UTC,
        max_data_points: None,
        x_files_factor: 0.0,
        template: BTreeMap::new(),
    };
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let start = std::time::Instant::now();
        let list = evaluate(&request, &source, Limits::default(), &|| false)?;
        best = best.min(start.elapsed().as_secs_f64());
        std::hint::black_box(list);
    }
    println!("{target}: {:.1} ms, {SERIES} series of {} points", best * 1e3, DAY / STEP);
    Ok(())
}
