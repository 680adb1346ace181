//! Limits of what one query reads from blocks in the bucket. Not here: their application (`model::tenant`).

use super::declaration::{Form, Setting};
use super::value;

pub(super) const BYTES: Setting = Setting::tenant(
    "query.max-fetched-bytes",
    &[],
    "0",
    Form::Size,
    "Bytes of blocks in the bucket that one query reads, cached ones included, 422 beyond it; 0 = no limit",
    |l, v| {
        l.queries.fetch.bytes_max = value::size(v)?;
        Ok(())
    },
);

pub(super) const SERIES: Setting = Setting::tenant(
    "query.max-fetched-series",
    &[],
    "0",
    Form::Count,
    "Series that one query selects where it reads blocks in the bucket, 422 beyond it; 0 = no limit",
    |l, v| {
        l.queries.fetch.series_max = value::count_or_none(v).map(|n| n as u64)?;
        Ok(())
    },
);

pub(super) const CHUNKS: Setting = Setting::tenant(
    "query.max-fetched-chunks",
    &[],
    "0",
    Form::Count,
    "Chunks of blocks in the bucket that one query reads, 422 beyond it; 0 = no limit",
    |l, v| {
        l.queries.fetch.chunks_max = value::count_or_none(v).map(|n| n as u64)?;
        Ok(())
    },
);
