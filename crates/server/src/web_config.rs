//! Prometheus's web configuration file (`--web.config.file`): TLS, users, headers and the rate limit, as
//! values.
//!
//! Invariants: a file is used as a whole or refused with the position of its fault; no error text has a key
//! or a password hash.
//! Not here: sockets (`serve`), requests (`http`), principals of users (`service::access`).

mod certificate;
mod file;
mod go_duration;
mod position;
mod tls;

#[cfg(test)]
mod tests;

use std::path::Path;

use chronolith_base::Disk;

pub(crate) use self::file::WebConfig;
pub(crate) use self::tls::LoadedTls;

/// Checks a web configuration file and the certificates that it names.
///
/// # Errors
/// Text for the operator: the position of a fault, or the file that cannot be used.
pub fn check_web_config(path: &Path, disk: &dyn Disk) -> Result<(), String> {
    let bytes = disk.read(path).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    let config = WebConfig::parse(&text, path.parent().unwrap_or(Path::new("")))?;
    if let Some(tls) = config.tls() {
        LoadedTls::new(tls, &tls.read_files(disk)?, config.http2())?;
    }
    Ok(())
}
