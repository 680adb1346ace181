//! Section `tls_server_config`: its values, the files that it names, and the TLS settings made of both.
//!
//! Invariants: what the TLS library lacks is refused by name, never left out; a certificate and a key that
//! do not fit are an error.
//! Not here: verification of clients (`client_certificates`), handshakes (`serve::tls`).

mod client_certificates;
mod pem;
mod suites;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::Disk;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ServerConfig, SupportedProtocolVersion};
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::certificate::CertificateFields;
use super::position::fault_at;
use client_certificates::ClientAuth;
use pem::certificates;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsSection {
    cert: Option<String>,
    key: Option<String>,
    client_ca: Option<String>,
    cert_file: Option<String>,
    key_file: Option<String>,
    client_ca_file: Option<String>,
    client_auth_type: Option<Spanned<String>>,
    client_allowed_sans: Option<Vec<String>>,
    min_version: Option<Spanned<String>>,
    max_version: Option<Spanned<String>>,
    cipher_suites: Option<Vec<Spanned<String>>>,
    curve_preferences: Option<Vec<Spanned<String>>>,
    prefer_server_cipher_suites: Option<bool>,
}

/// PEM text, or the file that has it.
#[derive(Clone)]
enum PemSource {
    File(PathBuf),
    Inline(String),
}

/// Values of the section.
pub(crate) struct TlsOptions {
    certificate: PemSource,
    key: PemSource,
    client_ca: Option<PemSource>,
    client_auth: ClientAuth,
    /// `None`: any name may connect.
    allowed_sans: Option<Vec<String>>,
    versions: Vec<&'static SupportedProtocolVersion>,
    provider: CryptoProvider,
    prefers_own_suites: bool,
}

/// Content of the files that a section names, in PEM. It has no `Debug`: the key is a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// Protocol within TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Clients choose the version of HTTP by ALPN.
    Http { http2: bool },
    /// Lines or frames of points; their senders read nothing.
    Carbon,
}

impl Protocol {
    /// Names for ALPN; without names, a client may ask for any.
    fn alpn(self) -> Vec<Vec<u8>> {
        let names: &[&[u8]] = match self {
            Protocol::Http { http2: true } => &[b"h2", b"http/1.1"],
            Protocol::Http { http2: false } => &[b"http/1.1"],
            Protocol::Carbon => &[],
        };
        names.iter().map(|name| name.to_vec()).collect()
    }
}

/// TLS settings of connections.
pub(crate) struct LoadedTls {
    config: Arc<ServerConfig>,
    client_auth: ClientAuth,
    expires_s: i64,
}

impl TlsOptions {
    /// Values of `section`; `None` if it sets neither certificate, key, authority nor policy, so that there
    /// is no TLS.
    pub(super) fn new(section: TlsSection, dir: &Path) -> Result<Option<TlsOptions>, String> {
        let versions = suites::versions(section.min_version.as_ref(), section.max_version.as_ref());
        let provider =
            suites::provider(section.cipher_suites.as_deref(), section.curve_preferences.as_deref());
        let source = |file: Option<String>, inline: Option<String>| {
            // The file counts if both are set.
            let file = file.filter(|path| !path.is_empty()).map(|path| PemSource::File(dir.join(path)));
            file.or_else(|| inline.filter(|text| !text.is_empty()).map(PemSource::Inline))
        };
        let certificate = source(section.cert_file, section.cert);
        let key = source(section.key_file, section.key);
        let client_ca = source(section.client_ca_file, section.client_ca);
        let policy = section.client_auth_type.filter(|policy| !policy.value.is_empty());
        if certificate.is_none() && key.is_none() && client_ca.is_none() && policy.is_none() {
            // A name that nothing knows is an error even where it is not used.
            return match (versions, provider) {
                (Err(fault), _) | (_, Err(fault)) if fault.is_unknown => Err(fault.text),
                _ => Ok(None),
            };
        }
        let client_auth = policy.map_or(Ok(ClientAuth::None), |policy| {
            ClientAuth::named(&policy.value).map_err(|why| fault_at(&policy, &why))
        })?;
        let allowed_sans = section.client_allowed_sans;
        client_auth.check(client_ca.is_some(), allowed_sans.is_some())?;
        Ok(Some(TlsOptions {
            certificate: certificate.ok_or("`tls_server_config`: `cert_file` or `cert` is missing")?,
            key: key.ok_or("`tls_server_config`: `key_file` or `key` is missing")?,
            client_ca,
            client_auth,
            allowed_sans,
            versions: versions.map_err(|fault| fault.text)?,
            provider: provider.map_err(|fault| fault.text)?,
            prefers_own_suites: section.prefer_server_cipher_suites.unwrap_or(true),
        }))
    }

    /// Returns true if no client connects without a verified certificate.
    pub(super) fn requires_verified_clients(&self) -> bool {
        self.client_auth == ClientAuth::RequireAndVerify
    }

    /// Reads the files that the section names.
    ///
    /// # Errors
    /// Text with the key of the section, the file, and the reason.
    pub(crate) fn read_files(&self, disk: &dyn Disk) -> Result<TlsFiles, String> {
        let read = |key: &str, source: &PemSource| match source {
            PemSource::Inline(text) => Ok(text.clone().into_bytes()),
            PemSource::File(path) => {
                disk.read(path).map_err(|error| format!("`{key}` {}: {error}", path.display()))
            }
        };
        Ok(TlsFiles {
            certificate: read("cert_file", &self.certificate)?,
            key: read("key_file", &self.key)?,
            client_ca: self.client_ca.as_ref().map(|source| read("client_ca_file", source)).transpose()?,
        })
    }
}

impl LoadedTls {
    /// Makes the settings of `options` with the content of its files.
    ///
    /// # Errors
    /// Text with the key of the section and the reason; it shows nothing of a key.
    pub(super) fn new(
        options: &TlsOptions,
        files: &TlsFiles,
        protocol: Protocol,
    ) -> Result<LoadedTls, String> {
        let certificates = certificates("certificate", &files.certificate)?;
        let leaf = certificates.first().ok_or("certificate: the PEM text has no certificate")?;
        let expires_s =
            CertificateFields::parse(leaf).map_err(|why| format!("certificate: {why}"))?.expires_s();
        let key = PrivateKeyDer::from_pem_slice(&files.key)
            .map_err(|_| "key: the PEM text has no private key that can be read".to_owned())?;
        let provider = Arc::new(options.provider.clone());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&options.versions)
            .map_err(|error| format!("`tls_server_config`: {error}"))?;
        let verifier = options.client_auth.verifier(
            files.client_ca.as_deref(),
            options.allowed_sans.clone(),
            &provider,
        )?;
        let builder = match verifier {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        let mut config = builder
            .with_single_cert(certificates, key)
            .map_err(|error| format!("certificate and key do not fit or cannot be used: {error}"))?;
        config.ignore_client_order = options.prefers_own_suites;
        config.alpn_protocols = protocol.alpn();
        if protocol == Protocol::Carbon {
            // A sender that closes its connection with unread bytes, such as tickets, resets it.
            config.send_tls13_tickets = 0;
        }
        Ok(LoadedTls { config: Arc::new(config), client_auth: options.client_auth, expires_s })
    }

    /// Settings of a connection. Cost: one clone of an `Arc`.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Returns true if the certificate of a client is verified once its handshake is done.
    pub(crate) fn verifies_clients(&self) -> bool {
        self.client_auth.verifies()
    }

    /// End of the server certificate's validity, s since 1970.
    pub(crate) fn expires_s(&self) -> i64 {
        self.expires_s
    }
}
