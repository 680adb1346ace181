//! Tests of row plans: points in, rows out, as text. Expected values come from InfluxDB 1.6.7 with the same
//! points, unless a test says otherwise.

mod aggregates;
mod limits;
mod memory;
mod model;
mod nested;
mod plans;
mod raw;
mod transforms;
