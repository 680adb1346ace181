//! Context and kind of a request: folder, deadline, purpose, operation.
//! Invariants: the deadline is in the monotonic time of the `Clock` of the store.

use std::fmt;
use std::time::Duration;

use chronolith_base::Clock;
use chronolith_model::tenant::TenantId;

use crate::folder::Folder;

/// Reason of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// A query waits for it. Only these reads are hedged.
    Query,
    /// The catalogue of a tenant.
    Catalog,
    /// A block on its way to the bucket.
    Upload,
    /// Compaction, retention and cleanup.
    Maintenance,
    /// A command-line tool.
    Tool,
}

/// Folder, deadline and purpose of one or more requests.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// Folder of the objects; its tenant's limits and counters apply.
    pub folder: Folder,
    /// Deadline in nanoseconds of [`Clock::mono_ns`]; waiting and retries end there.
    pub deadline_ns: u64,
    /// Reason of the requests.
    pub purpose: Purpose,
}

impl RequestContext {
    /// A context whose deadline is `timeout` from now.
    #[must_use]
    pub fn with_timeout(
        clock: &dyn Clock,
        folder: impl Into<Folder>,
        timeout: Duration,
        purpose: Purpose,
    ) -> RequestContext {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = clock.mono_ns().saturating_add(timeout_ns);
        RequestContext { folder: folder.into(), deadline_ns, purpose }
    }

    /// Tenant whose limits and counters apply.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        self.folder.tenant()
    }

    /// Returns the time until the deadline, zero once it has passed.
    #[must_use]
    pub fn remaining(&self, clock: &dyn Clock) -> Duration {
        Duration::from_nanos(self.deadline_ns.saturating_sub(clock.mono_ns()))
    }
}

/// Kind of a request, as it is billed and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// Read of a range or of a whole object.
    Get,
    /// Write that replaces.
    Put,
    /// Write that fails if the object exists.
    Create,
    /// One page of keys.
    List,
    /// Size and ETag.
    Head,
    /// Removal of one object.
    Delete,
    /// Begin, part, completion or abort of a multipart upload.
    Multipart,
}

impl Operation {
    /// All operations, in the order of their numbers.
    pub const ALL: [Operation; 7] = [
        Operation::Get,
        Operation::Put,
        Operation::Create,
        Operation::List,
        Operation::Head,
        Operation::Delete,
        Operation::Multipart,
    ];

    /// Label value in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Get => "get",
            Operation::Put => "put",
            Operation::Create => "create",
            Operation::List => "list",
            Operation::Head => "head",
            Operation::Delete => "delete",
            Operation::Multipart => "multipart",
        }
    }

    /// Index into arrays by operation.
    #[must_use]
    pub(crate) fn idx(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
