//! Line graphs: axes, grid, lines and areas.
//!
//! Invariants: points outside of the bounds of their axis are drawn at its edge; a stack adds values of equal
//! times, and a missing one as zero.

use std::fmt::Write as _;

use jiff::tz::TimeZone;

use super::axis::{ValueAxis, time_labels};
use super::elements::{Anchor, Area, Stroke, Svg};
use super::legend::Style;
use super::options::{AreaMode, Bounds, LineMode, PictureOptions};
use crate::error::EvalError;
use crate::series::Series;

/// Width of a letter relative to its height, on average.
const LETTER_WIDTH: f64 = 0.6;
/// Points of one series per pixel; more are consolidated before.
const POINTS_PER_PIXEL: f64 = 4.0;

/// Points of a series: time in seconds, lower and upper value.
struct Line {
    times: Vec<i64>,
    step: i64,
    lows: Vec<f64>,
    highs: Vec<f64>,
    is_area: bool,
}

/// Draws the graph into the area.
pub(super) fn draw(
    svg: &mut Svg<'_>,
    mut area: Area,
    list: &[Series],
    styles: &[Style],
    range: (i64, i64),
    zone: &TimeZone,
    options: &PictureOptions,
) -> Result<(), EvalError> {
    let lines = lines_of(svg, list, styles, area.width(), options)?;
    let has_right = styles.iter().any(|style| style.axis == 1);
    let axes = [0, 1].map(|axis| axis_of(axis, &lines, styles, area.height(), options));
    let sides = if has_right { 2 } else { 1 };
    draw_titles(svg, &mut area, options);
    let label_width = |axis: &ValueAxis| {
        let longest = axis.marks.iter().map(|mark| axis.label(*mark).chars().count()).max().unwrap_or(0);
        (longest as f64 * LETTER_WIDTH + 1.0) * options.font_size
    };
    if !options.hidden.y_axis {
        for (side, axis) in axes.iter().enumerate().take(sides) {
            match side == 1 || options.lines.is_axis_right {
                true => area.right -= label_width(axis),
                false => area.left += label_width(axis),
            }
        }
    }
    if !options.hidden.x_axis {
        area.bottom -= options.font_size * 1.5;
    }
    draw_grid(svg, area, &axes[..sides], range, zone, options);
    assert_eq!(lines.len(), styles.len(), "each line has its style");
    for (line, style) in lines.iter().zip(styles) {
        svg.check()?;
        if !style.is_invisible {
            draw_line(svg, area, line, style, &axes[style.axis], range, options);
        }
    }
    Ok(())
}

/// Points of all series, stacked where they are.
fn lines_of(
    svg: &Svg<'_>,
    list: &[Series],
    styles: &[Style],
    width: f64,
    options: &PictureOptions,
) -> Result<Vec<Line>, EvalError> {
    let mut lines = Vec::with_capacity(list.len());
    let mut stack: std::collections::HashMap<i64, f64> = std::collections::HashMap::new();
    let point_max = (width * POINTS_PER_PIXEL).max(1.0) as usize;
    for (idx, (series, style)) in list.iter().zip(styles).enumerate() {
        svg.check()?;
        let mut series = series.clone();
        let count = series.values.len();
        if count > point_max {
            series.values_per_point = series.values_per_point.max(1) * count.div_ceil(point_max);
        }
        let step = series.step * series.values_per_point.max(1) as i64;
        let values = series.points()?;
        let is_stacked = style.is_stacked || options.lines.area == AreaMode::Stacked;
        let is_area = is_stacked
            || options.lines.area == AreaMode::All
            || options.lines.area == AreaMode::First && idx == 0;
        let mut line = Line { times: Vec::new(), step, lows: Vec::new(), highs: Vec::new(), is_area };
        for (at, value) in values.iter().enumerate() {
            let time = series.start + at as i64 * step;
            let value = if value.is_nan() && options.lines.draws_null_as_zero { 0.0 } else { *value };
            let low = if is_stacked { stack.get(&time).copied().unwrap_or(0.0) } else { 0.0 };
            let high = if is_stacked { low + value } else { value };
            if is_stacked && !high.is_nan() {
                stack.insert(time, high);
            }
            line.times.push(time);
            line.lows.push(low);
            line.highs.push(high);
        }
        lines.push(line);
    }
    Ok(lines)
}

/// The axis of one side for all of its series.
fn axis_of(
    side: usize,
    lines: &[Line],
    styles: &[Style],
    pixels: f64,
    options: &PictureOptions,
) -> ValueAxis {
    let mut low = f64::INFINITY;
    let mut high = f64::NEG_INFINITY;
    for (line, style) in lines.iter().zip(styles) {
        if style.axis != side || style.is_infinite {
            continue;
        }
        for value in line.highs.iter().filter(|value| value.is_finite()) {
            low = low.min(if line.is_area { value.min(0.0) } else { *value });
            high = high.max(*value);
        }
    }
    if low > high {
        (low, high) = (0.0, 1.0);
    }
    let bounds: Bounds = options.lines.bounds[side];
    ValueAxis::new(low, high, bounds, options.lines.log_base, options.lines.unit, pixels)
}

