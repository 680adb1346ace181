//! Rows of Graphite's clients.
//! Not here: handlers.

use chronolith_service::access::Scope;

use crate::http::graphite;
use crate::http::routing::{Answer, Effect, Methods, RequestBody, Route, Shows, handler};

pub(super) const ROUTES: &[Route] = &[
    Route::new(&["/api/v1/carbon"], "carbon lines, plain or gzip")
        .on(Methods::Post, Scope::WriteMetrics, Shows::NoSeries, Effect::Changes, handler!(graphite::write_lines))
        .takes("@tenant")
        .body(RequestBody::Text)
        .answers(Answer::NoContent)
        .details(
            "carbon lines, plain or gzip; 204, or 400 with the number of refused points while the \
                  others are stored",
        ),
    Route::new(&["/api/v1/graphite/refused"], "the newest refused point per input and reason")
        .on(Methods::Get, Scope::ReadStatus, Shows::AllSeries, Effect::Reads, handler!(graphite::refused))
        .takes("reason @tenant")
        .answers(Answer::PlainJson)
        .details("the newest refused point per input and reason; `reason`"),
    Route::new(&["/api/v1/graphite/explain"], "rules that apply to a path")
        .on(Methods::Get, Scope::ReadMetrics, Shows::NoSeries, Effect::Reads, handler!(graphite::explain))
        .takes("path @tenant")
        .answers(Answer::PlainJson)
        .details(
            "the rules that apply to `path`: rewrite, schema, archives, reorder buffer, methods, \
                  xFilesFactor",
        ),
    Route::new(&["/api/v1/graphite/series"], "series of carbon points in the order of their paths")
        .on(Methods::Get, Scope::ReadMetrics, Shows::SeriesOfTenant, Effect::Reads, handler!(graphite::listing::series))
        .takes("after limit @tenant")
        .answers(Answer::PlainJson)
        .details(
            "returns series of carbon's points in the order of their paths, with labels, archives, \
                  methods and xFilesFactor; it begins after the path `after` and returns at most `limit` \
                  (10,000)",
        ),
    Route::new(&["/render", "/render/"], "picture or points of targets")
        .on(Methods::GetPost, Scope::ReadMetrics, Shows::SeriesOfTenant, Effect::Reads, handler!(graphite::render::render))
        .takes("target from until tz now maxDataPoints noNullPoints xFilesFactor jsonp meta format @tenant")
        .body(RequestBody::Form)
        .answers(Answer::Render)
        .details(
            "`target`, `from`, `until`, `tz`, `now`, `maxDataPoints`, `noNullPoints`, \
                  `xFilesFactor`, `template[NAME]`, `jsonp`, `meta`; `format` is png (default; a \
                  build without the feature `png` answers 501), svg with parameters of pictures, json, raw, csv, \
                  dygraph, rickshaw, pickle or msgpack",
        ),
    Route::new(&["/showplan"], "fetches of a render with archives and limits")
        .on(Methods::GetPost, Scope::ReadMetrics, Shows::SeriesOfTenant, Effect::Reads, handler!(graphite::showplan::showplan))
        .takes("target from until tz now maxDataPoints noNullPoints xFilesFactor pretty @tenant")
        .body(RequestBody::Form)
        .answers(Answer::PlainJson)
        .details(
            "JSON: fetches of a `/render` with the same parameters, with archives and limits; \
                  `pretty`",
        ),
    Route::new(&["/metrics/find", "/metrics/find/"], "nodes that match a query")
        .on(Methods::GetPost, Scope::ReadMetrics, Shows::SeriesOfTenant, Effect::Reads, handler!(graphite::find::find))
        .takes("query from until wildcards position format leavesOnly jsonp @tenant")
        .body(RequestBody::Form)
        .answers(Answer::Find)
        .details(
            "nodes: `query`, `from`, `until`, `wildcards`, `position`; `format`: treejson, \
                  completer, json, nodelist, pickle, msgpack",
        ),
    Route::new(&["/metrics/expand"], "paths that match queries")
        .on(Methods::GetPost, Scope::ReadMetrics, Shows::SeriesOfTenant, Effect::Reads, handler!(graphite::find::expand))
        .takes("query groupByExpr leavesOnly jsonp @tenant")
        .body(RequestBody::Form)
        .answers(Answer::PlainJson)
        .details("paths: `query`, `groupByExpr`, `leavesOnly`"),
    Route::new(&["/metrics/index.json"], "all paths")
        .on(Methods::GetPost, Scope::ReadMetrics, Shows::SeriesOfTenant, Effect::Reads, handler!(graphite::find::index))
        .takes("jsonp @tenant")
        .body(RequestBody::Form)
        .answers(Answer::PlainJson),
    Route::new(&["/metrics/delete"], "deletes the series of paths")
        .on(Methods::Post, Scope::DeleteMetrics, Shows::AllSeries, Effect::Changes, handler!(graphite::delete::paths))
        .takes("query @tenant")
        .body(RequestBody::Form)
        .answers(Answer::PlainJson)
        .details(
            "deletes the series whose paths match `query`; this and other deletions need \
                  `--web.enable-admin-api` (else 403)",
        ),
    Route::new(&["/metrics/get-metadata"], "aggregationMethod of each metric")
        .on(Methods::GetPost, Scope::ReadMetrics, Shows::SeriesOfTenant, Effect::Reads, handler!(graphite::metadata::get))
        .takes("metric key jsonp @tenant")
        .body(RequestBody::Form)
        .answers(Answer::PlainJson)
        .details("`aggregationMethod` of each `metric`; `key`, `jsonp`"),
    Route::new(&["/metrics/set-metadata"], "refused: the method is that of the storage rule")
        .on(Methods::GetPost, Scope::WriteMetrics, Shows::NoSeries, Effect::Neither, handler!(graphite::metadata::set))
        .takes("metric key value @tenant")
        .body(RequestBody::Form)
        .answers(Answer::Refused)
        .details("400: the method is that of the storage rule"),
    Route::new(&["/version/"], "version of graphite-web whose answers these are")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(graphite::version))
        .answers(Answer::Text)
        .details(
            "`1.1.10`, the version of graphite-web whose answers these are; `/version` is \
                  Prometheus's",
        ),
    Route::new(&["/tags", "/tags/"], "keys of tags")
        .on(Methods::Get, Scope::ReadMetrics, Shows::SeriesOfTenant, Effect::Reads, handler!(graphite::tags::list))
        .takes("filter limit pretty @tenant")
        .answers(Answer::PlainJson)
        .details(
            "keys of tags: `filter`, `limit`; as all of `/tags` with `pretty`, errors as \
                  `{\"error\": ...}`",
        ),
    Route::new(&["/tags/{tag}"], "values of a tag with the number of series")
        .on(Methods::Get, Scope::ReadMetrics, Shows::SeriesOfTenant, Effect::Reads, handler!(graphite::tags::details))
        .takes("filter limit pretty @tenant")
        .answers(Answer::PlainJson)
        .details("values of a tag with the number of series: `filter`, `limit`"),
    Route::new(&["/tags/findSeries"], "paths by expr")
        .on(Methods::GetPost, Scope::ReadMetrics, Shows::SeriesOfTenant, Effect::Reads, handler!(graphite::tags::find_series))
        .takes("expr from to limit pretty @tenant")
        .body(RequestBody::Form)
        .answers(Answer::PlainJson)
        .details("paths by `expr`; `from`, `to`, `limit`"),
    Route::new(&["/tags/autoComplete/tags"], "keys of tags for completion")
        .on(Methods::GetPost, Scope::ReadMetrics, Shows::SeriesOfTenant, Effect::Reads, handler!(graphite::tags::complete_keys))
        .takes("expr tagPrefix limit from until pretty @tenant")
        .body(RequestBody::Form)
        .answers(Answer::PlainJson)
        .details("keys: `expr`, `tagPrefix`, `limit` (100), `from`, `until`"),
    Route::new(&["/tags/autoComplete/values"], "values of a tag for completion")
        .on(Methods::GetPost, Scope::ReadMetrics, Shows::SeriesOfTenant, Effect::Reads, handler!(graphite::tags::complete_values))
        .takes("expr tag valuePrefix limit from until pretty @tenant")
        .body(RequestBody::Form)
        .answers(Answer::PlainJson)
        .details("values of `tag`: `expr`, `valuePrefix`, `limit` (100), `from`, `until`"),
    Route::new(&["/tags/terms"], "number of series per value of each of tags")
        .on(Methods::GetPost, Scope::ReadMetrics, Shows::SeriesOfTenant, Effect::Reads, handler!(graphite::tags::terms))
        .takes("expr tags from to pretty @tenant")
        .body(RequestBody::Form)
        .answers(Answer::PlainJson)
        .details("number of series per value of each of `tags`: `expr`, `from`, `to`"),
    Route::new(&["/tags/tagSeries"], "the canonical form of path")
        .on(Methods::Post, Scope::WriteMetrics, Shows::NoSeries, Effect::Neither, handler!(graphite::tags::tag_series))
        .takes("path pretty @tenant")
        .body(RequestBody::Form)
        .answers(Answer::PlainJson)
        .details("the canonical form of `path`"),
    Route::new(&["/tags/tagMultiSeries"], "the canonical form of paths")
        .on(Methods::Post, Scope::WriteMetrics, Shows::NoSeries, Effect::Neither, handler!(graphite::tags::tag_multi_series))
        .takes("path pretty @tenant")
        .body(RequestBody::Form)
        .answers(Answer::PlainJson)
        .details("the canonical form of each `path`"),
    Route::new(&["/tags/delSeries"], "deletes the series of paths")
        .on(Methods::Post, Scope::DeleteMetrics, Shows::AllSeries, Effect::Changes, handler!(graphite::delete::tagged_series))
        .takes("path pretty @tenant")
        .body(RequestBody::Form)
        .answers(Answer::PlainJson)
        .details("deletes the series of each `path`"),
    Route::new(&["/tags/delByQuery"], "counts or deletes the series of expressions")
        .on(Methods::Post, Scope::DeleteMetrics, Shows::AllSeries, Effect::Changes, handler!(graphite::delete::by_query::run))
        .takes("expr olderThan execute limit after @tenant")
        .body(RequestBody::Form)
        .answers(Answer::PlainJson)
        .details(
            "counts the series of `expr`; `olderThan` selects series without a point since. With \
                  `execute=true` it deletes at most `limit` (100,000) of them within `query.timeout`. \
                  `count` is the number of deleted series, `left` the number of the others found; if \
                  there may be more, `next` is the parameter `after` of the next request",
        ),
    Route::new(&["/metaTags", "/metaTags/"], "rules that add tags to series")
        .on(Methods::Get, Scope::ReadMetrics, Shows::AllSeries, Effect::Reads, handler!(graphite::meta_tags::list))
        .takes("@tenant")
        .answers(Answer::PlainJson),
    Route::new(&["/metaTags/upsert"], "adds or replaces a rule that adds tags")
        .on(Methods::Post, Scope::WriteRules, Shows::AllSeries, Effect::Changes, handler!(graphite::meta_tags::upsert))
        .takes("@tenant")
        .body(RequestBody::Json)
        .answers(Answer::PlainJson)
        .details(
            "adds or replaces the rule of a list of expressions, JSON `{\"metaTags\": [...], \
                  \"expressions\": [...]}`; without tags it is removed",
        ),
    Route::new(&["/metaTags/swap"], "replaces all rules that add tags")
        .on(Methods::Post, Scope::WriteRules, Shows::AllSeries, Effect::Changes, handler!(graphite::meta_tags::swap))
        .takes("@tenant")
        .body(RequestBody::Json)
        .answers(Answer::PlainJson)
        .details("replaces all rules, JSON `{\"records\": [...]}`"),
    Route::new(&["/events", "/events/"], "events; adds one")
        .on(Methods::Get, Scope::ReadMetrics, Shows::AllSeries, Effect::Reads, handler!(graphite::events::list))
        .on(Methods::Post, Scope::WriteMetrics, Shows::NoSeries, Effect::Changes, handler!(graphite::events::create))
        .takes("from until tags set @tenant")
        .body(RequestBody::Json)
        .answers(Answer::PlainJson)
        .details(
            "events by `from`, `until`, `tags`, `set` (union, intersection); POST adds one, JSON \
                  with `what`, `tags`, `data`, `when`",
        ),
    Route::new(&["/events/get_data"], "events, also as jsonp")
        .on(Methods::GetPost, Scope::ReadMetrics, Shows::AllSeries, Effect::Reads, handler!(graphite::events::list))
        .takes("from until tags set jsonp @tenant")
        .body(RequestBody::Form)
        .answers(Answer::PlainJson)
        .details("events, also as `jsonp`"),
    Route::new(&["/events/{id}", "/events/{id}/"], "one event")
        .on(Methods::Get, Scope::ReadMetrics, Shows::AllSeries, Effect::Reads, handler!(graphite::events::detail))
        .takes("@tenant")
        .answers(Answer::PlainJson),
    Route::new(
        &[
            "/dashboard",
            "/dashboard/{*page}",
            "/composer",
            "/composer/{*page}",
            "/browser",
            "/browser/{*page}",
            "/account",
            "/account/{*page}",
        ],
        "not found: there are no pages of graphite-web",
    )
    .on(Methods::GetPost, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(graphite::absent::refuse))
    .answers(Answer::NotFound)
    .details("404 `use Grafana; /render is here`"),
    Route::new(&["/functions"], "functions of the language with parameters")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(graphite::find::describe))
        .answers(Answer::PlainJson),
    Route::new(&["/functions/{name}"], "a function of the language with parameters")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(graphite::find::describe))
        .answers(Answer::PlainJson),
];
