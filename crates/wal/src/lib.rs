//! The write-ahead log: frames are appended in order, group-committed into segment files, and replayed at
//! startup.
//!
//! Invariant: [`Wal::wait_durable`] returns `Ok` only once every frame up to its position is as durable as
//! the sync mode promises; after a failed write or sync the log is poisoned and writes nothing more.
//! Everything is synchronous.
//! Not here: content and bytes of frames (`format`), choice of the frames that a restart still needs
//! (`head`).

mod control;
mod counters;
mod found_segment;
mod frame_stream;
mod group_commit;
mod last_position;
mod log;
mod options;
mod poison;
mod recovery;
mod segment;
mod skip;
mod spare;

pub use counters::{WalStats, queued_bytes_of_thread};
pub use found_segment::{Segment, SegmentEnd};
pub use frame_stream::{BlockBuffers, FrameBlock, FrameStream, zeros_to_end};
pub use group_commit::WalPosition;
pub use last_position::FoundPosition;
pub use log::Wal;
pub use options::{FileError, SyncMode, WalError, WalOptions};
pub use poison::PoisonOnPanic;
pub use recovery::Recovery;
