//! Reservation of a query's memory that grows in steps: small allocations of operators are served from the
//! last step.
//!
//! Invariants: bytes are reserved before they are allocated; at most [`STEP_BYTES`] are reserved in advance.

use chronolith_base::Reservation;
use chronolith_model::query::ColumnType;

use super::error::RowError;

/// Bytes that are reserved in advance.
const STEP_BYTES: u64 = 64 << 10;
/// Bytes of an allocation besides its contents: the header of the allocator and rounding.
pub(crate) const ALLOCATION_BYTES: usize = 24;
/// Bytes of a text besides its bytes and the pointer to it: reference counts and the allocation.
pub(crate) const TEXT_BYTES: usize = 16 + ALLOCATION_BYTES;

/// Reserved memory of one operator.
pub(crate) struct Allowance {
    memory: Reservation,
    spare_bytes: u64,
}

impl Allowance {
    pub(crate) fn new(memory: Reservation) -> Allowance {
        Allowance { memory, spare_bytes: 0 }
    }

    /// Reserves bytes that are allocated next.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), RowError> {
        let bytes = bytes as u64;
        if bytes > self.spare_bytes {
            let missing = bytes - self.spare_bytes;
            // Near the limit there may be room for the bytes, but not for a whole step.
            if self.memory.grow(missing.saturating_add(STEP_BYTES)).is_ok() {
                self.spare_bytes += missing + STEP_BYTES;
            } else {
                self.memory.grow(missing)?;
                self.spare_bytes += missing;
            }
        }
        self.spare_bytes -= bytes;
        Ok(())
    }

    /// Releases bytes that are free again.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.spare_bytes += bytes as u64;
        if self.spare_bytes > 2 * STEP_BYTES {
            self.memory.shrink(self.spare_bytes - STEP_BYTES);
            self.spare_bytes = STEP_BYTES;
        }
    }
}

/// Bytes per row of a column in memory, with its mark of nulls; texts themselves not included.
pub(crate) fn row_bytes(column_type: ColumnType) -> usize {
    1 + match column_type {
        ColumnType::Float | ColumnType::Integer | ColumnType::Unsigned | ColumnType::Histogram => 8,
        ColumnType::Boolean => 1,
        ColumnType::Text => 16,
    }
}
