//! Credentials and certificates of a client.
//!
//! Invariant: no error has the content of a file. The library reads certificates itself, when the log is
//! opened; the file of a token is read again before each minute ends.

use std::path::Path;
use std::sync::Arc;

use chronolith_base::{Clock, Disk, Env};
use rdkafka::ClientConfig;
use rdkafka::client::OAuthToken;

use crate::error::LogError;
use crate::kafka::secret;
use crate::kafka::settings::{Login, Security, TlsFiles};

/// Age at which the library asks for a token again is four fifths of this, ms.
const TOKEN_MS: i64 = 60_000;

/// File with the token of `OAUTHBEARER`.
pub(super) struct TokenFile {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    path: std::path::PathBuf,
    principal: String,
}

impl TokenFile {
    /// Reads the token.
    ///
    /// # Errors
    /// [`LogError::File`].
    pub(super) fn read(&self) -> Result<OAuthToken, LogError> {
        Ok(OAuthToken {
            token: secret::read(&*self.disk, &self.path)?,
            principal_name: self.principal.clone(),
            lifetime_ms: self.clock.now_ms().saturating_add(TOKEN_MS),
        })
    }
}

/// Adds encryption and login to the settings of a client; returns the file of a token.
///
/// # Errors
/// [`LogError::File`] for a file that cannot be read, is empty or no UTF-8; [`LogError::Setting`] for a name
/// of servers, which the library cannot be given.
pub(super) fn apply(
    config: &mut ClientConfig,
    env: &Env,
    security: &Security,
    client_id: &str,
) -> Result<Option<Arc<TokenFile>>, LogError> {
    let protocol = match (&security.tls, &security.login) {
        (None, None) => "plaintext",
        (Some(_), None) => "ssl",
        (None, Some(_)) => "sasl_plaintext",
        (Some(_), Some(_)) => "sasl_ssl",
    };
    config.set("security.protocol", protocol);
    if let Some(tls) = &security.tls {
        apply_tls(config, &*env.disk, tls)?;
    }
    let (mechanism, user, password_file) = match &security.login {
        None => return Ok(None),
        Some(Login::OAuthBearer { token_file }) => {
            config.set("sasl.mechanism", "OAUTHBEARER");
            // A file that is missing is an error of the start, not of the first connection.
            secret::read(&*env.disk, token_file)?;
            return Ok(Some(Arc::new(TokenFile {
                disk: env.disk.clone(),
                clock: env.clock.clone(),
                path: token_file.clone(),
                principal: client_id.to_owned(),
            })));
        }
        Some(Login::Plain { user, password_file }) => ("PLAIN", user, password_file),
        Some(Login::ScramSha256 { user, password_file }) => ("SCRAM-SHA-256", user, password_file),
        Some(Login::ScramSha512 { user, password_file }) => ("SCRAM-SHA-512", user, password_file),
    };
    config.set("sasl.mechanism", mechanism);
    config.set("sasl.username", user);
    config.set("sasl.password", secret::read(&*env.disk, password_file)?);
    Ok(None)
}

fn apply_tls(config: &mut ClientConfig, disk: &dyn Disk, tls: &TlsFiles) -> Result<(), LogError> {
    if let Some(name) = &tls.server_name {
        return Err(LogError::Setting {
            setting: "server_name",
            expected:
                "none in a build with librdkafka, which compares certificates with the addresses of brokers"
                    .to_owned(),
            found: name.clone(),
        });
    }
    for (setting, path) in [
        ("ssl.ca.location", &tls.ca_file),
        ("ssl.certificate.location", &tls.cert_file),
        ("ssl.key.location", &tls.key_file),
    ] {
        let Some(path) = path else { continue };
        disk.read(path).map_err(LogError::at(path))?;
        config.set(setting, text(path)?);
    }
    Ok(())
}

/// Returns a path as the library takes it.
fn text(path: &Path) -> Result<&str, LogError> {
    path.to_str()
        .ok_or_else(|| LogError::File { path: path.to_owned(), why: "expected a path in UTF-8".to_owned() })
}

#[cfg(test)]
mod tests;
