//! Colours by name or hex digits. The names and their values are graphite-web's, since dashboards use them.

/// Colours of series in turn, if a request names none.
pub(super) const SERIES_COLORS: &str = "blue,green,red,purple,brown,yellow,aqua,grey,magenta,pink,gold,rose";

const NAMES: [(&str, [u8; 3]); 20] = [
    ("black", [0, 0, 0]),
    ("white", [255, 255, 255]),
    ("blue", [100, 100, 255]),
    ("green", [0, 200, 0]),
    ("red", [200, 0, 50]),
    ("yellow", [255, 255, 0]),
    ("orange", [255, 165, 0]),
    ("purple", [200, 100, 255]),
    ("brown", [150, 100, 50]),
    ("cyan", [0, 255, 255]),
    ("aqua", [0, 150, 150]),
    ("gray", [175, 175, 175]),
    ("grey", [175, 175, 175]),
    ("magenta", [255, 0, 255]),
    ("pink", [255, 100, 100]),
    ("gold", [200, 200, 0]),
    ("rose", [200, 150, 200]),
    ("darkblue", [0, 0, 255]),
    ("darkgreen", [0, 255, 0]),
    ("darkred", [255, 0, 0]),
];

/// Returns the colour as `#rrggbb`; `None` for a text that is no colour. Digits may have a `#` in front and
/// two digits of transparency at the end, which is left out.
pub(super) fn parse(text: &str) -> Option<String> {
    let text = text.trim();
    if let Some((_, [r, g, b])) = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        return Some(format!("#{r:02x}{g:02x}{b:02x}"));
    }
    let digits = text.strip_prefix('#').or_else(|| text.strip_prefix("%23")).unwrap_or(text);
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let rgb = digits.get(..6).filter(|_| is_hex && matches!(digits.len(), 6 | 8))?;
    Some(format!("#{}", rgb.to_ascii_lowercase()))
}
