//! The rim of the process: HTTP, limits against hostile clients, own metrics, start and stop.
//!
//! Holds: no request makes the process use memory without a budget, wait without a deadline or queue
//! without a bound; HTTP status codes are chosen here and nowhere below.
//! Not here: storage (`tsdb`), evaluation (`promql`), protocol bytes (`ingest`), flags and files of
//! settings (the binary).

mod admission;
mod app;
pub mod duration;
mod http;
pub mod limits;
mod metrics;
pub mod options;
pub mod serve;
mod version;

pub use http::CorsOrigin;
pub use options::{Features, QueryOptions, Reload, Reloaded, ServerOptions, WriteOptions};
pub use serve::{RunError, Server};
pub use version::VERSION;
