//! Remote read: `POST /api/v1/read`.
//!
//! Invariants: series come sorted, samples bit for bit, staleness markers among them; an answer as one
//! message is complete or an error; a streamed one that cannot be completed ends the connection instead of
//! the body, so that no client takes a part for the whole. A streamed answer needs the memory of one series
//! and some frames, whatever is read. Not here: protobuf and snappy (`ingest`), bytes of chunks (the store),
//! the body that is streamed (`stream`), frames (`frames`).

mod frames;
#[cfg(test)]
pub(in crate::http) mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, header};
use chronolith_base::Reservation;
use chronolith_ingest::remote_read::encode::SamplesEncoder;
use chronolith_ingest::remote_read::{self, ReadQuery, ReadRequest, ReadRequestError, ResponseKind};
use chronolith_ingest::remote_write::DecodeError;
use chronolith_model::query::SelectRequest;
use chronolith_model::{Columns, Labels, QueryError, Queryable, ReadContext, Selector, SeriesRead};
use chronolith_service::access::Identity;
use chronolith_service::activity::metric_usage::selected_names;
use chronolith_service::evaluation::call_context::CallContext;
use serde_json::json;

use super::audit_notes::AuditNotes;
use super::body::{self, BodyBytes};
use super::dispatch;
use super::error::{ApiError, ErrorKind};
use super::sender::identity_of;
use super::stream::{self, Parts, StreamKind};
use crate::limits::{ANSWER_TIMEOUT, REMOTE_READ_ANSWER_BYTES_MAX, REMOTE_READ_BYTES_MAX};
use crate::web::Web;
use frames::Frames;

/// Media type of a streamed answer, which is compressed chunks already.
pub(super) const STREAM_MEDIA_TYPE: &str = "application/x-streamed-protobuf";
const STREAM_CONTENT_TYPE: &str = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";
/// A time and a value.
const SAMPLE_BYTES: u64 = 16;
/// Snappy's bound for bytes that do not pack: all of them, a sixth more, and some.
const SNAPPY_SLACK_BYTES: u64 = 32;

pub(super) async fn read(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    answer(&web, request).await.unwrap_or_else(ApiError::into_text)
}

async fn answer(web: &Arc<Web>, request: Request) -> Result<Response<Body>, ApiError> {
    let (parts, request_body) = request.into_parts();
    let admitted = identity_of(&parts.extensions).map_err(ApiError::from);
    let (identity, source) = match admitted.and_then(|identity| {
        let source = web.service.lifecycle.view(&identity)?;
        Ok((identity, source))
    }) {
        Ok(admitted) => admitted,
        Err(refused) => {
            body::discard(request_body).await;
            return Err(refused);
        }
    };
    let tenant = identity.tenant().clone();
    let memory_max = web.service.limits_of(&tenant).queries.memory_bytes_max;
    let memory = web.service.admission.query_memory.of(&tenant, memory_max);
    let body = body::read_query(request_body, REMOTE_READ_BYTES_MAX, &memory.budget).await?;
    let request = decode(web, &identity, body).await?;
    let names = request.queries.iter().flat_map(|query| selected_names(&query.matchers));
    web.service.queries.metric_usage.record(&tenant, names, web.service.env.clock.now_ms());
    note_queries(&AuditNotes::of(&parts.extensions), &request.queries);
    match request.response {
        ResponseKind::Samples => {
            let view = move |ctx: &CallContext| ctx.view_of(source);
            samples_answer(web, identity, view, request.queries).await
        }
        ResponseKind::StreamedChunks => streamed_answer(web, identity, source, request.queries).await,
    }
}

/// Sets the selectors and times of a request for its line in the audit log.
pub(super) fn note_queries(notes: &AuditNotes, queries: &[ReadQuery]) {
    if !notes.is_on() {
        return;
    }
    let one = |query: &ReadQuery| {
        let matchers: Vec<String> = query.matchers.iter().map(ToString::to_string).collect();
        json!({ "matchers": matchers, "startMs": query.range.start, "endMs": query.range.end })
    };
    notes.set_target("queries", queries.iter().map(one).collect());
}

/// Unpacks a request off the async threads, because compiling regular expressions may take a while, with a
/// permit of its own: only then is it known how the request is answered, and how long it may take.
pub(super) async fn decode(
    web: &Arc<Web>,
    identity: &Identity,
    body: BodyBytes,
) -> Result<ReadRequest, ApiError> {
    let wait_max = Duration::from_millis(web.service.options.query.timeout_ms);
    let class = &web.service.admission.remote_read;
    let decoded = dispatch::run_to_end(web, class, identity, wait_max, move |_| {
        remote_read::decode(&body.bytes, REMOTE_READ_BYTES_MAX)
    });
    decoded.await?.map_err(|error| {
        let kind = match error {
            ReadRequestError::Body(DecodeError::TooLarge { .. }) => ErrorKind::TooLarge,
            _ => ErrorKind::BadRequest,
        };
        ApiError::new(kind, error)
    })
}

