//! TLS settings of requests to Alertmanagers.

use std::sync::Arc;

use chronolith_rules::notifier::config::{TlsOptions, TlsVersion};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, SupportedProtocolVersion};

use super::files::Files;

/// Settings of `tls_config`.
///
/// # Errors
/// The key of the section that cannot be used, without its value.
pub(super) fn client_config(options: &TlsOptions, files: &Files) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions(options))
        .map_err(|error| format!("`tls_config`: {error}"))?;
    let builder = if options.insecure_skip_verify {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    } else {
        builder.with_root_certificates(authorities(options, files)?)
    };
    let (Some(cert), Some(key)) = (&options.cert, &options.key) else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates("cert", files.bytes(cert))?;
    let key = PrivateKeyDer::from_pem_slice(files.bytes(key))
        .map_err(|_| "`key`: the PEM text has no private key that can be read".to_owned())?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| format!("`cert` and `key` do not fit or cannot be used: {error}"))
}

fn versions(options: &TlsOptions) -> Vec<&'static SupportedProtocolVersion> {
    let all = [(TlsVersion::Tls13, &TLS13), (TlsVersion::Tls12, &TLS12)];
    let is_allowed = |version: TlsVersion| {
        options.min_version.is_none_or(|min| version >= min)
            && options.max_version.is_none_or(|max| version <= max)
    };
    all.into_iter().filter(|(version, _)| is_allowed(*version)).map(|(_, version)| version).collect()
}

fn certificates(key: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(format!("`{key}`: the PEM text has no certificate that can be read")),
    }
}

/// Authorities of `ca`, otherwise the authorities of the system.
fn authorities(options: &TlsOptions, files: &Files) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    match &options.ca {
        None => drop(store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        Some(ca) => {
            for certificate in certificates("ca", files.bytes(ca))? {
                store.add(certificate).map_err(|error| format!("`ca`: {error}"))?;
            }
        }
    }
    Ok(store)
}

/// Takes each certificate (`insecure_skip_verify`), and verifies that the peer has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
