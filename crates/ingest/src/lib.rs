//! Protocol bytes to [`chronolith_model::WriteBatch`], and those of remote read. Sees no socket and no storage.

pub mod remote_read;
pub mod remote_write;
