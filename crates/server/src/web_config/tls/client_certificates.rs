//! Policies for certificates of clients, with the names that Go gives them.
//!
//! Invariants: a client proves in every policy that it has the key of its certificate; a certificate counts
//! as verified only if an authority has signed it.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};

use super::pem::certificates;
use crate::web_config::certificate::CertificateFields;

/// Policy for certificates of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::web_config) enum ClientAuth {
    /// None is asked for.
    None,
    /// One is asked for and not verified.
    Request,
    /// One is needed and not verified.
    RequireAny,
    /// One is verified if there is one.
    VerifyIfGiven,
    /// One is needed and verified.
    RequireAndVerify,
}

/// Names of policies. `RequireClientCert` is an older name, which Prometheus still takes.
const NAMES: [(&str, ClientAuth); 6] = [
    ("NoClientCert", ClientAuth::None),
    ("RequestClientCert", ClientAuth::Request),
    ("RequireAnyClientCert", ClientAuth::RequireAny),
    ("RequireClientCert", ClientAuth::RequireAny),
    ("VerifyClientCertIfGiven", ClientAuth::VerifyIfGiven),
    ("RequireAndVerifyClientCert", ClientAuth::RequireAndVerify),
];

impl ClientAuth {
    pub(super) fn named(name: &str) -> Result<ClientAuth, String> {
        let found = NAMES.iter().find(|(known, _)| *known == name).map(|(_, policy)| *policy);
        found.ok_or_else(|| {
            format!("`client_auth_type`: {name:?} is none of {}", NAMES.map(|(name, _)| name).join(", "))
        })
    }

    /// Refuses settings that the policy would leave without effect.
    pub(super) fn check(self, has_authority: bool, has_allowed_sans: bool) -> Result<(), String> {
        if has_authority && self == ClientAuth::None {
            return Err("`client_ca_file` or `client_ca` without a `client_auth_type`".to_owned());
        }
        if has_allowed_sans && !self.requires() {
            let why = "`client_allowed_sans` needs the `client_auth_type` RequireAnyClientCert or \
                       RequireAndVerifyClientCert";
            return Err(why.to_owned());
        }
        Ok(())
    }

    /// Returns true if certificates are verified.
    pub(super) fn verifies(self) -> bool {
        matches!(self, ClientAuth::VerifyIfGiven | ClientAuth::RequireAndVerify)
    }

    fn requires(self) -> bool {
        matches!(self, ClientAuth::RequireAny | ClientAuth::RequireAndVerify)
    }

    /// Makes the verifier of the policy. Without authorities in PEM, the system has them.
    pub(super) fn verifier(
        self,
        authorities: Option<&[u8]>,
        allowed_sans: Option<Vec<String>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
        if self == ClientAuth::None {
            return Ok(None);
        }
        let chains = if self.verifies() {
            let roots = Arc::new(roots(authorities)?);
            let builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
            Some(builder.build().map_err(|error| format!("authorities of clients: {error}"))?)
        } else {
            None
        };
        Ok(Some(Arc::new(Verifier {
            policy: self,
            chains,
            allowed_sans,
            algorithms: provider.signature_verification_algorithms,
        })))
    }
}

fn roots(authorities: Option<&[u8]>) -> Result<RootCertStore, String> {
    let found = match authorities {
        Some(pem) => certificates("client_ca", pem)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found);
    if added == 0 {
        let why = "no authority to verify clients with: `client_ca_file` or `client_ca` has no certificate";
        return Err(why.to_owned());
    }
    Ok(roots)
}

#[derive(Debug)]
struct Verifier {
    policy: ClientAuth,
    /// Verifies the chain up to an authority; `None`: any certificate will do.
    chains: Option<Arc<dyn ClientCertVerifier>>,
    allowed_sans: Option<Vec<String>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.policy.requires()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains.as_ref().map_or(&[], |chains| chains.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(chains) = &self.chains {
            chains.verify_client_cert(end_entity, intermediates, now)?;
        }
        if let Some(allowed) = &self.allowed_sans {
            let fields = CertificateFields::parse(end_entity)
                .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
            if !fields.sans().iter().any(|san| allowed.contains(san)) {
                return Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure));
            }
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
