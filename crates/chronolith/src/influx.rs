//! InfluxDB 1.x as another system: its line protocol, its export files and its HTTP API.
//!
//! Not here: flags (`import::influx`, `export::influx`); answers of our server (`chronolith-server`).

pub(crate) mod catalog;
pub(crate) mod copy;
mod count;
mod fault;
pub(crate) mod file;
mod file_counts;
pub(crate) mod line;
mod lines;
mod msgpack;
pub(crate) mod report;
pub(crate) mod server;
mod slice;
pub(crate) mod state;
pub(crate) mod statement;
pub(crate) mod time;
mod writers;
