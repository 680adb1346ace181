//! Protocol version of a write request: `Content-Type` and `Content-Encoding`.
//! Invariants: absent headers mean remote write 1.0; what cannot be read is refused before the body is, in
//! Prometheus's words. Parameters are read as RFC 9110 has them: spaces around them, quotes, any case of the
//! media type.

use axum::http::{HeaderMap, header};

const MEDIA_TYPE: &str = "application/x-protobuf";
const NAME_V1: &str = "prometheus.WriteRequest";
const NAME_V2: &str = "io.prometheus.write.v2.Request";

/// The message of a write request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// Remote write 1.0.
    V1,
    /// Remote write 2.0.
    V2,
}

/// The message that `headers` announce; the error is the text of a 415.
pub(super) fn message_of(headers: &HeaderMap) -> Result<Message, String> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
        && !encoding.is_empty()
        && !encoding.as_bytes().eq_ignore_ascii_case(b"snappy")
    {
        let encoding = String::from_utf8_lossy(encoding.as_bytes());
        return Err(format!(
            "{encoding} encoding (compression) is not accepted by this server; only snappy is acceptable"
        ));
    }
    let Some(kind) = headers.get(header::CONTENT_TYPE).filter(|kind| !kind.is_empty()) else {
        return Ok(Message::V1);
    };
    let kind = String::from_utf8_lossy(kind.as_bytes());
    let mut parts = kind.split(';').map(str::trim);
    if !parts.next().unwrap_or("").eq_ignore_ascii_case(MEDIA_TYPE) {
        return Err(format!("expected {MEDIA_TYPE} as the first (media) part, got {kind} content-type"));
    }
    for parameter in parts.filter(|part| !part.is_empty()) {
        let Some((name, value)) = parameter.split_once('=') else {
            return Err(format!(
                "as per https://www.rfc-editor.org/rfc/rfc9110#parameter expected parameters to be key-values, \
                 got {parameter} in {kind} content-type"
            ));
        };
        if name.eq_ignore_ascii_case("proto") {
            return match value.trim_matches('"') {
                NAME_V1 => Ok(Message::V1),
                NAME_V2 => Ok(Message::V2),
                other => Err(format!(
                    "got {kind} content type; unknown type for remote write protobuf message {other}, \
                     supported: {NAME_V1}, {NAME_V2}"
                )),
            };
        }
    }
    Ok(Message::V1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[track_caller]
    fn check(kind: &'static str, encoding: &'static str, want: Result<Message, &str>) {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
        assert_eq!(message_of(&headers), want.map_err(str::to_owned));
    }

    #[test]
    fn without_a_name_it_is_version_one() {
        assert_eq!(message_of(&HeaderMap::new()), Ok(Message::V1));
        check("", "", Ok(Message::V1));
        check("application/x-protobuf", "snappy", Ok(Message::V1));
        check("application/x-protobuf; charset=utf-8", "Snappy", Ok(Message::V1));
        check("application/x-protobuf;", "", Ok(Message::V1));
    }

    #[test]
    fn the_name_decides() {
        check("application/x-protobuf;proto=prometheus.WriteRequest", "snappy", Ok(Message::V1));
        check("application/x-protobuf;proto=io.prometheus.write.v2.Request", "snappy", Ok(Message::V2));
        check("Application/X-Protobuf ; Proto=\"io.prometheus.write.v2.Request\"", "", Ok(Message::V2));
        check("application/x-protobuf; a=b; proto=io.prometheus.write.v2.Request", "", Ok(Message::V2));
    }

    #[test]
    fn what_is_not_accepted_has_the_text_of_prometheus() {
        check(
            "application/x-protobuf",
            "zstd",
            Err("zstd encoding (compression) is not accepted by this server; only snappy is acceptable"),
        );
        check(
            "text/plain",
            "snappy",
            Err("expected application/x-protobuf as the first (media) part, got text/plain content-type"),
        );
        check(
            "application/x-protobuf;proto=foo.Bar",
            "snappy",
            Err(
                "got application/x-protobuf;proto=foo.Bar content type; unknown type for remote write protobuf \
                 message foo.Bar, supported: prometheus.WriteRequest, io.prometheus.write.v2.Request",
            ),
        );
        check(
            "application/x-protobuf;proto",
            "snappy",
            Err(
                "as per https://www.rfc-editor.org/rfc/rfc9110#parameter expected parameters to be key-values, \
                 got proto in application/x-protobuf;proto content-type",
            ),
        );
    }
}
