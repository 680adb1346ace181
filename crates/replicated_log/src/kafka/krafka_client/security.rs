//! Credentials and certificates, read from files when the log is opened or a connection is made.
//!
//! Invariant: no error has the content of a file.

use std::path::Path;
use std::sync::Arc;

use chronolith_base::Disk;
use krafka::KrafkaError;
use krafka::auth::{AuthConfig, OAuthBearerToken, TlsConfig, TlsIdentity};

use crate::error::LogError;
use crate::kafka::secret;
use crate::kafka::settings::{Login, Security, TlsFiles};

/// Returns the client's settings; `None` for connections without encryption and login.
///
/// # Errors
/// [`LogError::File`] for a file that cannot be read, is empty or no UTF-8.
pub(super) fn load(disk: &Arc<dyn Disk>, security: &Security) -> Result<Option<AuthConfig>, LogError> {
    let login = security.login.as_ref().map(|login| load_login(disk, login)).transpose()?;
    let tls = security.tls.as_ref().map(|tls| load_tls(disk, tls)).transpose()?;
    Ok(match (login, tls) {
        (None, None) => None,
        (Some(login), None) => Some(login),
        (None, Some(tls)) => Some(AuthConfig::ssl(tls)),
        (Some(login), Some(tls)) => Some(login.with_tls(tls)),
    })
}

fn load_login(disk: &Arc<dyn Disk>, login: &Login) -> Result<AuthConfig, LogError> {
    Ok(match login {
        Login::Plain { user, password_file } => {
            AuthConfig::sasl_plain(user, secret::read(&**disk, password_file)?)
        }
        Login::ScramSha256 { user, password_file } => {
            AuthConfig::sasl_scram_sha256(user, secret::read(&**disk, password_file)?)
        }
        Login::ScramSha512 { user, password_file } => {
            AuthConfig::sasl_scram_sha512(user, secret::read(&**disk, password_file)?)
        }
        Login::OAuthBearer { token_file } => {
            // A file that is missing is an error of the start, not of the first connection.
            secret::read(&**disk, token_file)?;
            let disk = disk.clone();
            let path = token_file.clone();
            AuthConfig::sasl_oauthbearer_provider(move || {
                let token = secret::read(&*disk, &path).map(OAuthBearerToken::new);
                std::future::ready(token.map_err(|error| KrafkaError::auth(error.to_string())))
            })
        }
    })
}

fn load_tls(disk: &Arc<dyn Disk>, files: &TlsFiles) -> Result<TlsConfig, LogError> {
    let mut config = match &files.ca_file {
        Some(path) => TlsConfig::new().with_ca_cert_pem(disk.read(path).map_err(LogError::at(path))?),
        None => TlsConfig::new().with_native_roots(),
    };
    if let Some(name) = &files.server_name {
        config = config.with_sni_hostname(name);
    }
    if let (Some(cert_file), Some(key_file)) = (&files.cert_file, &files.key_file) {
        for path in [cert_file, key_file] {
            disk.read(path).map_err(LogError::at(path))?;
        }
        let disk = disk.clone();
        let cert_file = cert_file.clone();
        let key_file = key_file.clone();
        config = config.with_client_identity_provider(move || {
            let read = |path: &Path| disk.read(path).map_err(KrafkaError::network);
            let identity =
                read(&cert_file).and_then(|cert| read(&key_file).map(|key| TlsIdentity::from_pem(cert, key)));
            std::future::ready(identity)
        });
    }
    Ok(config)
}
