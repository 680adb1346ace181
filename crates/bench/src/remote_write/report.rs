//! Figures of `remote-write`. Not here: measurement (`remote_write`).

use super::{Measured, Phase, Scenario};
use crate::driver::Summary;
use crate::latency;
use crate::report::{Figure, MIB, grouped};

pub(super) const FIGURES: [Figure<Measured>; 19] = [
    ("samples/s, known series", 0, |m| m.steady.per_wall_second()),
    ("samples per server CPU second, known series", 0, |m| m.steady.per_cpu_second()),
    ("samples/s, every series new", 0, |m| m.create.per_wall_second()),
    ("samples per server CPU second, every series new", 0, |m| m.create.per_cpu_second()),
    ("samples per server CPU second, whole run and 5 s after", 0, |m| {
        m.scenario.sample_count() / m.settled_cpu.total()
    }),
    ("server CPU, user, s", 2, |m| m.steady.server.cpu.user + m.create.server.cpu.user),
    ("server CPU, system, s", 2, |m| m.steady.server.cpu.system + m.create.server.cpu.system),
    ("client CPU, s", 2, |m| m.steady.client.cpu.total() + m.create.client.cpu.total()),
    ("wall time, s", 2, |m| m.steady.server.wall_seconds + m.create.server.wall_seconds),
    ("ack latency p50, ms", 2, |m| latency::at(&m.steady.ack_ms, 0.5)),
    ("ack latency p99, ms", 2, |m| latency::at(&m.steady.ack_ms, 0.99)),
    ("RSS before the load, MiB", 1, |m| m.empty_bytes as f64 / MIB),
    ("RSS after the load, MiB", 1, |m| m.loaded.now_bytes as f64 / MIB),
    ("RSS 5 s later, MiB", 1, |m| m.settled_bytes as f64 / MIB),
    ("peak RSS, MiB", 1, |m| m.loaded.peak_bytes as f64 / MIB),
    ("RSS after the load per series, bytes", 0, Measured::bytes_per_series),
    ("disk 5 s after the load, MiB", 1, |m| m.settled_disk_bytes as f64 / MIB),
    ("disk after stopping, MiB", 1, |m| m.stopped_disk_bytes as f64 / MIB),
    ("disk after stopping per sample, bytes", 2, |m| m.stopped_disk_bytes as f64 / m.scenario.sample_count()),
];

impl Scenario {
    pub(super) fn title(&self) -> String {
        let series_count = grouped(self.series_count as f64, 0);
        format!("{}: {series_count} series, {} samples each", self.name, self.step_count)
    }
}

impl Phase {
    fn per_wall_second(&self) -> f64 {
        self.sample_count as f64 / self.server.wall_seconds
    }

    fn per_cpu_second(&self) -> f64 {
        self.sample_count as f64 / self.server.cpu.total()
    }
}

impl Measured {
    fn bytes_per_series(&self) -> f64 {
        self.loaded.now_bytes as f64 / self.scenario.series_count as f64
    }
}

impl Summary for Measured {
    fn summary(&self) -> String {
        format!(
            "{} samples/s, {} per CPU second, {} MiB after the load, {:.0} bytes per series",
            grouped(self.steady.per_wall_second(), 0),
            grouped(self.steady.per_cpu_second(), 0),
            grouped(self.loaded.now_bytes as f64 / MIB, 0),
            self.bytes_per_series(),
        )
    }
}
