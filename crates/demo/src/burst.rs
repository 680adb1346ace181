//! A burst of cardinality: for an hour, a release labels a gauge by the id of the cart.
//!
//! Invariant: a cart has samples for a minute; series that were sent and are over use no memory.

use crate::column::{Column, Source};
use crate::draws::Draws;
use crate::metric;
use crate::tenant::Tenant;
use crate::timeline::Step;

/// Steps for which a cart exists.
const CART_STEPS: usize = 4;

/// Carts of the burst.
pub(crate) struct Burst {
    draws: Draws,
    /// Carts that begin at each step.
    carts_per_step: usize,
    /// In the order in which they began.
    columns: Vec<Column>,
    /// Number of columns that were begun at each of the newest steps, the oldest first.
    open: Vec<usize>,
}

impl Burst {
    pub(crate) fn new(seed: u64, carts_per_step: usize) -> Burst {
        Burst { draws: Draws::new(seed, "carts"), carts_per_step, columns: Vec::new(), open: Vec::new() }
    }

    fn begin_carts(&mut self) {
        for _ in 0..self.carts_per_step {
            let cart_id = format!("c-{:012x}", self.draws.bits() >> 16);
            self.columns.push(Column::new(&metric::CART, &[("service", "checkout"), ("cart_id", &cart_id)]));
        }
    }
}

impl Source for Burst {
    fn tenant(&self) -> Tenant {
        Tenant::Shop
    }

    fn advance(&mut self, step: &Step) {
        if !step.is_burst && self.columns.is_empty() {
            return;
        }
        self.open.push(if step.is_burst { self.carts_per_step } else { 0 });
        if step.is_burst {
            self.begin_carts();
        }
        if self.open.len() > CART_STEPS {
            self.open.remove(0);
        }
        let ended = self.columns.len() - self.open.iter().sum::<usize>();
        for column in &mut self.columns[ended..] {
            column.push(step.time_ms, 1.0 + self.draws.below(12) as f64);
        }
        // A column of a cart that is over is empty once it was sent; all that are over were sent together.
        if self.columns[..ended].iter().all(Column::is_empty) {
            self.columns.drain(..ended);
        }
    }

    fn columns(&mut self) -> &mut [Column] {
        &mut self.columns
    }
}

#[cfg(test)]
mod tests {
    use super::{Burst, CART_STEPS};
    use crate::column::{Column, Source};
    use crate::timeline::Timeline;

    #[test]
    fn carts_have_a_minute_of_samples_and_go_once_they_were_sent() {
        let line = Timeline::new(1_763_640_000_000, 24);
        let mut burst = Burst::new(1, 3);
        let mut counts = Vec::new();
        for window in line.windows() {
            for step in &window {
                burst.advance(step);
            }
            for column in burst.columns().iter_mut().filter(|column| !column.is_empty()) {
                counts.push(column.samples.len());
                column.clear();
            }
        }
        assert!(burst.columns().iter().all(Column::is_empty));
        burst.advance(&line.step(line.end_ms + 15_000));
        assert!(burst.columns().len() <= 3 * CART_STEPS, "{} columns", burst.columns().len());
        // An hour of 240 steps with three carts each. A window that ends within a minute of a cart splits it.
        assert_eq!(counts.iter().sum::<usize>(), 240 * 3 * CART_STEPS);
        assert!(counts.iter().all(|count| *count <= CART_STEPS));
    }
}
