//! Elements of an SVG document.
//!
//! Invariants: texts are escaped; coordinates are finite and have one decimal. Drawing asks the document
//! before each series whether its request goes on.

use std::fmt::Write as _;

use crate::error::EvalError;

/// Part of a picture, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Area {
    pub(super) fn width(&self) -> f64 {
        (self.right - self.left).max(1.0)
    }

    pub(super) fn height(&self) -> f64 {
        (self.bottom - self.top).max(1.0)
    }
}

/// Side of a text that its position names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Line of a path.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stroke<'a> {
    pub(super) color: &'a str,
    pub(super) width: f64,
    pub(super) opacity: f64,
    /// Length of a dash in pixels; 0 for none.
    pub(super) dash: f64,
}

/// A document that is being written.
pub(super) struct Svg<'a> {
    body: String,
    width: f64,
    height: f64,
    is_canceled: &'a dyn Fn() -> bool,
}

impl<'a> Svg<'a> {
    pub(super) fn new(
        width: f64,
        height: f64,
        background: &str,
        is_canceled: &'a dyn Fn() -> bool,
    ) -> Svg<'a> {
        let mut body = String::new();
        let _ = writeln!(body, r#"<rect width="{width:.0}" height="{height:.0}" fill="{background}"/>"#);
        Svg { body, width, height, is_canceled }
    }

    /// Returns an error once the request of the picture has ended.
    pub(super) fn check(&self) -> Result<(), EvalError> {
        if (self.is_canceled)() { Err(EvalError::Canceled) } else { Ok(()) }
    }

    pub(super) fn text(&mut self, x: f64, y: f64, text: &str, anchor: Anchor, size: f64, color: &str) {
        let anchor = anchor_name(anchor);
        let text = escaped(text);
        let _ = writeln!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-size="{size:.1}" fill="{color}">{text}</text>"#
        );
    }

    /// Draws a text that reads upwards, centred at the point.
    pub(super) fn upward_text(&mut self, x: f64, y: f64, text: &str, size: f64, color: &str) {
        let text = escaped(text);
        let _ = writeln!(
            self.body,
            r#"<text transform="translate({x:.1} {y:.1}) rotate(-90)" text-anchor="middle" font-size="{size:.1}" fill="{color}">{text}</text>"#
        );
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &str, width: f64) {
        let _ = writeln!(
            self.body,
            r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" stroke="{color}" stroke-width="{width:.1}"/>"#,
            from.0, from.1, to.0, to.1
        );
    }

    pub(super) fn rectangle(&mut self, area: Area, fill: &str) {
        let _ = writeln!(
            self.body,
            r#"<rect x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}" fill="{fill}"/>"#,
            area.left,
            area.top,
            area.width(),
            area.height()
        );
    }

    /// Draws a path of the commands in `data`.
    pub(super) fn stroke(&mut self, data: &str, stroke: &Stroke<'_>) {
        let Stroke { color, width, opacity, dash } = stroke;
        let dashes = if *dash > 0.0 { format!(r#" stroke-dasharray="{dash:.1}""#) } else { String::new() };
        let _ = writeln!(
            self.body,
            r#"<path d="{data}" fill="none" stroke="{color}" stroke-width="{width:.1}" stroke-opacity="{opacity:.2}"{dashes}/>"#
        );
    }

    pub(super) fn fill(&mut self, data: &str, color: &str, opacity: f64) {
        let _ = writeln!(self.body, r#"<path d="{data}" fill="{color}" fill-opacity="{opacity:.2}"/>"#);
    }

    pub(super) fn finish(self, out: &mut String) {
        let Svg { body, width, height, .. } = self;
        let _ = write!(
            out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" \
             width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"sans-serif\">\n{body}</svg>\n"
        );
    }
}

fn anchor_name(anchor: Anchor) -> &'static str {
    match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    }
}

/// Text for content and attributes; characters that XML does not have become a replacement character.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
