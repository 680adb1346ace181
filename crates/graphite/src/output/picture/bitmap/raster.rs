//! Rasteriser of `format=png`: resvg draws the SVG, png encodes the pixels. Compiled with the feature `png`.
//!
//! Invariants: a picture has the same bytes on every machine, since its only font is embedded (Ubuntu Light;
//! no font of the system is read); one part of the SVG is in memory as a tree at a time. Cancellation is
//! checked before each part, each band of rows of a long element, and while the pixels are encoded.
//! Not here: limits of the size (the parent).

use std::io::Write as _;
use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, PixmapMut, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{self, Tree};

use super::size::{BYTES_PER_PIXEL, BitmapSize, PART_BYTES};
use crate::error::EvalError;

/// Bytes of the SVG of a bitmap: bounds the time to draw it.
const BITMAP_SVG_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Rows that are drawn at a time of a part with a longer element: a line of a point per pixel can cross each
/// row thousands of times.
const BAND_ROWS: usize = 64;
/// Rows that are encoded between two checks for cancellation.
const ENCODED_ROWS: usize = 64;
/// End of the document.
const CLOSING: &str = "</svg>";

/// Fonts of all pictures.
static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().next().and_then(|face| face.families.first()).map(|(name, _)| name.clone());
    fonts.set_sans_serif_family(family.unwrap_or_default());
    Arc::new(fonts)
});

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
