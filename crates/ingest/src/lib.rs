//! Protocol bytes to [`chronolith_model::WriteBatch`], and answers to bytes: remote read, federation. Sees no
//! socket and no storage.

pub mod added_labels;
pub mod carbon;
pub mod exposition;
mod key_tail;
pub mod line_protocol;
pub mod metric_family;
mod number;
pub mod otlp;
pub mod protocols;
pub mod remote_read;
pub mod remote_write;
mod structural;
