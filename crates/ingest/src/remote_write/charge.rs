//! Memory of what a body becomes, taken from the write budget before it is used.
//! Invariants: steps of [`CHARGE_STEP_BYTES`], so that the budget is asked seldom.

use chronolith_base::{BudgetExceeded, Reservation};

/// Bytes that one reservation adds.
const CHARGE_STEP_BYTES: usize = 256 << 10;

/// The part of the write budget that one request has taken.
pub(crate) struct Charge<'a> {
    used: usize,
    charged: usize,
    held: &'a mut Reservation,
}

impl<'a> Charge<'a> {
    pub(crate) fn new(held: &'a mut Reservation) -> Charge<'a> {
        Charge { used: 0, charged: 0, held }
    }

    /// Takes `bytes` more.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.used = self.used.saturating_add(bytes);
        if self.used > self.charged { self.grow() } else { Ok(()) }
    }

    #[cold]
    fn grow(&mut self) -> Result<(), BudgetExceeded> {
        let more = (self.used - self.charged).div_ceil(CHARGE_STEP_BYTES).saturating_mul(CHARGE_STEP_BYTES);
        self.held.grow(more as u64)?;
        self.charged = self.charged.saturating_add(more);
        Ok(())
    }
}
