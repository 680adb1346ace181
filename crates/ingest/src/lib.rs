//! Protocol bytes to [`chronolith_model::WriteBatch`]. Sees no socket and no storage.

pub mod remote_write;
