//! Builds with and without the feature `png`.

use super::BitmapSize;
use super::size::NOT_BUILT;
use crate::error::EvalError;

/// Every size is refused for the same reason, also one that has none of its own.
#[test]
fn a_bitmap_needs_the_feature() {
    for side in ["", "0", "1", "330", "4096", "5000", "1e9", "-1", "nan", "x"] {
        for name in ["width", "height"] {
            let size = BitmapSize::new(|found| (found == name).then_some(side));
            let is_not_built = matches!(size, Err(EvalError::NotBuilt { .. }));
            assert_eq!(is_not_built, !cfg!(feature = "png"), "{name}={side}: {size:?}");
        }
    }
}

#[test]
fn the_refusal_names_format_feature_and_alternative() {
    assert_eq!(
        NOT_BUILT.to_string(),
        "format=png: this build lacks the feature `png`; format=svg is the same drawing"
    );
}
