//! Certificates of a PEM text.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Returns all certificates of `pem`, which may have other parts.
pub(super) fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|_| format!("{what}: the PEM text cannot be read"))
}
