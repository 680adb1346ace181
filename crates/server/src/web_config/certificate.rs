//! Fields of an X.509 certificate: alternative names, end of its validity.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// Fields of one certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateFields {
    subject: String,
    sans: Vec<String>,
    expires_s: i64,
}

impl CertificateFields {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// Text with the part of the certificate that cannot be read.
    pub(crate) fn parse(der: &[u8]) -> Result<CertificateFields, String> {
        let (_, certificate) = parse_x509_certificate(der).map_err(|error| error.to_string())?;
        let names = certificate.subject_alternative_name().map_err(|error| error.to_string())?;
        let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
        Ok(CertificateFields {
            subject: certificate.subject().to_string(),
            sans: names.iter().filter_map(text_of).collect(),
            expires_s: certificate.validity().not_after.timestamp(),
        })
    }

    /// Distinguished name, such as `CN=agent, O=example`.
    pub(crate) fn subject(&self) -> &str {
        &self.subject
    }

    /// Alternative names in the order of the certificate: DNS names, mail addresses, IP addresses, URIs.
    pub(crate) fn sans(&self) -> &[String] {
        &self.sans
    }

    /// Time from which the certificate is not valid, s since 1970.
    pub(crate) fn expires_s(&self) -> i64 {
        self.expires_s
    }
}

/// Text of a name as Go prints it; `None` for kinds that Go leaves out.
fn text_of(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => {
            Some((*text).to_owned())
        }
        GeneralName::IPAddress(bytes) => address_of(bytes).map(|address| address.to_string()),
        _ => None,
    }
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::V4(Ipv4Addr::from(v4)));
    }
    let v6 = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?);
    Some(IpAddr::V6(v6).to_canonical())
}
