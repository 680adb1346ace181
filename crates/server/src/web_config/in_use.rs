//! Web configuration of a running server: the file in use, and a reading of it after each change.
//!
//! Invariants: a file that cannot be used leaves the one in use as it is; connections keep the settings with
//! which they began; TLS is neither switched on nor off in a running server.
//! Not here: when it is read (`serve`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use chronolith_base::{Disk, Env};
use parking_lot::{Mutex, RwLock};

use super::file::WebConfig;
use super::handshakes::Handshakes;
use super::limiter::Limiter;
use super::tls::{LoadedTls, Protocol, TlsFiles};

/// Listeners that use a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsedBy {
    /// The HTTP port (`--web.config.file`).
    Http,
    /// Carbon listeners (`--carbon.tls`): the TLS section alone, which the file must have.
    Carbon,
}

/// The file of `--web.config.file` or `--carbon.tls`.
pub(crate) struct WebConfigFile {
    path: PathBuf,
    used_by: UsedBy,
    current: RwLock<Arc<InUse>>,
    /// Content at the last reading, good or bad, or the reason why there was none.
    last: Mutex<Option<Result<Content, String>>>,
    /// Time of the last reading that succeeded, ms since 1970; 0 before the first.
    read_ms: AtomicI64,
    read_ok: AtomicBool,
    handshakes: Handshakes,
}

/// Settings of one reading.
#[derive(Default)]
pub(crate) struct InUse {
    config: WebConfig,
    tls: Option<LoadedTls>,
    limiter: Option<Arc<Limiter>>,
}

/// Bytes of the file, and of the certificates and keys that it names.
#[derive(Clone, PartialEq, Eq)]
struct Content {
    text: String,
    tls: Option<TlsFiles>,
}

impl InUse {
    /// Values of the file.
    pub(crate) fn config(&self) -> &WebConfig {
        &self.config
    }

    /// `None`: connections are not encrypted.
    pub(crate) fn tls(&self) -> Option<&LoadedTls> {
        self.tls.as_ref()
    }

    /// `None`: requests are not limited.
    pub(crate) fn limiter(&self) -> Option<&Limiter> {
        self.limiter.as_deref()
    }
}

impl WebConfigFile {
    /// A file that has not been read; [`WebConfigFile::read`] reads it.
    pub(crate) fn new(path: PathBuf, used_by: UsedBy) -> WebConfigFile {
        WebConfigFile {
            path,
            used_by,
            current: RwLock::default(),
            last: Mutex::default(),
            read_ms: AtomicI64::new(0),
            read_ok: AtomicBool::new(false),
            handshakes: Handshakes::default(),
        }
    }

    /// Settings in use.
    pub(crate) fn current(&self) -> Arc<InUse> {
        self.current.read().clone()
    }

    /// Handshakes of its connections.
    pub(crate) fn handshakes(&self) -> &Handshakes {
        &self.handshakes
    }

    /// Returns true if the last reading succeeded.
    pub(crate) fn is_read(&self) -> bool {
        self.read_ok.load(Ordering::Relaxed)
    }

    /// Time of the last reading that succeeded, ms since 1970; 0 before the first.
    pub(crate) fn read_ms(&self) -> i64 {
        self.read_ms.load(Ordering::Relaxed)
    }

    /// Reads the file and its certificates and keys, and uses them if one has changed since the last
    /// reading. Returns true if other settings are in use now.
    ///
    /// # Errors
    /// Text for the operator. It is returned once for each content of the files.
    pub(crate) fn read(&self, env: &Env) -> Result<bool, String> {
        let mut last = self.last.lock();
        let found = read_files(&self.path, &*env.disk);
        let content = found.as_ref().map(|(_, content)| content.clone()).map_err(Clone::clone);
        if last.as_ref() == Some(&content) {
            return Ok(false);
        }
        *last = Some(content);
        let fresh = found.and_then(|(config, content)| self.load(config, &content));
        let fresh = fresh.map_err(|why| {
            self.read_ok.store(false, Ordering::Relaxed);
            format!("web configuration file {}: {why}", self.path.display())
        })?;
        *self.current.write() = Arc::new(fresh);
        self.read_ok.store(true, Ordering::Relaxed);
        self.read_ms.store(env.clock.now_ms(), Ordering::Relaxed);
        Ok(true)
    }

    fn load(&self, config: WebConfig, content: &Content) -> Result<InUse, String> {
        let current = self.current();
        if self.read_ms() != 0 && current.tls.is_some() != config.tls().is_some() {
            return Err("TLS is not switched on or off in a running server: restart it".to_owned());
        }
        let tls = match (config.tls(), &content.tls) {
            (Some(options), Some(files)) => {
                let protocol = match self.used_by {
                    UsedBy::Http => Protocol::Http { http2: config.http2() },
                    UsedBy::Carbon => Protocol::Carbon,
                };
                Some(LoadedTls::new(options, files, protocol)?)
            }
            _ if self.used_by == UsedBy::Carbon => {
                return Err("expected a `tls_server_config` with a certificate".to_owned());
            }
            _ => None,
        };
        // The same limit goes on with the bucket as it is.
        let kept = current.limiter.clone().filter(|limiter| Some(limiter.limit()) == config.rate_limit());
        let limiter = kept.or_else(|| config.rate_limit().map(|limit| Arc::new(Limiter::new(limit))));
        Ok(InUse { config, tls, limiter })
    }
}

fn read_files(path: &Path, disk: &dyn Disk) -> Result<(WebConfig, Content), String> {
    let bytes = disk.read(path).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    let config = WebConfig::parse(&text, path.parent().unwrap_or(Path::new("")))?;
    let tls = config.tls().map(|tls| tls.read_files(disk)).transpose()?;
    Ok((config, Content { text, tls }))
}

/// Checks a web configuration file and the certificates that it names.
///
/// # Errors
/// Text for the operator: the position of a fault, or the file that cannot be used.
pub fn check_web_config(path: &Path, disk: &dyn Disk) -> Result<(), String> {
    check(path, UsedBy::Http, disk)
}

/// Checks a web configuration file that carbon listeners use for TLS, and the certificates that it names.
///
/// # Errors
/// As [`check_web_config`], and for a file without TLS.
pub fn check_carbon_tls(path: &Path, disk: &dyn Disk) -> Result<(), String> {
    check(path, UsedBy::Carbon, disk)
}

fn check(path: &Path, used_by: UsedBy, disk: &dyn Disk) -> Result<(), String> {
    let (config, content) = read_files(path, disk)?;
    WebConfigFile::new(path.to_owned(), used_by).load(config, &content).map(|_| ())
}

/// Returns true if a web configuration file asks each client for a password or for a verified certificate.
/// Returns false for a file that cannot be used.
#[must_use]
pub fn asks_for_login(path: &Path, disk: &dyn Disk) -> bool {
    let read = read_files(path, disk);
    read.is_ok_and(|(config, _)| !config.users().is_empty() || requires_verified_clients(&config))
}

/// Returns true if a web configuration file asks each client for a verified certificate. Returns false for a
/// file that cannot be used.
#[must_use]
pub fn asks_for_certificate(path: &Path, disk: &dyn Disk) -> bool {
    read_files(path, disk).is_ok_and(|(config, _)| requires_verified_clients(&config))
}

fn requires_verified_clients(config: &WebConfig) -> bool {
    config.tls().is_some_and(|tls| tls.requires_verified_clients())
}