/// Answers with one message, from the source that `view` returns.
pub(super) async fn samples_answer(
    web: &Arc<Web>,
    identity: Identity,
    view: impl FnOnce(&CallContext) -> Arc<dyn Queryable> + Send + 'static,
    queries: Vec<ReadQuery>,
) -> Result<Response<Body>, ApiError> {
    let timeout_ms = web.service.options.query.timeout_ms;
    let done =
        dispatch::run_as(web, &web.service.admission.remote_read, &identity, timeout_ms, move |web, ctx| {
            read_samples(web, &*view(ctx), &queries, ctx)
        });
    let (bytes, held) = done.await?;
    web.metrics.remote_read.messages.add(1);
    web.metrics.remote_read.message_bytes.add(bytes.len() as u64);
    let mut response = Response::new(body::parts(vec![body::held(bytes, held)]));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("snappy"));
    Ok(response)
}

/// Answers with frames.
async fn streamed_answer(
    web: &Arc<Web>,
    identity: Identity,
    source: Arc<dyn Queryable>,
    queries: Vec<ReadQuery>,
) -> Result<Response<Body>, ApiError> {
    let timeout_ms = ANSWER_TIMEOUT.as_secs() * 1000;
    let admitted = web.service.admit(&web.service.admission.remote_read, &identity, timeout_ms).await?;
    let kind = StreamKind {
        name: "remote read",
        content_type: STREAM_CONTENT_TYPE,
        timeout: ANSWER_TIMEOUT,
        metrics: |metrics| &metrics.remote_read.stream,
    };
    let response = stream::answer(web, admitted, kind, move |web, admitted, parts| {
        let source = admitted.ctx().view_of(source);
        read_frames(web, &*source, &queries, admitted.ctx(), parts)
    });
    let response = response.await?;
    web.metrics.remote_read.streams.add(1);
    Ok(response)
}

/// All samples of all queries as one message, compressed.
fn read_samples(
    web: &Web,
    source: &dyn Queryable,
    queries: &[ReadQuery],
    ctx: &ReadContext,
) -> Result<(Vec<u8>, Reservation), ApiError> {
    let mut reader = SeriesReader::new(web, ctx)?;
    let mut held = reserve(ctx, 0)?;
    let mut encoder = SamplesEncoder::default();
    let limit = web.service.options.remote_read.samples_max;
    for query in queries {
        let mut sample_count = 0;
        let needs = if query.is_labels_only { Needs::Labels } else { Needs::Samples };
        reader.each(source, query, needs, ctx, |labels, samples| {
            sample_count += samples.len() as u64;
            if limit > 0 && sample_count > limit {
                return Err(ApiError::bad_request(format!("exceeded sample limit ({limit})")));
            }
            encoder.push_series(labels.iter(), samples);
            grow_to(&mut held, encoder.heap_bytes() as u64)?;
            answer_fits(encoder.len())
        })?;
        encoder.end_query();
        grow_to(&mut held, encoder.heap_bytes() as u64)?;
    }
    let len = encoder.len() as u64;
    let packed_held = reserve(ctx, len + len / 6 + SNAPPY_SLACK_BYTES)?;
    let packed = encoder.compressed();
    Ok((packed, packed_held))
}

fn answer_fits(len: usize) -> Result<(), ApiError> {
    if len <= REMOTE_READ_ANSWER_BYTES_MAX {
        return Ok(());
    }
    let what = "response is too large for one SAMPLES message, request STREAMED_XOR_CHUNKS";
    Err(QueryError::Limit { what, limit: REMOTE_READ_ANSWER_BYTES_MAX as u64 }.into())
}

/// Frames of all queries, each with chunks of one series, handed over part by part.
fn read_frames(
    web: &Web,
    source: &dyn Queryable,
    queries: &[ReadQuery],
    ctx: &ReadContext,
    parts: &Parts,
) -> Result<(), ApiError> {
    let mut reader = SeriesReader::new(web, ctx)?;
    let mut frames = Frames::new(web.service.options.remote_read.frame_bytes_max, parts, ctx);
    for (query_idx, query) in queries.iter().enumerate() {
        // Frames have chunks, in Prometheus also for a reader of labels.
        reader.each_in_chunks(source, query, query_idx, &mut frames)?;
    }
    frames.finish()
}

/// Parts of the series that an answer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Labels,
    Samples,
}

