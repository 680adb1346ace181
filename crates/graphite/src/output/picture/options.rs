//! Drawing parameters of a request.
//!
//! Invariant: a parameter that does not parse has its default, as in graphite-web; sizes are bounded.

use super::colors;

/// Pixels of a side.
const SIDE_MAX: f64 = 8000.0;
/// Pixels of `width` without the parameter.
pub(super) const WIDTH_DEFAULT: f64 = 330.0;
/// Pixels of `height` without the parameter.
pub(super) const HEIGHT_DEFAULT: f64 = 250.0;

/// Kind of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphType {
    /// Values over time.
    Line,
    /// One value per series.
    Pie,
}

/// Connection of neighbouring points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineMode {
    /// Straight lines, broken where a value is missing.
    Slope,
    /// Horizontal lines for the length of a step.
    Staircase,
    /// Straight lines over missing values, at most this many.
    Connected(usize),
}

/// Series that are filled down to the axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AreaMode {
    /// No series is filled.
    None,
    /// The first one.
    First,
    /// Each of them.
    All,
    /// Each, on top of the one before.
    Stacked,
}

/// Units of the labels of the value axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// K, M, G ... by 1000.
    Si,
    /// Ki, Mi, Gi ... by 1024.
    Binary,
    /// Seconds, minutes, hours ...
    Seconds,
    /// The same from milliseconds.
    Milliseconds,
    /// Numbers as they are.
    Plain,
}

/// Bounds of a value axis; `None` is the bound of the values.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Bounds {
    /// Lowest value.
    pub min: Option<f64>,
    /// Highest value.
    pub max: Option<f64>,
}

/// Parts of a picture that are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hidden {
    /// The legend; `None` leaves it out if there are more than ten series.
    pub legend: Option<bool>,
    /// Lines of the grid.
    pub grid: bool,
    /// Labels of times.
    pub x_axis: bool,
    /// Labels of values.
    pub y_axis: bool,
}

/// All parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct PictureOptions {
    /// Pixels.
    pub width: f64,
    /// Pixels.
    pub height: f64,
    /// Pixels on each side.
    pub margin: f64,
    /// Pixels of a letter.
    pub font_size: f64,
    /// Lines or a pie.
    pub graph_type: GraphType,
    /// Above the picture.
    pub title: String,
    /// Colour as `#rrggbb`, as all others.
    pub background: String,
    /// Colour of texts and axes.
    pub foreground: String,
    /// Colours of the horizontal and of the vertical lines of the grid.
    pub grid_colors: [String; 2],
    /// Colours given to series in turn, at least one.
    pub colors: Vec<String>,
    /// Left out parts.
    pub hidden: Hidden,
    /// Parameters of line graphs.
    pub lines: LineOptions,
    /// Method of the value of a pie: `average`, `maximum` or `minimum`.
    pub pie_mode: String,
}

/// Parameters of line graphs.
#[derive(Debug, Clone, PartialEq)]
pub struct LineOptions {
    /// Pixels.
    pub width: f64,
    /// Connection of points.
    pub mode: LineMode,
    /// Series that are filled.
    pub area: AreaMode,
    /// Opacity of areas, 0 to 1.
    pub area_alpha: Option<f64>,
    /// Missing values are zeros.
    pub draws_null_as_zero: bool,
    /// Titles along the left and along the right axis.
    pub axis_titles: [String; 2],
    /// Bounds of the left and of the right axis.
    pub bounds: [Bounds; 2],
    /// Base of a logarithmic axis.
    pub log_base: Option<f64>,
    /// Units of labels.
    pub unit: Unit,
    /// The labels of the only axis are on the right.
    pub is_axis_right: bool,
    /// `strftime` of the labels of times.
    pub x_format: Option<String>,
}

