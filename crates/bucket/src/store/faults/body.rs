//! Answers that are made or changed: errors by their status, bodies.

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::{Error, GetResult, GetResultPayload};

use crate::store::http::StatusError;

/// The error for an answer with this status.
pub(super) fn status(status: u16) -> Error {
    let source = Box::new(StatusError { status, body: "SlowDown".to_owned() });
    Error::Generic { store: "faults", source }
}

/// An answer with another body.
pub(super) fn changed(answer: GetResult, change: impl FnOnce(&mut Vec<u8>) + Send + 'static) -> GetResult {
    let meta = answer.meta.clone();
    let range = answer.range.clone();
    let attributes = answer.attributes.clone();
    let body = stream::once(async move {
        let mut body = answer.into_stream().try_collect::<Vec<Bytes>>().await?.concat();
        change(&mut body);
        Ok(Bytes::from(body))
    });
    let payload = GetResultPayload::Stream(body.boxed());
    GetResult { payload, meta, range, attributes, extensions: Default::default() }
}
