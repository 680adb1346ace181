//! InfluxDB 1.x as another system: its line protocol and its export files.
//!
//! Not here: flags (`export::influx`); what a server of ours answers (`chronolith-server`).

pub(crate) mod line;
pub(crate) mod statement;
pub(crate) mod time;
