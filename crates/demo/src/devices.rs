//! Devices in cold rooms: gauges each minute, and an outage of the network, whose samples come hours later.
//!
//! Invariant: the samples of the outage are out-of-order: newer ones of the same series are sent before.

use crate::column::{Column, Source};
use crate::draws::Draws;
use crate::metric;
use crate::tenant::Tenant;
use crate::timeline::Step;

const SET_POINT_CELSIUS: f64 = -18.0;

/// A device with two gauges.
pub(crate) struct Device {
    draws: Draws,
    celsius: f64,
    volts: f64,
    columns: Vec<Column>,
    backlog: Vec<Column>,
}

impl Device {
    pub(crate) fn new(seed: u64, idx: usize) -> Device {
        let name = format!("cold-room-{:02}", idx + 1);
        let mut draws = Draws::new(seed, &name);
        let columns = || -> Vec<Column> {
            let labels = [("device", name.as_str()), ("site", "warehouse")];
            [&metric::TEMPERATURE, &metric::BATTERY].map(|metric| Column::new(metric, &labels)).into()
        };
        let mut backlog = columns();
        // The series is known by then.
        backlog.iter_mut().for_each(|column| column.is_known = true);
        let celsius = SET_POINT_CELSIUS + draws.between(-1.0, 1.0);
        let volts = draws.between(3.5, 4.1);
        Device { draws, celsius, volts, columns: columns(), backlog }
    }
}

impl Source for Device {
    fn tenant(&self) -> Tenant {
        Tenant::Shop
    }

    fn advance(&mut self, step: &Step) {
        if !step.is_slow {
            return;
        }
        self.celsius += 0.1 * (SET_POINT_CELSIUS - self.celsius) + 0.15 * self.draws.normal();
        self.volts = (self.volts - 1e-5).max(3.0);
        let columns = if step.is_outage { &mut self.backlog } else { &mut self.columns };
        columns[0].push(step.time_ms, (self.celsius * 10.0).round() / 10.0);
        columns[1].push(step.time_ms, (self.volts * 1000.0).round() / 1000.0);
    }

    fn columns(&mut self) -> &mut [Column] {
        &mut self.columns
    }

    fn backlog(&mut self) -> &mut [Column] {
        &mut self.backlog
    }
}
