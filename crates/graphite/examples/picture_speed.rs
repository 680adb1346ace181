//! Time of a PNG of ten series with 1,000 points each, and of the largest drawings.
//!
//! Usage: `picture_speed [FILE]`; prints the best of several drawings, and writes the first one to FILE.

#[path = "support/ready.rs"]
mod ready;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use chronolith_graphite::output::picture::{BitmapSize, PictureOptions, render_png, render_svg};
use chronolith_graphite::storage::FetchedSeries;
use chronolith_graphite::{Consolidation, EvalError, Limits, Request, evaluate, time};
use jiff::tz::TimeZone;
use ready::Ready;

const STEP: i64 = 10;
const START: i64 = 1_700_000_000;

fn series(idx: usize, points: i64) -> FetchedSeries {
    let name = format!("servers.web{idx}.cpu.user");
    let wave = |point: i64| (point as f64 / 40.0 + idx as f64).sin() * 20.0 + 10.0 * idx as f64;
    let noise = |point: i64| ((point as usize * 31 + idx * 17) % 100) as f64 / 20.0;
    FetchedSeries {
        tags: BTreeMap::from([("name".to_owned(), name.clone())]),
        name,
        start: START,
        end: START + STEP * points,
        step: STEP,
        values: Arc::new((0..points).map(|point| wave(point) + noise(point)).collect()),
        consolidation: Consolidation::Average,
        x_files_factor: None,
    }
}

/// Draws a picture `count` times and prints the best times.
#[allow(clippy::disallowed_methods, reason = "this program measures time")]
fn measure(
    given: &[(&str, &str)],
    target: &str,
    shape: (usize, i64),
    count: usize,
) -> Result<Vec<u8>, EvalError> {
    let until = START + STEP * shape.1;
    let request = Request {
        targets: vec![target.to_owned()],
        range: time::request_range(
            Some(&START.to_string()),
            Some(&until.to_string()),
            &TimeZone::UTC,
            until,
        )?,
        now: until,
        clock: until,
        zone: TimeZone::UTC,
        server_zone: TimeZone::UTC,
        max_data_points: None,
        x_files_factor: 0.0,
        template: BTreeMap::new(),
    };
    let limits = Limits { series_max: 10_000, points_max: 1 << 40, bytes_max: 1 << 34, targets_max: 10 };
    let source = Ready { series: (0..shape.0).map(|idx| series(idx, shape.1)).collect() };
    let list = evaluate(&request, &source, limits, &|| false)?;
    let get = |name: &str| given.iter().find(|(found, _)| *found == name).map(|(_, value)| *value);
    let options = PictureOptions::new(get);
    let size = BitmapSize::new(get)?;
    let mut svg_best = f64::INFINITY;
    let mut png_best = f64::INFINITY;
    let mut png = Vec::new();
    let mut svg_bytes = 0;
    for _ in 0..count {
        png.clear();
        let mut svg = String::new();
        let begin = Instant::now();
        render_svg(&list, (START, until), &TimeZone::UTC, &options, &|| false, &mut svg)?;
        let drawn = Instant::now();
        render_png(&svg, size, &|| false, &mut png)?;
        svg_best = svg_best.min((drawn - begin).as_secs_f64());
        png_best = png_best.min(drawn.elapsed().as_secs_f64());
        svg_bytes = svg.len();
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!(
        "{target} {shape:?} {given:?}: svg {:.2} ms, {svg_bytes} B; png {:.2} ms, {} B; {peak}",
        svg_best * 1e3,
        png_best * 1e3,
        png.len()
    );
    Ok(png)
}

#[allow(clippy::disallowed_methods, reason = "this program writes a picture to look at")]
fn main() -> Result<(), EvalError> {
    let small = [("width", "600"), ("height", "300"), ("title", "CPU"), ("vtitle", "percent")];
    let png = measure(&small, "servers.*.cpu.user", (10, 1000), 50)?;
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(path, png).map_err(|error| EvalError::Storage(error.to_string()))?;
    }
    let large = [("width", "4096"), ("height", "4096")];
    measure(&large, "servers.*.cpu.user", (10, 1000), 3)?;
    measure(&large, "servers.*.cpu.user", (70, 16_000), 1)?;
    measure(&large, "dashed(servers.*.cpu.user,0.1)", (10, 16_000), 1)?;
    Ok(())
}
