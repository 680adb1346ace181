//! The server's own metrics and the memory of its parts at one moment, and their text.
//! Not here: counters and declarations (`metrics`, `service::metrics`), requests (`http::lifecycle`).

mod carbon_tls;
pub(crate) mod gather;
pub(crate) mod memory;
mod server;
#[cfg(test)]
mod tests;
pub(crate) mod text;
