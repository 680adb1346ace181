//! The server's own metrics: counters, and tables that declare each metric.
//! Not here: the form of a declaration (`service::metrics::definition`), counting within the store (`tsdb`).

mod background;
mod bucket;
mod carbon;
mod compression;
pub(crate) mod exposition;
pub(crate) mod gather;
mod http;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod scrape;
mod server;
mod stream;
mod tsdb;

#[cfg(test)]
mod tests;

use chronolith_service::metrics::line_protocol::LineProtocolMetrics;

pub(crate) use process::open_files_max;
pub(crate) use stream::StreamMetrics;

/// Counters of the whole server.
#[derive(Default)]
pub(crate) struct Metrics {
    pub(crate) http: http::HttpMetrics,
    pub(crate) compression: compression::CompressionMetrics,
    pub(crate) line_protocol: LineProtocolMetrics,
    pub(crate) remote_read: stream::RemoteReadMetrics,
    pub(crate) federate: StreamMetrics,
    pub(crate) search: StreamMetrics,
    pub(crate) influx_query: StreamMetrics,
    pub(crate) background: background::BackgroundMetrics,
}
