//! Layout of a bucket: how the keys of its blocks begin.

/// Folders of the blocks in a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BucketLayout {
    /// `<tenant>/<ULID>/`, with a catalogue or without.
    #[default]
    Mimir,
    /// `<ULID>/`, as Thanos has it: all tenants read all blocks, and series have the external labels of their
    /// block. There is no catalogue.
    Thanos,
}
