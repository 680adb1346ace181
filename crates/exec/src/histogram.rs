//! Computations on native histograms: sums and means (`fold`), operators (`element`), quantiles and the
//! like (`measure`), growth (`growth`).
//! Not here: histograms themselves (`model::histogram`), classic buckets, which are series.

pub mod element;
pub mod fold;
pub mod growth;
pub mod measure;
