//! Removal of texts that no sample names, and of samples whose text is lost.
//!
//! Not here: dictionaries and their files (`texts`).

pub(crate) mod lost;
pub(crate) mod unused;
