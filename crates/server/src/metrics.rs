//! The server's own metrics: counters, and tables that declare each metric (`definition`).
//! Not here: counting within the store (`tsdb`).

mod admission;
mod background;
mod bucket;
mod carbon;
mod compression;
mod counter;
mod definition;
pub(crate) mod exposition;
pub(crate) mod gather;
mod http;
mod line_protocol;
pub(crate) mod memory;
pub(crate) mod process;
mod query;
pub(crate) mod scrape;
mod server;
mod stream;
pub(crate) mod tenants;
mod tsdb;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use counter::{Counter, Seconds};
pub(crate) use definition::Metric;
pub(crate) use process::open_files_max;
pub(crate) use stream::StreamMetrics;

/// Counters of the whole server.
#[derive(Default)]
pub(crate) struct Metrics {
    pub(crate) http: http::HttpMetrics,
    pub(crate) compression: compression::CompressionMetrics,
    pub(crate) write: write::WriteMetrics,
    pub(crate) line_protocol: line_protocol::LineProtocolMetrics,
    pub(crate) query: query::QueryMetrics,
    pub(crate) remote_read: stream::RemoteReadMetrics,
    pub(crate) federate: StreamMetrics,
    pub(crate) search: StreamMetrics,
    pub(crate) influx_query: StreamMetrics,
    pub(crate) background: background::BackgroundMetrics,
}
