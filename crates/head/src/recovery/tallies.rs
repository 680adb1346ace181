//! Samples by tenant and window while slices are loaded.
//!
//! Invariant: the windows of a tenant have the width of its unit.

use crate::series::windows::WindowTally;

/// Tallies of tenants, by their index.
#[derive(Default)]
pub(super) struct TenantTallies(Vec<Option<WindowTally>>);

impl TenantTallies {
    /// Returns the tally of a tenant whose windows are `width` wide.
    pub(super) fn of(&mut self, tenant: u32, width: i64) -> &mut WindowTally {
        let tenant = tenant as usize;
        if self.0.len() <= tenant {
            self.0.resize_with(tenant + 1, || None);
        }
        self.0[tenant].get_or_insert_with(|| WindowTally::new(width))
    }

    /// Returns the tally of a tenant that has one.
    pub(super) fn get_mut(&mut self, tenant: u32) -> Option<&mut WindowTally> {
        self.0.get_mut(tenant as usize)?.as_mut()
    }

    /// Adds the counts of `other`.
    pub(super) fn merge(&mut self, other: TenantTallies) {
        for (tenant, tally) in (0..).zip(other.0) {
            if let Some(mut tally) = tally {
                self.of(tenant, tally.width()).merge(&mut tally);
            }
        }
    }
}
