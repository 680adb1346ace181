//! Prometheus's web configuration file (`--web.config.file`, `--carbon.tls`): TLS, users, headers and the
//! rate limit, as values.
//!
//! Invariants: a file is used as a whole or refused with the position of its fault; no error text has a key
//! or a password hash.
//! Not here: sockets (`serve`), requests (`http`), principals of users (`service::access`).

mod certificate;
mod file;
mod go_duration;
mod handshakes;
mod in_use;
mod limiter;
mod position;
mod tls;

#[cfg(test)]
mod tests;

pub(crate) use self::certificate::CertificateFields;
pub(crate) use self::handshakes::HandshakeFailure;
pub(crate) use self::in_use::{InUse, UsedBy, WebConfigFile};
pub use self::in_use::{asks_for_certificate, asks_for_login, check_carbon_tls, check_web_config};
pub(crate) use self::tls::LoadedTls;
