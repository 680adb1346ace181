//! Sidecar of a block (`docs/bucket/sidecar.md` of the format): written from a local block, and read in place
//! of the index of a block in object storage.
//!
//! Invariant: everything in a sidecar is verified in the block before it is written; reading by it gives
//! what the index gives.
//! Not here: the layout (`format`), requests and objects (`bucket`).

mod block;
mod contents;
mod cursor;
mod finder;
mod from_index;
mod labels;
mod selection;
mod write;

pub use block::SidecarBlock;
pub use from_index::IndexSidecar;
pub use selection::SidecarSelection;
pub use write::write_sidecar;