fn draw_titles(svg: &mut Svg<'_>, area: &mut Area, options: &PictureOptions) {
    let size = options.font_size;
    let middle = (area.top + area.bottom) / 2.0;
    let [left, right] = &options.lines.axis_titles;
    if !left.is_empty() {
        svg.upward_text(area.left + size, middle, left, size, &options.foreground);
        area.left += size * 1.5;
    }
    if !right.is_empty() {
        svg.upward_text(area.right, middle, right, size, &options.foreground);
        area.right -= size * 1.5;
    }
}

fn draw_grid(
    svg: &mut Svg<'_>,
    area: Area,
    axes: &[ValueAxis],
    range: (i64, i64),
    zone: &TimeZone,
    options: &PictureOptions,
) {
    let [major, minor] = &options.grid_colors;
    let size = options.font_size;
    for (side, axis) in axes.iter().enumerate() {
        for mark in &axis.marks {
            let y = area.bottom - axis.position(*mark) * area.height();
            if !options.hidden.grid && side == 0 {
                svg.line((area.left, y), (area.right, y), major, 0.4);
            }
            if !options.hidden.y_axis {
                let is_right = side == 1 || options.lines.is_axis_right;
                let (x, anchor) = match is_right {
                    true => (area.right + size * 0.5, Anchor::Start),
                    false => (area.left - size * 0.5, Anchor::End),
                };
                svg.text(x, y + size * 0.35, &axis.label(*mark), anchor, size, &options.foreground);
            }
        }
    }
    let format = options.lines.x_format.as_deref();
    for (time, label) in time_labels(range.0, range.1, area.width(), zone, format) {
        let x = x_of(time, area, range);
        if !options.hidden.grid {
            svg.line((x, area.top), (x, area.bottom), minor, 0.3);
        }
        if !options.hidden.x_axis {
            svg.text(x, area.bottom + size * 1.3, &label, Anchor::Middle, size, &options.foreground);
        }
    }
    if !options.hidden.grid {
        svg.line((area.left, area.bottom), (area.right, area.bottom), &options.foreground, 0.8);
    }
}

fn x_of(time: i64, area: Area, range: (i64, i64)) -> f64 {
    let seconds = range.1.saturating_sub(range.0).max(1) as f64;
    area.left + area.width() * (time.saturating_sub(range.0) as f64 / seconds).clamp(0.0, 1.0)
}

fn draw_line(
    svg: &mut Svg<'_>,
    area: Area,
    line: &Line,
    style: &Style,
    axis: &ValueAxis,
    range: (i64, i64),
    options: &PictureOptions,
) {
    let y_of = |value: f64| area.bottom - area.height() * axis.position(value).clamp(0.0, 1.0);
    if style.is_infinite {
        let marked = line.times.iter().zip(&line.highs).filter(|(_, value)| **value > 0.0);
        for (time, _) in marked {
            let x = x_of(*time, area, range);
            svg.line((x, area.top), (x, area.bottom), &style.color, style.line_width.max(0.5));
        }
        return;
    }
    let alpha = style.alpha.or(options.lines.area_alpha);
    for run in runs_of(&line.highs, options.lines.mode) {
        let mut points: Vec<(f64, f64, f64)> = Vec::with_capacity(run.len() * 2);
        for idx in run {
            let (Some(time), Some(low), Some(high)) =
                (line.times.get(idx), line.lows.get(idx), line.highs.get(idx))
            else {
                continue;
            };
            let x = x_of(*time, area, range);
            points.push((x, y_of(*low), y_of(*high)));
            if options.lines.mode == LineMode::Staircase {
                points.push((x_of(time + line.step, area, range), y_of(*low), y_of(*high)));
            }
        }
        let mut upper = String::new();
        for (idx, (x, _, y)) in points.iter().enumerate() {
            let _ = write!(upper, "{}{x:.1} {y:.1}", if idx == 0 { "M" } else { "L" });
        }
        if line.is_area {
            let mut closed = upper.clone();
            for (x, low, _) in points.iter().rev() {
                let _ = write!(closed, "L{x:.1} {low:.1}");
            }
            svg.fill(&(closed + "Z"), &style.color, alpha.unwrap_or(1.0));
        }
        if points.len() == 1 {
            // A single point is a line of no length, which round caps would show.
            let _ = write!(upper, "h0.5");
        }
        let opacity = if line.is_area { 1.0 } else { style.alpha.unwrap_or(1.0) };
        let stroke = Stroke { color: &style.color, width: style.line_width, opacity, dash: style.dash };
        svg.stroke(&upper, &stroke);
    }
}

/// Indexes of values that are drawn as one line each.
fn runs_of(values: &[f64], mode: LineMode) -> Vec<Vec<usize>> {
    let gap_max = match mode {
        LineMode::Connected(limit) => limit,
        LineMode::Slope | LineMode::Staircase => 0,
    };
    let mut runs: Vec<Vec<usize>> = Vec::new();
    for (idx, _) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|last| idx - last - 1 <= gap_max) => run.push(idx),
            _ => runs.push(vec![idx]),
        }
    }
    runs
}
