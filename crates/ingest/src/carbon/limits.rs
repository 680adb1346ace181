//! Limits of inputs and paths.

/// Bytes of a line, and of a path, at most.
pub const LINE_BYTES_MAX: usize = 4096;
/// Bytes of one node of a path at most.
pub const NODE_BYTES_MAX: usize = 1024;
/// Bytes of wire keys in a batch before an input at most; the caller sends the batch to the store by then.
pub const BATCH_BYTES_MAX: usize = 1 << 30;
/// Bytes of one input at most: a read of a socket, a piece of a body, a frame.
pub const INPUT_BYTES_MAX: usize = 1 << 20;
/// Bytes of a prefix at most.
pub const PREFIX_BYTES_MAX: usize = 256;

/// Shortest point of an input in bytes, `a 1` and a newline.
const POINT_BYTES_MIN: usize = 4;
const _: () = assert!(
    BATCH_BYTES_MAX + INPUT_BYTES_MAX / POINT_BYTES_MIN * (LINE_BYTES_MAX + PREFIX_BYTES_MAX)
        < u32::MAX as usize
);