/// Reads series one after the other into memory that is used again.
struct SeriesReader<'a> {
    web: &'a Web,
    columns: Columns,
    held: Reservation,
}

impl<'a> SeriesReader<'a> {
    fn new(web: &'a Web, ctx: &ReadContext) -> Result<SeriesReader<'a>, ApiError> {
        Ok(SeriesReader { web, columns: Columns::default(), held: reserve(ctx, 0)? })
    }

    /// Calls `take` with every series of `query` that has samples, sorted by labels. Without a need of
    /// samples these are left out, and a series counts that `/api/v1/series` lists.
    fn each(
        &mut self,
        source: &dyn Queryable,
        query: &ReadQuery,
        needs: Needs,
        ctx: &ReadContext,
        mut take: impl FnMut(&Labels, &Columns) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        self.columns.clear();
        self.each_selected(source, query, needs, ctx, |reader, series| {
            if needs == Needs::Samples {
                reader.read(series, query)?;
            }
            if needs == Needs::Labels || !reader.columns.is_empty() {
                take(&series.labels, &reader.columns)?;
                reader.count(reader.columns.len());
            }
            Ok(())
        })
    }

    /// Puts every series of `query` that has samples into frames, sorted by labels, its chunks as they
    /// are kept where Prometheus knows their encoding.
    fn each_in_chunks(
        &mut self,
        source: &dyn Queryable,
        query: &ReadQuery,
        query_idx: usize,
        frames: &mut Frames<'_>,
    ) -> Result<(), ApiError> {
        let ctx = frames.ctx();
        self.each_selected(source, query, Needs::Samples, ctx, |reader, series| {
            reader.reserve_samples(series)?;
            frames.start_series(query_idx, &series.labels);
            let mut failed = None;
            let visited = series.samples.visit_chunks(
                query.range,
                &frames::is_sent_as_it_is,
                &mut reader.columns,
                &mut |part| {
                    frames.put(part).map_err(|error| {
                        failed = Some(error);
                        QueryError::Canceled
                    })
                },
            );
            if let Some(error) = failed {
                return Err(error);
            }
            visited?;
            reader.reserve_columns()?;
            let sample_count = frames.end_series()?;
            if sample_count > 0 {
                reader.count(sample_count);
            }
            Ok(())
        })
    }

    fn count(&self, sample_count: usize) {
        self.web.metrics.remote_read.series.add(1);
        self.web.metrics.remote_read.samples.add(sample_count as u64);
    }

    /// Calls `take` with every series that `query` selects.
    fn each_selected(
        &mut self,
        source: &dyn Queryable,
        query: &ReadQuery,
        needs: Needs,
        ctx: &ReadContext,
        mut take: impl FnMut(&mut Self, &SeriesRead) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        // As in Prometheus, a query without matchers selects nothing.
        if query.range.is_empty() || query.matchers.is_empty() {
            return Ok(());
        }
        let selector = Selector { matchers: &query.matchers, range: query.range };
        let request = match needs {
            Needs::Labels => SelectRequest::newest(&selector),
            Needs::Samples => SelectRequest::new(&selector),
        };
        let mut batches = source.open_series(request, ctx)?;
        let mut batch = Vec::new();
        loop {
            let more = batches.next_batch(&mut batch)?;
            for series in batch.drain(..) {
                ctx.check()?;
                take(self, &series)?;
            }
            if !more {
                return dispatch::refuse_partial(ctx);
            }
        }
    }

    fn read(&mut self, series: &SeriesRead, query: &ReadQuery) -> Result<(), ApiError> {
        self.columns.clear();
        self.reserve_samples(series)?;
        series.samples.read(query.range, &mut self.columns)?;
        self.reserve_columns()
    }

    /// Reserves the memory of the samples of a series before they are read.
    fn reserve_samples(&mut self, series: &SeriesRead) -> Result<(), ApiError> {
        let sample_count = series.samples.sample_count_hint().max(self.columns.times.capacity());
        grow_to(&mut self.held, sample_count as u64 * SAMPLE_BYTES)
    }

    /// Reserves what samples took.
    fn reserve_columns(&mut self) -> Result<(), ApiError> {
        let columns_bytes = self.columns.times.capacity() as u64 * SAMPLE_BYTES;
        grow_to(&mut self.held, columns_bytes + self.columns.histogram_bytes() as u64)
    }
}

fn reserve(ctx: &ReadContext, bytes: u64) -> Result<Reservation, ApiError> {
    Ok(ctx.budget.reserve(bytes).map_err(QueryError::from)?)
}

fn grow_to(held: &mut Reservation, bytes: u64) -> Result<(), ApiError> {
    let more = bytes.saturating_sub(held.bytes());
    Ok(held.grow(more).map_err(QueryError::from)?)
}
