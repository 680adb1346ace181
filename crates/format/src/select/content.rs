//! Values of a select: the call, header, warnings, failure and counts of an answer.
//!
//! Not here: their bytes (`call`, `encode`, `decode`, `failure`).

use chronolith_base::DecodeError;
use chronolith_model::min_offsets::ReadConsistency;
use chronolith_model::query::{Read, SelectionExceeded, Wanted};
use chronolith_model::{Matcher, TenantId, TimeRange};

use crate::read::ReadCodecError;
use crate::record::RecordStore;

/// Version of the call and of the answer. Nodes answer calls of their own version alone.
pub const SELECT_VERSION: u8 = 1;
/// Bytes of the longest call.
pub const CALL_BYTES_MAX: usize = 1 << 20;

/// View of a store that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SelectView {
    /// All stores of the tenant as PromQL reads them, times in milliseconds. The store is the default one.
    Tenant,
    /// One store with series as floats, times in its unit.
    Store,
    /// One store with series of types and reserved labels, times in its unit.
    Typed,
}

impl SelectView {
    /// All views, in the order of their bytes.
    pub const ALL: [SelectView; 3] = [SelectView::Tenant, SelectView::Store, SelectView::Typed];
}

/// Limits of one answer; 0 = none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SelectLimits {
    /// Series.
    pub series_max: u64,
    /// Samples of all series.
    pub samples_max: u64,
    /// Bytes of the answer, frames included.
    pub bytes_max: u64,
}

/// Call of a node that evaluates a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectCall {
    /// Tenant that is read.
    pub tenant: TenantId,
    /// Store, by an id that all nodes have.
    pub store: RecordStore,
    /// View of the store.
    pub view: SelectView,
    /// Milliseconds that are left for the answer; 0 = no deadline.
    pub deadline_ms: u64,
    /// Limits of the answer.
    pub limits: SelectLimits,
    /// Number of the catalogue of blocks that the caller reads; 0 = none.
    pub catalogue: u64,
    /// Records of the replicated log that the answer has to see.
    pub consistency: ReadConsistency,
    /// Question that is answered.
    pub question: SelectQuestion,
}

/// Question of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectQuestion {
    /// Series, a list or an estimate, as a source of a query is asked for them.
    Read(Read),
    /// Metadata of metrics of the tenant.
    Metadata {
        /// Name of the metric; `None` = all.
        metric: Option<String>,
        /// Metrics at most; 0 = all.
        limit: u64,
    },
    /// Exemplars of the tenant's series.
    Exemplars {
        /// A series has to match all matchers of one of them.
        selectors: Vec<Vec<Matcher>>,
        /// Times of the exemplars, in milliseconds.
        range: TimeRange,
    },
    /// Ranges of time in which the store may have samples, in its unit.
    Ranges,
}

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnswerForm {
    /// Series with their samples.
    Series,
    /// An estimate of these.
    Estimate,
    /// Names or values of labels.
    List,
    /// Metadata of metrics.
    Metadata,
    /// Exemplars by series.
    Exemplars,
    /// Ranges of time.
    Ranges,
}

impl AnswerForm {
    /// All forms, in the order of their bytes.
    pub const ALL: [AnswerForm; 6] = [
        AnswerForm::Series,
        AnswerForm::Estimate,
        AnswerForm::List,
        AnswerForm::Metadata,
        AnswerForm::Exemplars,
        AnswerForm::Ranges,
    ];

    /// Returns the form of an answer to `question`; `None` for visits and searches, in place of which a list
    /// is wanted.
    #[must_use]
    pub fn of(question: &SelectQuestion) -> Option<AnswerForm> {
        match question {
            SelectQuestion::Read(read) => AnswerForm::of_read(&read.wanted),
            SelectQuestion::Metadata { .. } => Some(AnswerForm::Metadata),
            SelectQuestion::Exemplars { .. } => Some(AnswerForm::Exemplars),
            SelectQuestion::Ranges => Some(AnswerForm::Ranges),
        }
    }

    fn of_read(wanted: &Wanted) -> Option<AnswerForm> {
        match wanted {
            Wanted::Series => Some(AnswerForm::Series),
            Wanted::Estimate => Some(AnswerForm::Estimate),
            Wanted::LabelNames | Wanted::LabelValues { .. } => Some(AnswerForm::List),
            Wanted::EachLabelValue { .. } | Wanted::SoleLabelValues { .. } => None,
        }
    }
}

/// First frame of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerHeader {
    /// Form of the answer.
    pub form: AnswerForm,
    /// Number of the catalogue of blocks that the answering node reads; 0 = none.
    pub catalogue: u64,
}

/// Warnings of the sources of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerWarnings {
    /// Series or samples are missing.
    pub is_partial: bool,
    /// One text each.
    pub texts: Vec<String>,
}

/// Counts at the end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnswerCounts {
    /// Series.
    pub series: u64,
    /// Samples of all series.
    pub samples: u64,
}

/// Reason for the end of an answer before all series are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectFailure {
    /// Canceled at the answering node.
    Canceled,
    /// The deadline passed there.
    Timeout,
    /// Memory of a budget there.
    Memory {
        /// Text of the error.
        what: String,
    },
    /// A count reached its limit there.
    Limit {
        /// Counted items.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// A limit of the tenant.
    Selection(SelectionExceeded),
    /// Stored bytes are damaged.
    Corrupt {
        /// File of the answering node.
        path: String,
        /// Item, offset, expected and found.
        what: String,
    },
    /// A read of a file failed.
    Io {
        /// File of the answering node.
        path: String,
        /// Text of the error.
        what: String,
    },
    /// A source of the answering node does not answer, or the node itself is not ready.
    Unavailable {
        /// Source, and the last error.
        what: String,
    },
}

/// Reason why bytes are no call or no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// Bytes that the layout does not allow, or a regular expression that does not compile.
    #[error(transparent)]
    Content(#[from] ReadCodecError),
    /// Bytes of a node of another version.
    #[error("select of version {found}, this node has version {}", SELECT_VERSION)]
    Version {
        /// Version of the other node.
        found: u8,
    },
}

impl From<DecodeError> for SelectError {
    fn from(error: DecodeError) -> SelectError {
        SelectError::Content(ReadCodecError::Bytes(error))
    }
}

/// Reason why a series cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectEncodeError {
    /// Samples of a source that are not in order of time, which is damage.
    #[error("samples from {time} on are not in order of time")]
    Order {
        /// Time of the first of them.
        time: i64,
    },
    /// A text, label set or chunk that is longer than a frame.
    #[error("{what} of {bytes} bytes, of which a frame of a select answer has {max} at most")]
    TooLong {
        /// Item.
        what: &'static str,
        /// Bytes of the item.
        bytes: usize,
        /// Limit.
        max: usize,
    },
}
