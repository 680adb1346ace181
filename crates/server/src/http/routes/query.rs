//! Rows of PromQL's queries: series, labels, search, metadata, remote read, federation.
//! Not here: handlers.

use chronolith_service::access::Scope;

use crate::http::routing::{Answer, Effect, ErrorForm, Methods, RequestBody, Route, Shows, handler};
use crate::http::{federate, metadata, query, remote_read, search, series};

pub(super) const QUERIES: &[Route] = &[
    Route::new(&["/api/v1/query"], "instant query")
        .on(
            Methods::GetPost,
            Scope::ReadMetrics,
            Shows::SeriesOfTenants,
            Effect::Reads,
            handler!(query::instant),
        )
        .takes("query! time timeout lookback_delta limit stats explain partial_response @tenant")
        .body(RequestBody::Form)
        .answers(Answer::Query)
        .details(
            "instant query: `query`, `time`, `timeout`, `lookback_delta`, `limit`, `stats`; \
                  `explain=1`; `partial_response=true` ([blocks in a bucket](../bucket.md))",
        ),
    Route::new(&["/api/v1/query_range"], "range query")
        .on(
            Methods::GetPost,
            Scope::ReadMetrics,
            Shows::SeriesOfTenants,
            Effect::Reads,
            handler!(query::range),
        )
        .takes(
            "query! start! end! step! timeout lookback_delta limit stats explain partial_response \
                nocache @tenant",
        )
        .body(RequestBody::Form)
        .answers(Answer::Query)
        .details("range query: also `start`, `end`, `step`; `nocache=1`"),
    Route::new(&["/api/v1/query_cost"], "estimated cost of an instant query")
        .on(
            Methods::GetPost,
            Scope::ReadMetrics,
            Shows::SeriesOfTenants,
            Effect::Reads,
            handler!(query::cost::instant),
        )
        .takes(
            "query! time timeout lookback_delta limit stats cost max_series max_samples_read \
                max_query_duration @tenant",
        )
        .body(RequestBody::Form)
        .answers(Answer::Cost)
        .details(
            "estimates the series and samples that an instant query reads, without running it, by \
                  Prometheus's rules; 404 unless `--enable-feature=query-cost`",
        ),
    Route::new(&["/api/v1/query_range_cost"], "estimated cost of a range query")
        .on(
            Methods::GetPost,
            Scope::ReadMetrics,
            Shows::SeriesOfTenants,
            Effect::Reads,
            handler!(query::cost::range),
        )
        .takes(
            "query! start! end! step! timeout lookback_delta limit stats cost max_series \
                max_samples_read max_query_duration @tenant",
        )
        .body(RequestBody::Form)
        .answers(Answer::Cost)
        .details(
            "estimates the series and samples that a range query reads; 404 unless \
                  `--enable-feature=query-cost`",
        ),
    Route::new(&["/api/v1/query_exemplars"], "exemplars")
        .on(
            Methods::GetPost,
            Scope::ReadMetrics,
            Shows::SeriesOfTenants,
            Effect::Reads,
            handler!(metadata::exemplars),
        )
        .takes("query! start end @tenant")
        .body(RequestBody::Form)
        .details("exemplars: `query`, `start`, `end`"),
    Route::new(&["/api/v1/format_query"], "the query over several lines")
        .on(Methods::GetPost, Scope::ReadMetrics, Shows::NoSeries, Effect::Neither, handler!(query::format))
        .takes("query! @tenant")
        .body(RequestBody::Form)
        .answers(Answer::String),
    Route::new(&["/api/v1/parse_query"], "the syntax tree as JSON")
        .on(
            Methods::GetPost,
            Scope::ReadMetrics,
            Shows::NoSeries,
            Effect::Neither,
            handler!(query::parse_tree),
        )
        .takes("query! @tenant")
        .body(RequestBody::Form),
    Route::new(&["/api/v1/series"], "series")
        .on(
            Methods::GetPost,
            Scope::ReadMetrics,
            Shows::SeriesOfTenants,
            Effect::Reads,
            handler!(series::series),
        )
        .takes("match[]! start end limit partial_response @tenant")
        .body(RequestBody::Form)
        .answers(Answer::Series)
        .details("series by `match[]`, `start`, `end`, `limit`, `partial_response`"),
    Route::new(&["/api/v1/labels"], "label names")
        .on(
            Methods::GetPost,
            Scope::ReadMetrics,
            Shows::SeriesOfTenants,
            Effect::Reads,
            handler!(series::label_names),
        )
        .takes("match[] start end limit partial_response @tenant")
        .body(RequestBody::Form)
        .answers(Answer::Strings)
        .details("label names; `match[]`, `start`, `end`, `limit`, `partial_response`"),
    Route::new(&["/api/v1/label/{name}/values"], "values of a label")
        .on(
            Methods::GetPost,
            Scope::ReadMetrics,
            Shows::SeriesOfTenants,
            Effect::Reads,
            handler!(series::label_values),
        )
        .takes("match[] start end limit partial_response @tenant")
        .body(RequestBody::Form)
        .answers(Answer::Strings)
        .details("values of a label; the same parameters"),
];

