//! Compression of responses (gzip, zstd): which responses, in which coding, on which thread.
//!
//! Invariants: no async worker compresses more than [`COMPRESSION_INLINE_BYTES_MAX`] at once; a large one is
//! compressed in blocks on other threads, a bounded number of blocks ahead of its client (ADR 0105).
//! Not here: negotiation (`accept`), formats (`gzip`, `zstd`), blocks in flight (`blocks`).

mod accept;
mod answer;
mod blocks;
mod encoder;
mod gzip;
mod zstd;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::Next;
use http_body_util::BodyExt as _;

use self::blocks::PackedBody;
use self::encoder::Encoder;
use super::remote_read;
use crate::limits::{COMPRESSION_BLOCK_BYTES, COMPRESSION_BYTES_MIN, COMPRESSION_INLINE_BYTES_MAX};
use crate::web::Web;

pub(super) use self::accept::{Coding, printed_coding, takes_stored_gzip};
pub(super) use self::answer::{PackedAnswer, Packing};

/// Media types whose content is compressed already.
const COMPRESSED_TYPES: [&str; 2] = ["image/", remote_read::STREAM_MEDIA_TYPE];

/// Compresses the response if the client accepts a coding and the response is worth it.
pub(super) async fn compress(State(web): State<Arc<Web>>, request: Request, next: Next) -> Response<Body> {
    let coding = accept::coding_of(request.headers());
    let is_head = request.method() == Method::HEAD;
    let mut response = next.run(request).await;
    if !is_compressible(&response) {
        return response;
    }
    if !response.headers().contains_key(header::VARY) {
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    let Some(token) = coding.token() else { return response };
    let (mut head, body) = response.into_parts();
    head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(token));
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.remove(header::ACCEPT_RANGES);
    weaken_etag(&mut head.headers);
    // The body of a response to HEAD is dropped unread.
    let is_short = body.size_hint().exact().is_some_and(|bytes| bytes <= COMPRESSION_BLOCK_BYTES as u64);
    let body =
        if is_short && !is_head { whole(&web, coding, body).await } else { streamed(&web, coding, body) };
    Response::from_parts(head, body)
}

/// Returns true if a response may be sent compressed: it has content, of a type and a length that gain.
fn is_compressible(response: &Response<Body>) -> bool {
    let headers = response.headers();
    let has_content = !matches!(
        response.status(),
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED | StatusCode::PARTIAL_CONTENT
    );
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or("");
    let media_type = text(header::CONTENT_TYPE);
    has_content
        && !headers.contains_key(header::CONTENT_ENCODING)
        && !headers.contains_key(header::CONTENT_RANGE)
        && !text(header::CACHE_CONTROL).contains("no-transform")
        && !COMPRESSED_TYPES.iter().any(|prefix| media_type.starts_with(prefix))
        && response.body().size_hint().exact().is_none_or(|bytes| bytes >= COMPRESSION_BYTES_MIN)
}

/// Makes a strong validator weak: it names bytes, and bytes differ between codings.
fn weaken_etag(headers: &mut HeaderMap) {
    let Some(etag) = headers.get(header::ETAG) else { return };
    if etag.as_bytes().starts_with(b"W/") {
        return;
    }
    match HeaderValue::from_bytes(&[b"W/", etag.as_bytes()].concat()) {
        Ok(weak) => headers.insert(header::ETAG, weak),
        Err(_) => headers.remove(header::ETAG),
    };
}

/// A short body as one gzip member or zstd frame of known length.
async fn whole(web: &Arc<Web>, coding: Coding, mut body: Body) -> Body {
    let mut parts = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => parts.extend(frame.into_data()),
            Err(error) => return failed(error),
        }
    }
    let bytes: usize = parts.iter().map(Bytes::len).sum();
    let shared = web.clone();
    let job = move || {
        let pack = || match coding {
            Coding::Zstd => zstd::frame(&parts),
            _ => Ok(gzip::member(&parts)),
        };
        shared.metrics.compression.measure(bytes, pack, |packed| packed.as_ref().map_or(0, Vec::len))
    };
    if bytes <= COMPRESSION_INLINE_BYTES_MAX {
        return job().map_or_else(|error| failed(axum::Error::new(error)), Body::from);
    }
    match web.service.admission.compressors.run(job).await {
        Ok(Ok(packed)) => Body::from(packed),
        Ok(Err(error)) => failed(axum::Error::new(error)),
        Err(error) => failed(axum::Error::new(error)),
    }
}

/// A body that ends its connection: the client must not take what it has for the whole.
fn failed(error: axum::Error) -> Body {
    Body::from_stream(futures_util::stream::once(async { Err::<Bytes, axum::Error>(error) }))
}

fn streamed(web: &Arc<Web>, coding: Coding, body: Body) -> Body {
    match Encoder::new(web.clone(), coding) {
        Ok(encoder) => Body::new(PackedBody::new(encoder, body)),
        Err(error) => failed(axum::Error::new(error)),
    }
}
