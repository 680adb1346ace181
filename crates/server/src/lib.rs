//! The rim of the process: HTTP, limits against hostile clients, own metrics, start and stop.
//!
//! Holds: no request makes the process use memory without a budget, wait without a deadline or queue
//! without a bound; HTTP status codes are chosen here and nowhere below.
//! Not here: storage (`tsdb`), evaluation (`promql`), protocol bytes (`ingest`), flags and files of
//! settings (the binary).

mod active;
mod admission;
mod app;
mod batches;
pub mod duration;
mod http;
mod json;
pub mod limits;
mod memory;
mod metrics;
pub mod options;
mod range_cache;
mod request;
mod scrape;
pub mod serve;
mod small;
mod stop;
mod tenant;
mod threads;

pub use http::CorsOrigin;
pub use options::{Features, QueryOptions, Reload, Reloaded, ServerOptions, WriteOptions};
pub use serve::{RunError, Server};

/// Version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