pub(super) const SEARCH: &[Route] = &[
    Route::new(&["/api/v1/search/metric_names"], "metric names by search terms")
        .on(
            Methods::GetPost,
            Scope::ReadMetrics,
            Shows::SeriesOfTenants,
            Effect::Reads,
            handler!(search::metric_names),
        )
        .takes(
            "search[] match[] start end limit batch_size sort_by sort_dir case_sensitive fuzz_alg \
                fuzz_threshold include_score include_metadata @tenant",
        )
        .body(RequestBody::Form)
        .answers(Answer::JsonLines)
        .details("metric names by `search[]`, in lines of JSON; parameters: [query.md](../query.md#search)"),
    Route::new(&["/api/v1/search/label_names"], "label names by search terms")
        .on(
            Methods::GetPost,
            Scope::ReadMetrics,
            Shows::SeriesOfTenants,
            Effect::Reads,
            handler!(search::label_names),
        )
        .takes(
            "search[] match[] start end limit batch_size sort_by sort_dir case_sensitive fuzz_alg \
                fuzz_threshold include_score @tenant",
        )
        .body(RequestBody::Form)
        .answers(Answer::JsonLines)
        .details("label names; the same parameters"),
    Route::new(&["/api/v1/search/label_values"], "values of a label by search terms")
        .on(
            Methods::GetPost,
            Scope::ReadMetrics,
            Shows::SeriesOfTenants,
            Effect::Reads,
            handler!(search::label_values),
        )
        .takes(
            "search[] match[] start end limit batch_size sort_by sort_dir case_sensitive fuzz_alg \
                fuzz_threshold include_score label! @tenant",
        )
        .body(RequestBody::Form)
        .answers(Answer::JsonLines)
        .details("values of `label`; the same parameters"),
];

pub(super) const METADATA: &[Route] = &[
    Route::new(&["/api/v1/metadata"], "type, help and unit of metrics")
        .on(
            Methods::Get,
            Scope::ReadMetrics,
            Shows::SeriesOfTenants,
            Effect::Reads,
            handler!(metadata::metadata),
        )
        .takes("metric limit limit_per_metric @tenant")
        .details("type, help and unit of metrics: `metric`, `limit`, `limit_per_metric`"),
    Route::new(&["/api/v1/read"], "remote read: samples, or streamed chunks")
        .on(
            Methods::Post,
            Scope::ReadMetrics,
            Shows::SeriesOfTenants,
            Effect::Reads,
            handler!(remote_read::read),
        )
        .takes("@tenant")
        .body(RequestBody::Protobuf)
        .answers(Answer::Chunks)
        .errors(ErrorForm::Text)
        .details("remote read: samples, or streamed XOR chunks"),
    Route::new(&["/federate"], "newest samples, as text or delimited protobuf")
        .on(
            Methods::GetPost,
            Scope::Federate,
            Shows::SeriesOfTenants,
            Effect::Reads,
            handler!(federate::federate),
        )
        .takes("match[]! @tenant")
        .body(RequestBody::Form)
        .answers(Answer::Federation)
        .details(
            "newest samples by `match[]`, text or delimited protobuf; names are escaped as `Accept` \
                  says",
        ),
];
