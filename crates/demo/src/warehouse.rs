//! The warehouse, whose machines send line protocol (conveyors, climate) and carbon lines (forklifts), each
//! minute.
//!
//! Invariant: a field or path has one point per minute, so points and stored samples are equal in number.

use std::fmt::Write as _;

use crate::draws::Draws;
use crate::request::{Counts, DATABASE, Protocol, Request};
use crate::tenant::Tenant;
use crate::timeline::Step;

const TENANT: Tenant = Tenant::Shop;
const CONVEYOR_COUNT: usize = 4;
const HALLS: [&str; 3] = ["north", "south", "yard"];
const FORKLIFTS_PER_HALL: usize = 3;
/// Fields of the measurements `conveyor` and `climate`.
const CONVEYOR_FIELDS: u64 = 2;
const CLIMATE_FIELDS: u64 = 2;
/// Leaves of a forklift.
const FORKLIFT_LEAVES: u64 = 2;

/// State of the warehouse, and lines that wait for the next request.
pub(crate) struct Warehouse {
    draws: Draws,
    parcels: [u64; CONVEYOR_COUNT],
    batteries: [f64; HALLS.len() * FORKLIFTS_PER_HALL],
    lines: String,
    line_values: u64,
    carbon: String,
    carbon_values: u64,
    /// Returns true once points were put into a request.
    is_known: bool,
}

impl Warehouse {
    pub(crate) fn new(seed: u64) -> Warehouse {
        Warehouse {
            draws: Draws::new(seed, "warehouse"),
            parcels: [0; CONVEYOR_COUNT],
            batteries: [100.0; HALLS.len() * FORKLIFTS_PER_HALL],
            lines: String::new(),
            line_values: 0,
            carbon: String::new(),
            carbon_values: 0,
            is_known: false,
        }
    }

    /// The request before all others.
    pub(crate) fn create_database() -> Request {
        Request {
            tenant: TENANT,
            protocol: Protocol::CreateDatabase,
            body: format!("CREATE DATABASE {DATABASE}").into_bytes(),
            stored: Counts::default(),
            refused_count: 0,
        }
    }

    /// Appends the points of `step`.
    pub(crate) fn advance(&mut self, step: &Step) {
        if step.is_slow {
            self.advance_conveyors(step);
            self.advance_halls(step);
        }
    }

    fn advance_conveyors(&mut self, step: &Step) {
        let seconds = step.time_ms / 1000;
        for (idx, parcels) in self.parcels.iter_mut().enumerate() {
            let speed = 0.4 + 1.2 * step.load + 0.05 * self.draws.normal();
            *parcels += self.draws.poisson(20.0 * step.load) as u64;
            // Writing to a string cannot fail.
            let _ = writeln!(
                self.lines,
                "conveyor,line=L{} speed={speed:.3},parcels={parcels}i {seconds}",
                idx + 1
            );
        }
        self.line_values += CONVEYOR_FIELDS * CONVEYOR_COUNT as u64;
    }

    fn advance_halls(&mut self, step: &Step) {
        let seconds = step.time_ms / 1000;
        for (hall_idx, hall) in HALLS.into_iter().enumerate() {
            let celsius = 17.0 + 4.0 * step.load + 0.2 * self.draws.normal();
            let humidity = 55.0 - 8.0 * step.load + self.draws.normal();
            let _ = writeln!(
                self.lines,
                "climate,hall={hall} temperature={celsius:.2},humidity={humidity:.1} {seconds}"
            );
            for number in 0..FORKLIFTS_PER_HALL {
                let battery = &mut self.batteries[hall_idx * FORKLIFTS_PER_HALL + number];
                *battery = if *battery < 15.0 { 100.0 } else { *battery - 0.25 * step.load };
                let speed = (6.0 * step.load + self.draws.normal()).max(0.0);
                let path = format!("warehouse.{hall}.forklift{}", number + 1);
                let _ = writeln!(self.carbon, "{path}.battery {battery:.2} {seconds}");
                let _ = writeln!(self.carbon, "{path}.speed {speed:.2} {seconds}");
            }
        }
        self.line_values += CLIMATE_FIELDS * HALLS.len() as u64;
        self.carbon_values += FORKLIFT_LEAVES * (HALLS.len() * FORKLIFTS_PER_HALL) as u64;
    }

    /// The waiting points as one request per protocol.
    pub(crate) fn take(&mut self) -> Vec<Request> {
        if self.lines.is_empty() {
            return Vec::new();
        }
        let is_new = u64::from(!std::mem::replace(&mut self.is_known, true));
        let line_series = CONVEYOR_FIELDS * CONVEYOR_COUNT as u64 + CLIMATE_FIELDS * HALLS.len() as u64;
        let carbon_series = FORKLIFT_LEAVES * (HALLS.len() * FORKLIFTS_PER_HALL) as u64;
        let request = |protocol, body: &mut String, floats: &mut u64, series: u64| Request {
            tenant: TENANT,
            protocol,
            body: std::mem::take(body).into_bytes(),
            stored: Counts {
                new_series: is_new * series,
                floats: std::mem::take(floats),
                ..Counts::default()
            },
            refused_count: 0,
        };
        vec![
            request(Protocol::Lines, &mut self.lines, &mut self.line_values, line_series),
            request(Protocol::Carbon, &mut self.carbon, &mut self.carbon_values, carbon_series),
        ]
    }
}
