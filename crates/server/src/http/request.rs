//! Identity of an HTTP request: its id, which log lines and error answers carry, and the address of its
//! client.
//! Invariants: an id is visible ASCII, at most [`ID_BYTES_MAX`] bytes, so that it is safe in a header and a
//! log line.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, header};
use chronolith_base::Rng;
use chronolith_service::access::directory::hash_of_certificate;
use chronolith_service::activity::rejects::WriteSender;

use crate::web_config::CertificateFields;

/// Header that carries the id, in requests and answers.
pub(crate) const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Header of W3C Trace Context; its trace id is the request's id where `X-Request-Id` is absent.
const TRACE_HEADER: HeaderName = HeaderName::from_static("traceparent");
/// Bytes of an id that a client chooses.
const ID_BYTES_MAX: usize = 128;
/// Hexadecimal digits of a trace id.
const TRACE_ID_DIGITS: usize = 32;

/// Address of the client, set where the connection is accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteAddress(pub(crate) SocketAddr);

/// Certificate of the client, verified by an authority of the web configuration file; set where the
/// connection is accepted. It prints as subject and fingerprint.
#[derive(Debug, Clone)]
pub(crate) struct PeerCertificate {
    fields: Arc<CertificateFields>,
    fingerprint: [u8; 32],
}

impl PeerCertificate {
    /// Reads a certificate in DER; `None` if it cannot be read.
    pub(crate) fn parse(der: &[u8]) -> Option<PeerCertificate> {
        let fields = Arc::new(CertificateFields::parse(der).ok()?);
        Some(PeerCertificate { fields, fingerprint: hash_of_certificate(der) })
    }

    /// Alternative names in the order of the certificate.
    pub(crate) fn sans(&self) -> &[String] {
        self.fields.sans()
    }
}

impl fmt::Display for PeerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sha256:", self.fields.subject())?;
        self.fingerprint.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Id of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestId {
    /// From the client.
    Sent(Arc<str>),
    Made(u64),
}

impl RequestId {
    fn of(headers: &HeaderMap, rng: &Rng) -> RequestId {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let legal =
            |id: &&str| (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
        let sent = text(REQUEST_ID_HEADER).filter(legal);
        match sent.or_else(|| trace_id(text(TRACE_HEADER)?)) {
            Some(id) => RequestId::Sent(Arc::from(id)),
            None => RequestId::Made(rng.next_u64()),
        }
    }

    /// The value of [`REQUEST_ID_HEADER`] in the answer.
    pub(crate) fn to_header(&self) -> Option<HeaderValue> {
        HeaderValue::try_from(self.to_string()).ok()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestId::Sent(id) => f.write_str(id),
            RequestId::Made(number) => write!(f, "{number:016x}"),
        }
    }
}

/// The trace id of `version-traceid-parentid-flags`.
fn trace_id(traceparent: &str) -> Option<&str> {
    let mut fields = traceparent.split('-');
    let _version = fields.next()?;
    let id = fields.next()?;
    let is_hex = id.bytes().all(|b| b.is_ascii_hexdigit()) && id.bytes().any(|b| b != b'0');
    (id.len() == TRACE_ID_DIGITS && is_hex).then_some(id)
}

/// Sender and identifier of a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestInfo {
    pub(crate) id: RequestId,
    /// `None` without a socket (tests).
    pub(crate) remote: Option<SocketAddr>,
}

impl RequestInfo {
    /// Reads id and address; the id is made up if the client sent none.
    pub(crate) fn read(extensions: &Extensions, headers: &HeaderMap, rng: &Rng) -> RequestInfo {
        let remote = extensions.get::<RemoteAddress>().map(|address| address.0);
        RequestInfo { id: RequestId::of(headers, rng), remote }
    }

    /// The info that the outermost layer has put into a request.
    pub(crate) fn of(extensions: &Extensions) -> RequestInfo {
        let none = RequestInfo { id: RequestId::Made(0), remote: None };
        extensions.get::<RequestInfo>().cloned().unwrap_or(none)
    }

    /// The client as examples of refused samples name it.
    pub(crate) fn write_sender(&self, headers: &HeaderMap) -> WriteSender {
        let user_agent = headers.get(header::USER_AGENT).map(|agent| agent.as_bytes().into());
        WriteSender { address: self.remote.map(|address| address.ip()), user_agent, listener: None }
    }

    /// The client's address for a log line.
    pub(crate) fn remote_text(&self) -> String {
        self.remote.map_or_else(|| "unknown".to_owned(), |address| address.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(headers: &[(&'static str, &str)], want: &str) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let id = RequestId::of(&map, &Rng::from_seed(1));
        assert_eq!(id.to_string(), want);
        assert!(id.to_header().is_some());
    }

    #[test]
    fn ids_are_taken_or_made() {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let made = RequestId::Made(Rng::from_seed(1).next_u64()).to_string();
        check(&[("x-request-id", "abc-1"), ("traceparent", trace)], "abc-1");
        check(&[("traceparent", trace)], "0af7651916cd43dd8448eb211c80319c");
        check(&[], &made);
        check(&[("x-request-id", "with space")], &made);
        check(&[("x-request-id", &"x".repeat(129))], &made);
        check(&[("traceparent", "00-00000000000000000000000000000000-b7ad6b7169203331-01")], &made);
    }
}