impl PictureOptions {
    /// Reads the parameters; `get` returns the text of one.
    pub fn new<'a>(get: impl Fn(&str) -> Option<&'a str>) -> PictureOptions {
        let given = |name: &str| get(name).map(str::trim).filter(|text| !text.is_empty());
        let number =
            |name: &str| given(name).and_then(|text| text.parse::<f64>().ok()).filter(|n| n.is_finite());
        let color = |name: &str, default: &str| {
            given(name).and_then(colors::parse).or_else(|| colors::parse(default)).unwrap_or_default()
        };
        let is_set = |name: &str| given(name).is_some_and(is_true);
        let is_bare = is_set("graphOnly");
        let hides_axes = is_set("hideAxes");
        let side = |name: &str, default: f64| asked_side(get(name), default).min(SIDE_MAX);
        let list = given("colorList").unwrap_or(colors::SERIES_COLORS);
        let mut series_colors: Vec<String> = list.split(',').filter_map(colors::parse).collect();
        if series_colors.is_empty() {
            series_colors.extend(colors::parse("blue"));
        }
        PictureOptions {
            width: side("width", WIDTH_DEFAULT),
            height: side("height", HEIGHT_DEFAULT),
            margin: if is_bare { 0.0 } else { number("margin").unwrap_or(10.0).clamp(0.0, SIDE_MAX / 4.0) },
            font_size: number("fontSize").unwrap_or(10.0).clamp(1.0, 100.0),
            graph_type: if get("graphType") == Some("pie") { GraphType::Pie } else { GraphType::Line },
            title: if is_bare { String::new() } else { given("title").unwrap_or("").to_owned() },
            background: color("bgcolor", "black"),
            foreground: color("fgcolor", "white"),
            grid_colors: [color("majorGridLineColor", "rose"), color("minorGridLineColor", "grey")],
            colors: series_colors,
            hidden: Hidden {
                legend: if is_bare { Some(true) } else { given("hideLegend").map(is_true) },
                grid: is_bare || hides_axes || is_set("hideGrid"),
                x_axis: is_bare || hides_axes || is_set("hideXAxis"),
                y_axis: is_bare || hides_axes || is_set("hideYAxis"),
            },
            lines: LineOptions::new(&given, &number, is_bare),
            pie_mode: given("pieMode").unwrap_or("average").to_owned(),
        }
    }

    /// Returns true if there is no legend for this many series.
    pub(super) fn hides_legend(&self, series_count: usize) -> bool {
        self.hidden.legend.unwrap_or(series_count > 10)
    }
}

impl LineOptions {
    fn new<'a>(
        given: &dyn Fn(&str) -> Option<&'a str>,
        number: &dyn Fn(&str) -> Option<f64>,
        is_bare: bool,
    ) -> LineOptions {
        let bound = |names: &[&str]| names.iter().find_map(|name| number(name));
        let side = |side: &str, single: bool| Bounds {
            min: bound(&[
                &format!("yMin{side}"),
                if single { "yMin" } else { "" },
                if single { "min" } else { "" },
            ]),
            max: bound(&[
                &format!("yMax{side}"),
                if single { "yMax" } else { "" },
                if single { "max" } else { "" },
            ]),
        };
        let title = |name: &str| given(name).filter(|_| !is_bare).unwrap_or("").to_owned();
        LineOptions {
            width: bound(&["lineWidth", "thickness"]).unwrap_or(1.2).clamp(0.0, 100.0),
            mode: match given("lineMode") {
                Some("staircase") => LineMode::Staircase,
                Some("connected") => LineMode::Connected(
                    number("connectedLimit").map_or(usize::MAX, |limit| limit.max(0.0) as usize),
                ),
                _ => LineMode::Slope,
            },
            area: match given("areaMode") {
                Some("first") => AreaMode::First,
                Some("all") => AreaMode::All,
                Some("stacked") => AreaMode::Stacked,
                _ => AreaMode::None,
            },
            area_alpha: number("areaAlpha").map(|alpha| alpha.clamp(0.0, 1.0)),
            draws_null_as_zero: given("drawNullAsZero").is_some_and(is_true),
            axis_titles: [title("vtitle"), title("vtitleRight")],
            bounds: [side("Left", true), side("Right", false)],
            log_base: match given("logBase") {
                Some("e") => Some(std::f64::consts::E),
                _ => number("logBase").filter(|base| *base > 1.0),
            },
            unit: match given("yUnitSystem").map(str::to_ascii_lowercase).as_deref() {
                Some("binary") => Unit::Binary,
                Some("sec") => Unit::Seconds,
                Some("msec") => Unit::Milliseconds,
                Some("none") => Unit::Plain,
                _ => Unit::Si,
            },
            is_axis_right: given("yAxisSide") == Some("right"),
            x_format: given("xFormat").map(str::to_owned),
        }
    }
}

/// Returns the pixels of a side that a parameter asks for, at least 1; `default` if it is no number.
pub(super) fn asked_side(text: Option<&str>, default: f64) -> f64 {
    let asked = text.and_then(|text| text.trim().parse::<f64>().ok()).filter(|pixels| pixels.is_finite());
    asked.unwrap_or(default).max(1.0)
}

fn is_true(text: &str) -> bool {
    !matches!(text.to_ascii_lowercase().as_str(), "false" | "0" | "")
}
