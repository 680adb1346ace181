//! The server's own metrics: counters, and tables that declare each metric.
//! Not here: the form of a declaration (`service::metrics::definition`), counting within the store (`tsdb`).

pub(crate) mod background;
pub(crate) mod bucket;
pub(crate) mod carbon;
pub(crate) mod cluster;
pub(crate) mod compression;
pub(crate) mod configured_rules;
pub(crate) mod http;
pub(crate) mod notifier;
pub(crate) mod rules;
pub(crate) mod select;
pub(crate) mod stream;
pub(crate) mod tsdb;

use chronolith_service::metrics::line_protocol::LineProtocolMetrics;

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
    pub(crate) backfill: StreamMetrics,
    pub(crate) influx_query: StreamMetrics,
    select: select::SelectMetrics,
    pub(crate) background: background::BackgroundMetrics,
}

impl Metrics {
    /// Answers to selects of other nodes.
    pub(crate) fn select(&self) -> &select::SelectMetrics {
        &self.select
    }
}
