//! Rows about the state of the server, and its own metrics.
//! Not here: handlers.

use chronolith_service::access::Scope;

use crate::http::routing::{Answer, Effect, Methods, RequestBody, Route, Shows, handler};
use crate::http::{
    active, activity, block_list, bucket_status, cluster_status, features, graphite, lifecycle, openapi,
    self_metrics, status,
};

pub(super) const ROUTES: &[Route] = &[
    Route::new(&["/api/v1/status/buildinfo"], "version and commit")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(status::build))
        .details(
            "the Prometheus version whose API is served, `chronolithVersion`, and the commit: \
                  `revision`, `branch`, `buildDate` (`unknown` if the build had no git, or is none of \
                  the release profile); `features` lists the optional parts of the build, or with \
                  `--web.buildinfo-mimir` the features of a Mimir, by which Grafana decides what to offer",
        ),
    Route::new(&["/api/v1/status/runtimeinfo"], "start time, threads, retention, last reload").on(
        Methods::Get,
        Scope::ReadStatus,
        Shows::AllSeries,
        Effect::Reads,
        handler!(status::runtime),
    ),
    Route::new(&["/api/v1/status/tsdb"], "cardinality of the head or of selected series")
        .on(Methods::Get, Scope::ReadMetrics, Shows::SeriesOfTenant, Effect::Reads, handler!(status::tsdb))
        .takes("limit match[] start end @tenant")
        .details(
            "returns the cardinality of the head: `limit`. With `match[]`, `start` or `end` it \
                  covers the selected series of head and blocks, at most 1,000,000 (else 422)",
        ),
    Route::new(&["/api/v1/status/tsdb/blocks"], "blocks of local disk and bucket")
        .on(Methods::Get, Scope::ReadMetrics, Shows::AllSeries, Effect::Reads, handler!(block_list::blocks))
        .takes("@tenant")
        .details(
            "blocks, those of the bucket included: the 1,000 with the latest ends, with `bytes` and \
                  `location` (local, bucket, both)",
        ),
    Route::new(&["/api/v1/status/tenants"], "tenants with counters, sizes and use of limits")
        .on(Methods::Get, Scope::ReadStatus, Shows::AllSeries, Effect::Reads, handler!(activity::tenants::tenants))
        .takes("limit sort @tenant")
        .details(
            "lists the tenants of the principal with counters, sizes and use of limits and needs no \
                  tenant; `stored` is false for one without data, which only asked; \
                  `overflowMetrics` has the 20 metrics with most folded series and the estimated values of \
                  their labels: `limit` (100), `sort` (series, memory, rejected, queries)",
        ),
    Route::new(&["/api/v1/status/rejects"], "refused samples of the last hour")
        .on(Methods::Get, Scope::ReadMetrics, Shows::AllSeries, Effect::Reads, handler!(activity::rejects))
        .takes("limit @tenant")
        .details(
            "counts refused samples of the last hour per minute and reason, and shows the newest \
                  examples with sender, setting and advice: `limit` (100)",
        ),
    Route::new(&["/api/v1/status/top_queries"], "costliest queries of the last hour")
        .on(Methods::Get, Scope::ReadMetrics, Shows::AllSeries, Effect::Reads, handler!(activity::top_queries))
        .takes("limit sort @tenant")
        .details("costliest queries of the last hour: `limit` (20), `sort` (seconds, count, samples)"),
    Route::new(&["/api/v1/status/metric_usage"], "metrics with series, memory, bytes on disk and queries")
        .on(Methods::Get, Scope::ReadMetrics, Shows::AllSeries, Effect::Reads, handler!(activity::metrics::metric_usage))
        .takes("limit sort search @tenant")
        .details(
            "lists metrics with series, memory, bytes on disk and the queries that selected them: \
                  `limit` (100), `sort` (series, memory, disk, queries, last_queried, unused), `search`",
        ),
    Route::new(&["/api/v1/status/storage"], "blocks, WAL, maintenance, notes of the last replay").on(
        Methods::Get,
        Scope::ReadStatus,
        Shows::WholeServer,
        Effect::Reads,
        handler!(status::storage),
    ),
    Route::new(&["/api/v1/status/memory"], "memory by consumer").on(
        Methods::Get,
        Scope::ReadStatus,
        Shows::WholeServer,
        Effect::Reads,
        handler!(status::memory),
    ),
    Route::new(&["/api/v1/status/cluster"], "roles, partition map and position in the replicated log")
        .on(Methods::Get, Scope::ReadStatus, Shows::WholeServer, Effect::Reads, handler!(cluster_status::cluster))
        .details(
            "lists roles, the partition map, and offsets, lag and refused records of an owner, on query nodes \
                  those of all owners; the data is null on a server with role all",
        ),
    Route::new(&["/api/v1/status/bucket"], "blocks, cache, requests and uploads of the bucket")
        .on(Methods::Get, Scope::ReadStatus, Shows::WholeServer, Effect::Reads, handler!(bucket_status::bucket))
        .details("blocks, cache, requests and uploads of the bucket; null without one"),
    Route::new(&["/api/v1/status/flags"], "settings as text").on(
        Methods::Get,
        Scope::ReadStatus,
        Shows::WholeServer,
        Effect::Reads,
        handler!(status::flags),
    ),
    Route::new(&["/api/v1/status/settings"], "settings with value, default and origin")
        .on(Methods::Get, Scope::ReadStatus, Shows::WholeServer, Effect::Reads, handler!(status::settings))
        .details(
            "returns all settings with value, default and origin (`default`, `flag`, `environment \
                  variable NAME`, `FILE:LINE`); not Prometheus's",
        ),
    Route::new(&["/api/v1/status/config"], "settings as YAML, limits of tenants included").on(
        Methods::Get,
        Scope::ReadStatus,
        Shows::WholeServer,
        Effect::Reads,
        handler!(status::config),
    ),
    Route::new(&["/api/v1/status/self_metrics"], "own metrics as JSON")
        .on(Methods::Get, Scope::ReadStatus, Shows::WholeServer, Effect::Reads, handler!(self_metrics::self_metrics))
        .takes("metric_name_pattern")
        .details(
            "returns the metrics of `/metrics` as JSON, in the fields of Prometheus's protobuf \
                  messages: `metric_name_pattern`, an anchored regular expression",
        ),
    Route::new(&["/api/v1/status/walreplay"], "progress of the replay").on(
        Methods::Get,
        Scope::ReadStatus,
        Shows::AllSeries,
        Effect::Reads,
        handler!(status::replay),
    ),
    Route::new(&["/api/v1/status/active_queries"], "running queries")
        .on(Methods::Get, Scope::ReadStatus, Shows::WholeServer, Effect::Reads, handler!(active::list))
        .details("running queries of all languages and the self-scrape: id, tenant, language, text, age, memory, series, samples"),
    Route::new(&["/api/v1/status/active_queries/kill"], "ends a running query")
        .on(Methods::Post, Scope::Admin, Shows::WholeServer, Effect::Controls, handler!(active::kill))
        .takes("id!")
        .body(RequestBody::Form)
        .details("ends the query `id`; its client gets 422"),
    Route::new(&["/api/v1/features"], "features by name, as in Prometheus").on(
        Methods::Get,
        Scope::Public,
        Shows::NoSeries,
        Effect::Neither,
        handler!(features::features),
    ),
    Route::new(&["/api/v1/openapi.yaml"], "this description")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(openapi::openapi))
        .takes("openapi_version")
        .answers(Answer::Yaml)
        .details("returns a description of all routes, OpenAPI 3.1; 3.2 with `openapi_version=3.2`"),
    Route::new(&["/metrics"], "own metrics; takes metrics 2.0 as JSON")
        .on(Methods::Get, Scope::ReadStatus, Shows::WholeServer, Effect::Reads, handler!(lifecycle::metrics))
        .on(Methods::Post, Scope::WriteMetrics, Shows::NoSeries, Effect::Changes, handler!(graphite::write_metrics))
        .body(RequestBody::Json)
        .answers(Answer::Exposition)
        .details("own metrics, text or OpenMetrics: [metrics.md](metrics.md); POST: metrics 2.0 as JSON"),
    Route::new(&["/version"], "version and commit")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(status::version))
        .answers(Answer::PlainJson)
        .details("the version"),
];
