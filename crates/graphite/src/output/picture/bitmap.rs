//! `format=png`: size and memory of a bitmap (`size`), and the rasteriser of its SVG (`raster`).
//!
//! Invariant: each side has at most [`BITMAP_SIDE_MAX`] pixels.
//! Not here: the elements (the parent), the memory budget of the request (the server).

#[cfg(feature = "png")]
mod raster;
mod size;

#[cfg(feature = "png")]
pub use raster::render_png;
pub use size::{BITMAP_SIDE_MAX, BitmapSize};

/// Refuses: this build has no rasteriser.
/// # Errors
/// [`EvalError::NotBuilt`].
#[cfg(not(feature = "png"))]
pub fn render_png(
    _svg: &str,
    _size: BitmapSize,
    _is_canceled: &dyn Fn() -> bool,
    _out: &mut Vec<u8>,
) -> Result<(), crate::error::EvalError> {
    Err(size::NOT_BUILT)
}

#[cfg(test)]
mod tests;
