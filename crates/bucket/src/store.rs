//! Requests to object storage: counting, limits, retries, hedges.

pub mod config;
pub mod meter;
pub mod read;
pub mod request;
pub mod retry;

pub(crate) mod attempts;
pub(crate) mod backend;
pub(crate) mod hedge;
pub(crate) mod http;
pub(crate) mod limits;
pub(crate) mod local;
