//! `format=png`: rasterises the SVG of a picture.
//!
//! Invariants: a picture has the same bytes on every machine, since its only font is embedded (Ubuntu Light;
//! no font of the system is read); each side has at most [`BITMAP_SIDE_MAX`] pixels; one part of the SVG is
//! in memory as a tree at a time. Cancellation is checked before each part, each band of rows of a long
//! element, and while the pixels are encoded.
//! Not here: the elements (the parent), the memory budget of the request (the server).

use std::io::Write as _;
use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, PixmapMut, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{self, Tree};

use super::options::{HEIGHT_DEFAULT, WIDTH_DEFAULT, asked_side};
use crate::error::EvalError;

/// Pixels of a side of a bitmap.
pub const BITMAP_SIDE_MAX: u32 = 4096;
/// Bytes of the SVG of a bitmap: bounds the time to draw it.
const BITMAP_SVG_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of SVG at which a part ends; an element may be longer.
const PART_BYTES: usize = 8 * 1024;
/// Rows that are drawn at a time of a part with a longer element: a line of a point per pixel can cross each
/// row thousands of times.
const BAND_ROWS: usize = 64;
/// Rows that are encoded between two checks for cancellation.
const ENCODED_ROWS: usize = 64;
/// End of the document.
const CLOSING: &str = "</svg>";
const BYTES_PER_PIXEL: usize = 4;
/// Bytes of the tree of a part per byte of SVG, at most.
const TREE_BYTES_PER_SVG_BYTE: usize = 8;

/// Fonts of all pictures.
static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().next().and_then(|face| face.families.first()).map(|(name, _)| name.clone());
    fonts.set_sans_serif_family(family.unwrap_or_default());
    Arc::new(fonts)
});

/// Size of a bitmap in pixels: each side from 1 to [`BITMAP_SIDE_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitmapSize {
    width: u32,
    height: u32,
}

impl BitmapSize {
    /// Reads `width` and `height`; `get` returns the text of a parameter. One that does not parse has its
    /// default.
    /// # Errors
    /// [`EvalError::Limit`] for a side of more than [`BITMAP_SIDE_MAX`] pixels.
    pub fn new<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Result<BitmapSize, EvalError> {
        let side = |name: &'static str, what: &'static str, default: f64| {
            // As the SVG rounds its size.
            let pixels = asked_side(get(name), default).round_ties_even();
            match pixels <= f64::from(BITMAP_SIDE_MAX) {
                true => Ok(pixels as u32),
                false => Err(EvalError::Limit { what, found: pixels as u64, limit: BITMAP_SIDE_MAX.into() }),
            }
        };
        Ok(BitmapSize {
            width: side("width", "pixels of width", WIDTH_DEFAULT)?,
            height: side("height", "pixels of height", HEIGHT_DEFAULT)?,
        })
    }

    /// Bytes of the SVG and of what [`render_png`] allocates for it, at most, but for its result.
    pub fn memory_bytes(self, svg: &str) -> u64 {
        let pixels = u64::from(self.width) * u64::from(self.height) * BYTES_PER_PIXEL as u64;
        let longest_element = svg.lines().map(str::len).max().unwrap_or(0);
        let part = svg.len().min(PART_BYTES + longest_element);
        pixels + (svg.len() + part * TREE_BYTES_PER_SVG_BYTE) as u64
    }
}

/// Appends the PNG (RGB, 8 bits) of an SVG that [`super::render_svg`] has made with the same parameters.
/// # Errors
/// [`EvalError::Limit`] for an SVG of more than 16 MiB, [`EvalError::Canceled`].
pub fn render_png(
    svg: &str,
    size: BitmapSize,
    is_canceled: &dyn Fn() -> bool,
    out: &mut Vec<u8>,
) -> Result<(), EvalError> {
    if svg.len() > BITMAP_SVG_BYTES_MAX {
        let found = svg.len() as u64;
        let limit = BITMAP_SVG_BYTES_MAX as u64;
        return Err(EvalError::Limit { what: "bytes of the drawing", found, limit });
    }
    let mut pixels =
        Pixmap::new(size.width, size.height).ok_or_else(|| refused(&"a bitmap without pixels"))?;
    // After the declaration and the tag of the document each line is an element of its own.
    let mut lines = svg.split_inclusive('\n').skip(1);
    let opening = lines.next().unwrap_or_default();
    let mut part = String::from(opening);
    let mut lines = lines.take_while(|line| !line.starts_with(CLOSING)).peekable();
    while let Some(line) = lines.next() {
        part.push_str(line);
        if part.len() < PART_BYTES && lines.peek().is_some() {
            continue;
        }
        part.push_str(CLOSING);
        let is_long = part.len() > 2 * PART_BYTES;
        let row_count = if is_long { BAND_ROWS } else { pixels.height() as usize };
        draw(&part, row_count, is_canceled, &mut pixels)?;
        part.truncate(opening.len());
    }
    encode(&pixels, is_canceled, out)
}

/// Draws the elements of a document, `row_count` rows at a time.
fn draw(
    svg: &str,
    row_count: usize,
    is_canceled: &dyn Fn() -> bool,
    pixels: &mut Pixmap,
) -> Result<(), EvalError> {
    check(is_canceled)?;
    let options = usvg::Options { fontdb: FONTS.clone(), ..usvg::Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| refused(&error))?;
    let width = pixels.width();
    let row_bytes = width as usize * BYTES_PER_PIXEL;
    let mut top = 0.0;
    for band in pixels.data_mut().chunks_mut(row_bytes * row_count) {
        check(is_canceled)?;
        let height = (band.len() / row_bytes) as u32;
        let Some(mut band) = PixmapMut::from_bytes(band, width, height) else { break };
        resvg::render(&tree, Transform::from_translate(0.0, -top), &mut band);
        top += height as f32;
    }
    Ok(())
}

fn check(is_canceled: &dyn Fn() -> bool) -> Result<(), EvalError> {
    if is_canceled() { Err(EvalError::Canceled) } else { Ok(()) }
}

/// Appends the pixels as PNG without transparency: the background covers all of them.
fn encode(pixels: &Pixmap, is_canceled: &dyn Fn() -> bool, out: &mut Vec<u8>) -> Result<(), EvalError> {
    let encoded = encode_until(pixels, is_canceled, out).map_err(|error| refused(&error))?;
    if encoded { Ok(()) } else { Err(EvalError::Canceled) }
}

/// As [`encode`]; returns false if it was canceled.
fn encode_until(
    pixels: &Pixmap,
    is_canceled: &dyn Fn() -> bool,
    out: &mut Vec<u8>,
) -> Result<bool, png::EncodingError> {
    let mut encoder = png::Encoder::new(out, pixels.width(), pixels.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header()?;
    let mut rows = writer.stream_writer()?;
    let mut row: Vec<u8> = Vec::with_capacity(pixels.width() as usize * 3);
    for (idx, rgba) in pixels.data().chunks(pixels.width() as usize * BYTES_PER_PIXEL).enumerate() {
        if idx % ENCODED_ROWS == 0 && is_canceled() {
            return Ok(false);
        }
        row.clear();
        row.extend(rgba.chunks(BYTES_PER_PIXEL).flat_map(|pixel| pixel.iter().take(3)));
        rows.write_all(&row)?;
    }
    rows.finish()?;
    writer.finish()?;
    Ok(true)
}

fn refused(error: &dyn std::fmt::Display) -> EvalError {
    EvalError::Parameter(format!("picture: {error}"))
}

#[cfg(test)]
mod tests;
