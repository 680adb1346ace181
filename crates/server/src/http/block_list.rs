//! `status/tsdb/blocks`: blocks of the tenant, local ones and blocks of the bucket's catalogue, as Prometheus
//! lists its blocks; `bytes`, `location`, `store` and `total` are additions.
//!
//! Invariant: at most [`BLOCK_LIST_MAX`] blocks, those with the latest ends.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_tsdb::{BlockList, BlockSummary};
use serde_json::{Value, json};

use super::call;
use super::dispatch;
use super::error::ApiError;
use super::status::success;
use crate::limits::BLOCK_LIST_MAX;
use crate::web::Web;

/// Version of `meta.json` that all blocks have.
const META_VERSION: u32 = 1;

pub(super) async fn blocks(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let identity = call.identity.clone();
    let listed = dispatch::run(&web, &identity, web.service.options.query.timeout_ms, move |web, ctx| {
        let tenant = &call.tenant;
        let list = match (web.service.lifecycle.opened(), web.service.bucket.get()) {
            (Some(store), _) => store.statistics().block_list(tenant, BLOCK_LIST_MAX, ctx)?,
            (None, Some(bucket)) => bucket.block_list(tenant, BLOCK_LIST_MAX, ctx)?,
            (None, None) => BlockList::default(),
        };
        Ok(json!({
            "blocks": list.blocks.iter().map(block_value).collect::<Vec<_>>(),
            "total": list.total,
            "bucketError": list.bucket_error,
        }))
    });
    Ok(success(&listed.await?))
}

fn block_value(block: &BlockSummary) -> Value {
    json!({
        "ulid": block.ulid,
        "minTime": block.range_ms.start,
        "maxTime": block.range_ms.end,
        "stats": {
            "numSamples": block.sample_count,
            "numSeries": block.series_count,
            "numChunks": block.chunk_count,
        },
        "compaction": { "level": block.level, "sources": block.sources },
        "version": META_VERSION,
        "bytes": block.bytes,
        "location": block.location.as_str(),
        "store": block.store,
    })
}
