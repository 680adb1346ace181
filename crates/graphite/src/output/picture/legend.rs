//! Colours and drawing properties of series, and the legend.

use super::colors;
use super::elements::{Anchor, Area, Svg};
use super::options::PictureOptions;
use crate::series::{DrawOption, Series};

/// Entries of a legend; the names of the others are left out.
const ENTRIES_MAX: usize = 50;
/// Width of a letter relative to its height, on average.
const LETTER_WIDTH: f64 = 0.6;

/// Drawing properties of a series.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Style {
    pub(super) name: String,
    pub(super) color: String,
    pub(super) line_width: f64,
    pub(super) alpha: Option<f64>,
    pub(super) dash: f64,
    pub(super) is_stacked: bool,
    pub(super) is_invisible: bool,
    pub(super) is_infinite: bool,
    /// Axis: 0 for the left one, 1 for the right one.
    pub(super) axis: usize,
}

/// Styles of the series; colours are given in turn to those without one.
pub(super) fn styles(list: &[Series], options: &PictureOptions) -> Vec<Style> {
    let mut turn = options.colors.iter().cycle();
    let styles = list.iter().map(|series| {
        let mut style = Style {
            name: series.name.clone(),
            color: String::new(),
            line_width: options.lines.width,
            alpha: None,
            dash: 0.0,
            is_stacked: false,
            is_invisible: false,
            is_infinite: false,
            axis: 0,
        };
        for option in &series.options {
            match option {
                DrawOption::Stacked => style.is_stacked = true,
                DrawOption::Invisible => style.is_invisible = true,
                DrawOption::Alpha(alpha) => style.alpha = Some(alpha.clamp(0.0, 1.0)),
                DrawOption::Color(color) => style.color = colors::parse(color).unwrap_or_default(),
                DrawOption::SecondYAxis => style.axis = 1,
                DrawOption::DrawAsInfinite => style.is_infinite = true,
                DrawOption::LineWidth(width) => style.line_width = width.clamp(0.0, 100.0),
                DrawOption::Dashed(dash) => style.dash = dash.clamp(0.0, 1000.0),
            }
        }
        if style.color.is_empty() && !style.is_invisible {
            style.color = turn.next().cloned().unwrap_or_default();
        }
        style
    });
    styles.collect()
}

/// Draws the legend at the bottom of the area, which gets smaller by it.
pub(super) fn draw(svg: &mut Svg<'_>, area: &mut Area, styles: &[Style], options: &PictureOptions) {
    let size = options.font_size;
    let entries: Vec<&Style> = styles.iter().filter(|style| !style.is_invisible).take(ENTRIES_MAX).collect();
    let longest = entries.iter().map(|style| style.name.chars().count()).max().unwrap_or(0);
    let entry_width = (longest as f64 * LETTER_WIDTH + 3.0) * size;
    let columns = (area.width() / entry_width).floor().clamp(1.0, 8.0) as usize;
    let line_height = size * 1.4;
    let rows = entries.len().div_ceil(columns);
    // At least half of the picture is for the graph.
    let rows = rows.min((area.height() / 2.0 / line_height).floor().max(0.0) as usize);
    let top = area.bottom - rows as f64 * line_height;
    for (idx, style) in entries.iter().enumerate().take(rows * columns) {
        let left = area.left + (idx % columns) as f64 * (area.width() / columns as f64);
        let y = top + (idx / columns) as f64 * line_height;
        let swatch = Area { left, top: y + size * 0.2, right: left + size, bottom: y + size * 1.2 };
        svg.rectangle(swatch, &style.color);
        svg.text(left + size * 1.5, y + size * 1.1, &style.name, Anchor::Start, size, &options.foreground);
    }
    area.bottom = top - size * 0.5;
}
