//! Requests to object storage: counting, limits, retries, hedges.

pub mod meter;
pub mod request;
pub mod retry;

pub(crate) mod hedge;
pub(crate) mod http;
pub(crate) mod limits;
