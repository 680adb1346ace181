//! Backfill: history of recording rules over a range of past time, as rounds of the server would have
//! recorded it (ADR 0131).
//!
//! Invariants: stages follow each other, and each goes over the whole range in chunks of rounds; a chunk is
//! durable before its progress is reported. Samples that are stored already are written only if they differ,
//! so a second run writes nothing. A tenant has one backfill at a time.
//! Not here: order of the rules and comparison of samples (`chronolith_rules::backfill`), protocols.

mod changes;
mod pace;
mod progress;
mod queries;
mod readers;
mod request;
mod run;

pub use self::progress::{BackfillEnd, BackfillProgress, BackfillTotals};
pub use self::queries::BackfillError;
pub use self::request::{Backfill, BackfillMode, BackfillRefusal, BackfillRequest, prepare, read_groups};
