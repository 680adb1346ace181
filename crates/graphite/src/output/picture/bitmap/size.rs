//! Size of a bitmap and the memory that it takes.
//!
//! Invariant: a build without the feature `png` refuses a bitmap before its series are read.
//! Not here: pixels (`raster`).

use crate::error::EvalError;
use crate::output::picture::options::{HEIGHT_DEFAULT, WIDTH_DEFAULT, asked_side};

/// Pixels of a side of a bitmap.
pub const BITMAP_SIDE_MAX: u32 = 4096;
/// Bytes of SVG at which a part of a drawing ends; an element may be longer.
pub(super) const PART_BYTES: usize = 8 * 1024;
pub(super) const BYTES_PER_PIXEL: usize = 4;
/// Bytes of the tree of a part per byte of SVG, at most.
pub(super) const TREE_BYTES_PER_SVG_BYTE: usize = 8;
/// Refusal of every bitmap by a build without the rasteriser.
pub(super) const NOT_BUILT: EvalError =
    EvalError::NotBuilt { what: "format=png", feature: "png", instead: "format=svg is the same drawing" };

/// Size of a bitmap in pixels: each side from 1 to [`BITMAP_SIDE_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitmapSize {
    pub(super) width: u32,
    pub(super) height: u32,
}

impl BitmapSize {
    /// Reads `width` and `height`; `get` returns the text of a parameter. One that does not parse has its
    /// default.
    /// # Errors
    /// [`EvalError::Limit`] for a side of more than [`BITMAP_SIDE_MAX`] pixels, [`EvalError::NotBuilt`] in a
    /// build without the feature `png`.
    pub fn new<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Result<BitmapSize, EvalError> {
        if !cfg!(feature = "png") {
            return Err(NOT_BUILT);
        }
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

    /// Bytes of the SVG and of what `render_png` allocates for it, at most, but for its result.
    pub fn memory_bytes(self, svg: &str) -> u64 {
        let pixels = u64::from(self.width) * u64::from(self.height) * BYTES_PER_PIXEL as u64;
        let longest_element = svg.lines().map(str::len).max().unwrap_or(0);
        let part = svg.len().min(PART_BYTES + longest_element);
        pixels + (svg.len() + part * TREE_BYTES_PER_SVG_BYTE) as u64
    }
}
