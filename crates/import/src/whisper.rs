//! Imports whisper files, in which carbon keeps the points of Graphite, into the Graphite store of a tenant.
//!
//! A part of the files, neighbours in the order of labels, is the unit of an import: it becomes blocks in one
//! pass that bypasses our own head and WAL (ADR 0018). The state file of the store names the parts that are
//! done.
//! Invariants: points that are left out are counted in the report; a repeated or interrupted import stores no
//! point twice; carbon may write to the files meanwhile.
//! Not here: the catalogue with the store, and locking the data directory (the caller).

mod compare;
mod error;
mod file;
mod header;
mod part;
mod path;
mod plan;
mod points;
mod reader;
mod report;
mod rollup;
mod rules;
mod run;
mod source;
mod windows;

pub use error::WhisperError;
pub use file::FileBuilder;
pub use header::{ARCHIVE_COUNT_MAX, FILE_BYTES_MAX, FileDamage, Header, StoredArchive, method_number};
pub use part::Comparison;
pub use path::PathReject;
pub use plan::{Part, divide};
pub use points::{FilePoints, SlotCounts, TimeSelection};
pub use reader::SourceReader;
pub use report::{DIFFERENCES_NAMED_MAX, LAYOUTS_NAMED_MAX, LayoutCounts, RejectedFiles, WhisperReport};
pub use rollup::FileLayout;
pub use rules::{RULE_DIFFERENCES_NAMED_MAX, RuleReport, Rules, archives_text};
pub use run::{WhisperOptions, default_worker_count, inspect, run};
pub use source::{FILE_COUNT_MAX, WhisperFile, WhisperSource};
