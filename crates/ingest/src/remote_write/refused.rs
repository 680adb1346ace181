//! Series, histograms, exemplars and texts of metadata that were refused while the others of their request
//! are decoded.
//!
//! Invariants: only the first reason is kept, as Prometheus reports it. Items that are dropped do not fail
//! the request: senders would count its samples as lost.

use chronolith_model::labels::LabelsBuilder;
use chronolith_model::{Exemplar, ExemplarReject, ExemplarRejects};

/// Series and histograms of a request that were refused while the rest was decoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// Series.
    pub series_count: u64,
    /// Float samples of these series.
    pub sample_count: u64,
    /// Native histograms of these series.
    pub histogram_count: u64,
    /// Native histograms of other series that are not valid.
    pub invalid_histogram_count: u64,
    /// Exemplars, of these series and of others.
    pub exemplars: ExemplarRejects,
    /// Fault of the first one, in Prometheus's words.
    pub first: Option<String>,
    /// Names, help texts and units of metadata that are not UTF-8.
    pub metadata_count: u64,
    /// The first dropped text of metadata.
    pub metadata_first: Option<String>,
    /// The first dropped exemplar whose labels are not valid.
    pub exemplar_first: Option<String>,
}

/// Bytes of a dropped text that a message shows.
const SHOWN_BYTES_MAX: usize = 128;

impl Refused {
    /// Returns true if nothing was refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn note(&mut self, why: impl FnOnce() -> String) {
        if self.first.is_none() {
            self.first = Some(why());
        }
    }

    /// Returns the text of metadata if it is UTF-8; otherwise counts it and returns an empty one.
    pub(super) fn metadata_text<'a>(&mut self, what: &str, text: &'a [u8]) -> &'a str {
        std::str::from_utf8(text).unwrap_or_else(|_| {
            self.metadata_count += 1;
            let why = || format!("metadata {what} is not valid UTF-8: {}", shown(text));
            self.metadata_first.get_or_insert_with(why);
            ""
        })
    }

    /// Returns the exemplar with `labels`, or counts why they are not valid. Labels without a value are none.
    pub(super) fn exemplar(
        &mut self,
        labels: &mut LabelsBuilder,
        is_utf8: bool,
        value: f64,
        time_ms: i64,
    ) -> Option<Exemplar> {
        labels.remove_empty();
        labels.sort();
        let reason = if !is_utf8 {
            ExemplarReject::InvalidUtf8
        } else if labels.iter().any(|(name, _)| name.is_empty()) {
            ExemplarReject::EmptyLabelName
        } else if labels.repeated_name().is_some() {
            ExemplarReject::DuplicateLabel
        } else {
            return Some(Exemplar { labels: labels.finish(), value, time_ms });
        };
        self.exemplars.add(reason, 1);
        self.exemplar_first.get_or_insert_with(|| {
            let labels = labels.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(", ");
            format!(
                "exemplar at {time_ms} has labels that are not valid ({}): {}",
                reason.reason(),
                shown(labels.as_bytes())
            )
        });
        None
    }
}

/// The start of a text, without line breaks.
fn shown(text: &[u8]) -> String {
    let cut = if text.len() > SHOWN_BYTES_MAX { "..." } else { "" };
    let start = text.get(..SHOWN_BYTES_MAX).unwrap_or(text);
    format!("\"{}\"{cut}", String::from_utf8_lossy(start).escape_debug())
}
