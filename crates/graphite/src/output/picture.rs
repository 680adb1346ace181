//! `format=svg`, and `format=png` made of it: line graphs and pies with the drawing parameters of
//! graphite-web.
//!
//! Invariants: the drawing is our own; colours, defaults and meanings of parameters are graphite-web's. Text
//! of series and parameters is escaped. A value that is not there breaks a line, unless the line mode joins
//! it. SVG is in every build; PNG needs the feature `png`.
//! Not here: HTTP.

mod axis;
mod bitmap;
mod colors;
mod elements;
mod legend;
mod lines;
mod options;
mod pie;

pub use bitmap::{BITMAP_SIDE_MAX, BitmapSize, render_png};
pub use options::{GraphType, PictureOptions, Unit};

use crate::error::EvalError;
use crate::series::Series;
use elements::{Anchor, Area, Svg};
use jiff::tz::TimeZone;

/// Series of one picture.
const SERIES_MAX: usize = 5000;

/// Appends a picture of the series over `(from, until]`, in seconds.
/// # Errors
/// [`EvalError::Limit`] for more than 5000 series, [`EvalError::Parameter`] if a consolidation is unknown,
/// [`EvalError::Canceled`].
pub fn render_svg(
    list: &[Series],
    range: (i64, i64),
    zone: &TimeZone,
    options: &PictureOptions,
    is_canceled: &dyn Fn() -> bool,
    out: &mut String,
) -> Result<(), EvalError> {
    if list.len() > SERIES_MAX {
        let found = list.len() as u64;
        return Err(EvalError::Limit { what: "series of a picture", found, limit: SERIES_MAX as u64 });
    }
    let mut svg = Svg::new(options.width, options.height, &options.background, is_canceled);
    let mut area = Area {
        left: options.margin,
        top: options.margin,
        right: (options.width - options.margin).max(options.margin + 1.0),
        bottom: (options.height - options.margin).max(options.margin + 1.0),
    };
    if list.is_empty() || list.iter().all(|series| series.values.is_empty()) {
        let x = options.width / 2.0;
        let y = options.height / 2.0;
        svg.text(x, y, "No Data", Anchor::Middle, 1.5 * options.font_size, "#c80032");
        svg.finish(out);
        return Ok(());
    }
    if !options.title.is_empty() {
        let size = options.font_size * 1.3;
        svg.text(
            options.width / 2.0,
            area.top + size,
            &options.title,
            Anchor::Middle,
            size,
            &options.foreground,
        );
        area.top += size * 1.5;
    }
    let styles = legend::styles(list, options);
    if !options.hides_legend(list.len()) {
        legend::draw(&mut svg, &mut area, &styles, options);
    }
    match options.graph_type {
        GraphType::Line => lines::draw(&mut svg, area, list, &styles, range, zone, options)?,
        GraphType::Pie => pie::draw(&mut svg, area, list, &styles, options)?,
    }
    svg.finish(out);
    Ok(())
}

#[cfg(test)]
mod tests;
