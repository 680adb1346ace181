//! Requests as they go to the server, with what the server will store of them.
//!
//! Invariants: a request is of one tenant and at most a little larger than `SAMPLES_MAX`; `stored` is exact.
//! Not here: HTTP (`client`).

use chronolith_ingest::remote_write::v2::encode::{RequestEncoder, SeriesExtras};

use crate::column::Column;
use crate::tenant::Tenant;

/// Samples after which a request is sent.
const SAMPLES_MAX: u64 = 40_000;

/// Database of the points in line protocol.
pub(crate) const DATABASE: &str = "warehouse";

/// Protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Remote write 2.0.
    RemoteWrite,
    /// `CREATE DATABASE`, as a form.
    CreateDatabase,
    /// Line protocol, times in seconds, into [`DATABASE`].
    Lines,
    /// Carbon's plaintext lines.
    Carbon,
}

/// Counts of stored items of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Series that no earlier request had.
    pub(super) new_series: u64,
    pub(super) floats: u64,
    pub(super) histograms: u64,
    pub(super) exemplars: u64,
}

/// A request and its effect.
#[derive(Debug)]
pub(crate) struct Request {
    pub(super) tenant: Tenant,
    pub(super) protocol: Protocol,
    /// As it is sent.
    pub(super) body: Vec<u8>,
    pub(super) stored: Counts,
    /// Samples or lines that the server refuses; it answers a request with any by 400.
    pub(super) refused_count: u64,
}

/// Collects series for requests in remote write 2.0.
pub(crate) struct WriteBuilder {
    tenant: Tenant,
    encoder: RequestEncoder,
    stored: Counts,
}

impl WriteBuilder {
    pub(crate) fn new(tenant: Tenant) -> WriteBuilder {
        WriteBuilder { tenant, encoder: RequestEncoder::new(), stored: Counts::default() }
    }

    pub(crate) fn tenant(&self) -> Tenant {
        self.tenant
    }

    /// Adds the samples of `column`, and clears it.
    pub(crate) fn push(&mut self, column: &mut Column) {
        let extras = SeriesExtras {
            exemplars: &column.exemplars,
            histograms: &column.histograms,
            kind: column.metric.kind,
            help: column.metric.help,
            unit: column.metric.unit,
        };
        let labels = column.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        self.encoder.push_series(labels, &column.samples, &extras);
        self.stored.new_series += u64::from(!column.is_known);
        self.stored.floats += column.samples.len() as u64;
        self.stored.histograms += column.histograms.len() as u64;
        self.stored.exemplars += column.exemplars.len() as u64;
        column.is_known = true;
        column.clear();
    }

    pub(crate) fn is_full(&self) -> bool {
        self.stored.floats + self.stored.histograms >= SAMPLES_MAX
    }

    /// The request, if it has samples. The next one begins empty.
    pub(crate) fn take(&mut self) -> Option<Request> {
        let stored = std::mem::take(&mut self.stored);
        if stored == Counts::default() {
            return None;
        }
        let body = self.encoder.compressed();
        self.encoder.clear();
        let protocol = Protocol::RemoteWrite;
        Some(Request { tenant: self.tenant, protocol, body, stored, refused_count: 0 })
    }
}
