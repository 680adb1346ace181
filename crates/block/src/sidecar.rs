//! Sidecar of a block: written from a local block (`docs/bucket/sidecar.md` of the format).
//!
//! Invariant: everything in a sidecar is verified in the block before it is written.
//! Not here: the layout (`format`), the object in the bucket (`bucket`).

mod write;

pub use write::write_sidecar;
