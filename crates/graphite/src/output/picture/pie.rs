//! Pies: the share of each series in the sum of their averages, maxima or minima.

use super::elements::{Anchor, Area, Svg};
use super::legend::Style;
use super::options::PictureOptions;
use crate::error::EvalError;
use crate::series::Series;

/// Draws a pie into the area; values that are not above zero have no slice.
pub(super) fn draw(
    svg: &mut Svg<'_>,
    area: Area,
    list: &[Series],
    styles: &[Style],
    options: &PictureOptions,
) -> Result<(), EvalError> {
    let mut slices = Vec::new();
    for (series, style) in list.iter().zip(styles) {
        svg.check()?;
        let points = series.points()?;
        let present: Vec<f64> = points.iter().copied().filter(|value| value.is_finite()).collect();
        let value = match options.pie_mode.as_str() {
            "maximum" => present.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            "minimum" => present.iter().copied().fold(f64::INFINITY, f64::min),
            _ => present.iter().sum::<f64>() / present.len() as f64,
        };
        if value.is_finite() && value > 0.0 {
            slices.push((value, style));
        }
    }
    let total: f64 = slices.iter().map(|(value, _)| value).sum();
    let radius = area.width().min(area.height()) / 2.0;
    let x = (area.left + area.right) / 2.0;
    let y = (area.top + area.bottom) / 2.0;
    let at = |part: f64, radius: f64| {
        let angle = part * std::f64::consts::TAU;
        (x + radius * angle.sin(), y - radius * angle.cos())
    };
    let mut start = 0.0;
    for (value, style) in slices {
        let share = value / total;
        // The end of a whole circle is its start, which would be no arc at all.
        let end = start + share.min(0.9999);
        let (x1, y1) = at(start, radius);
        let (x2, y2) = at(end, radius);
        let is_large = u8::from(share > 0.5);
        let slice =
            format!("M{x:.1} {y:.1}L{x1:.1} {y1:.1}A{radius:.1} {radius:.1} 0 {is_large} 1 {x2:.1} {y2:.1}Z");
        svg.fill(&slice, &style.color, 1.0);
        let (text_x, text_y) = at(start + share / 2.0, radius * 0.7);
        let label = format!("{:.0}%", share * 100.0);
        svg.text(text_x, text_y, &label, Anchor::Middle, options.font_size, &options.foreground);
        start += share;
    }
    Ok(())
}
