//! `/render`: targets of Graphite's language over a range, in the formats of graphite-web.
//!
//! Invariants: a request that cannot be answered is a 4xx with the reason as text, never a page; it runs with
//! the permit, deadline and memory of a query.
//! Not here: the language and the formats (`graphite`), series (`service::graphite`).

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, header};
use chronolith_graphite::output::picture::{BitmapSize, PictureOptions, render_png, render_svg};
use chronolith_graphite::output::{self, Layout, RenderOptions};
use chronolith_graphite::time::{parse_time, request_range, zone_or};
use chronolith_graphite::{EvalError, Limits, Request as Targets, Series, evaluate};
use chronolith_model::{QueryError, ReadContext};
use chronolith_service::activity::active_queries::StartedQuery;
use chronolith_service::activity::top_queries::QueryLanguage;
use chronolith_service::evaluation::call_context::CallContext;
use chronolith_service::evaluation::running::RunningQuery;
use chronolith_service::graphite::annotations::Annotations;
use chronolith_service::graphite::fetch_log::FetchLog;
use chronolith_service::graphite::source::{Reading, SourceSettings, TenantSource};
use jiff::tz::TimeZone;

use super::lineage;
use crate::http::call::{self, Call};
use crate::http::dispatch;
use crate::http::error::{ApiError, ErrorKind, text};
use crate::http::printer::Printer;
use crate::web::Web;

/// `GET` and `POST /render`.
pub(crate) async fn render(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    match answer(&web, request).await {
        Ok(response) => response,
        Err(error) => text(error.kind.status(), &error.message),
    }
}

async fn answer(web: &Arc<Web>, request: Request) -> Result<Response<Body>, ApiError> {
    let call = call::open(web, request).await?;
    let format = Format::of(&call)?;
    let now_s = web.service.env.clock.now_ms().div_euclid(1000);
    let targets = targets_of(&call, now_s)?;
    let form = Form {
        format,
        options: RenderOptions {
            no_null_points: is_set(&call, "noNullPoints"),
            jsonp: call.params.get("jsonp").filter(|name| !name.is_empty()).map(str::to_owned),
        },
        picture: PictureOptions::new(|name| call.params.get(name)),
        bitmap: match format {
            Format::Png => Some(BitmapSize::new(|name| call.params.get(name)).map_err(bitmap_refused)?),
            _ => None,
        },
        reading: if format == Format::Json && wants_meta(&call) {
            Reading::PointsWithLog
        } else {
            Reading::Points
        },
    };
    let identity = call.identity.clone();
    let timeout_ms = web.service.options.query.timeout_ms;
    let printed = dispatch::run(web, &identity, timeout_ms, move |web, ctx| {
        let text = targets.targets.join("&");
        let running = RunningQuery::begin(
            &web.service,
            StartedQuery {
                tenant: &call.tenant,
                language: QueryLanguage::Graphite,
                text: &text,
                times_ms: (targets.range.start.seconds * 1000, targets.range.end.seconds * 1000, 0),
                ctx,
                trace: Arc::default(),
            },
        );
        let evaluated = evaluated(web, &call, &targets, form.reading, ctx);
        let sample_count = evaluated.as_ref().map_or(0, |evaluated| evaluated.sample_count);
        let printed = evaluated.and_then(|evaluated| print(evaluated, &targets, &form, ctx));
        running.record(sample_count, printed.is_err());
        printed
    });
    let content_type = format.content_type();
    let mut response = printed.await?.into_response(content_type);
    // Grafana shows what it is given: an answer of a moving range is not to be kept.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Result of the targets of a request.
pub(super) struct Evaluated {
    series: Vec<Series>,
    /// Samples and windows of roll-ups that were read.
    sample_count: u64,
    /// Fetches of the request, if they are logged.
    pub(super) log: FetchLog,
}

/// Evaluates the targets of a request.
pub(super) fn evaluated(
    web: &Web,
    call: &Call,
    targets: &Targets,
    reading: Reading,
    ctx: &CallContext,
) -> Result<Evaluated, ApiError> {
    let of_tenant = web.service.limits_of(&call.tenant).queries.graphite;
    let settings =
        SourceSettings { rules: web.service.carbon.rules(), limits: of_tenant, now_s: targets.now };
    let source = ctx.source_of(&web.service, &call.identity)?;
    let ctx = &web.service.queries.engine.with_threads(ctx);
    let source = TenantSource::new(source, ctx, settings)?
        .with_annotations(Annotations::of_tenant(&web.service.lifecycle, &call.tenant)?)
        .with_reading(reading);
    let limits = Limits {
        series_max: of_tenant.series_max,
        points_max: of_tenant.points_max,
        bytes_max: ctx.budget.limit_bytes(),
        targets_max: of_tenant.targets_max,
    };
    let is_canceled = || ctx.check().is_err();
    let evaluation = evaluate(targets, &source, limits, &is_canceled);
    let series = evaluation.map_err(|error| failed(&error, &source, ctx))?;
    dispatch::refuse_partial(ctx)?;
    Ok(Evaluated { series, sample_count: source.sample_count(), log: source.take_log() })
}

/// The answer to an evaluation that failed.
pub(super) fn failed(error: &EvalError, source: &TenantSource<'_>, ctx: &ReadContext) -> ApiError {
    match (error, source.take_failure(), ctx.check()) {
        (_, Some(failure), _) => failure.into(),
        (EvalError::Canceled, _, Err(ended)) => ended.into(),
        (EvalError::Limit { what, .. }, ..) => {
            let (kind, setting) = limit_of(what);
            ApiError::new(kind, format!("{error}{setting}"))
        }
        _ => ApiError::bad_request(error),
    }
}

/// Returns the answer to an exceeded limit, and its setting.
fn limit_of(what: &str) -> (ErrorKind, &'static str) {
    match what {
        "series" => (ErrorKind::Forbidden, " (graphite.max-series)"),
        "points" => (ErrorKind::TooLarge, " (graphite.max-points)"),
        "targets" => (ErrorKind::Execution, " (graphite.max-targets)"),
        "nodes" => (ErrorKind::Execution, " (graphite.max-nodes)"),
        _ => (ErrorKind::Execution, ""),
    }
}

fn print(
    evaluated: Evaluated,
    targets: &Targets,
    form: &Form,
    ctx: &ReadContext,
) -> Result<Printer, ApiError> {
    let Form { format, options, reading, .. } = form;
    let Evaluated { mut series, log, .. } = evaluated;
    let zone = &targets.zone;
    let mut printer = Printer::new(ctx)?;
    let mut text = String::new();
    // graphite-web ignores the parameter in other formats.
    let mut copies = ctx.budget.reserve(0).map_err(QueryError::from)?;
    if let (Format::Json, Some(points)) = (*format, targets.max_data_points) {
        copies.grow(output::shared_bytes(&series)).map_err(QueryError::from)?;
        output::consolidate_to(&mut series, points).map_err(ApiError::bad_request)?;
    }
    let held = ctx.budget.reserve(output::bytes_max(&series, form.layout())).map_err(QueryError::from)?;
    let rendered = match format {
        Format::Json if *reading == Reading::PointsWithLog => {
            let meta = lineage::metadata(&series, &log, ctx)?;
            output::json::render_with_meta(&series, &meta, options, &mut text)
        }
        Format::Json => output::json::render(&series, options, &mut text),
        Format::Dygraph => output::json::render_dygraph(&series, options, &mut text),
        Format::Rickshaw => output::json::render_rickshaw(&series, options, &mut text),
        Format::Raw => output::text::render_raw(&series, &mut text),
        Format::Csv => output::text::render_csv(&series, zone, &mut text),
        Format::Svg | Format::Png => return draw(&series, targets, form, printer, ctx),
        Format::Pickle => output::pickle::render(&series, &mut printer.out),
        Format::Msgpack => output::msgpack::render(&series, &mut printer.out),
    };
    rendered.map_err(ApiError::bad_request)?;
    if !text.is_empty() {
        printer.out = text.into_bytes();
    }
    drop((series, held, copies));
    printer.settle(ctx)?;
    Ok(printer)
}

/// Draws the series, for PNG as SVG first.
fn draw(
    series: &[Series],
    targets: &Targets,
    form: &Form,
    mut printer: Printer,
    ctx: &ReadContext,
) -> Result<Printer, ApiError> {
    let range = (targets.range.start.seconds, targets.range.end.seconds);
    let mut svg = String::new();
    let is_canceled = || ctx.check().is_err();
    let failed = |error| match ctx.check() {
        Err(ended) => ended.into(),
        Ok(()) => ApiError::bad_request(error),
    };
    render_svg(series, range, &targets.zone, &form.picture, &is_canceled, &mut svg).map_err(failed)?;
    match form.bitmap {
        None => printer.out = svg.into_bytes(),
        Some(size) => {
            let _held = ctx.budget.reserve(size.memory_bytes(&svg)).map_err(QueryError::from)?;
            render_png(&svg, size, &is_canceled, &mut printer.out).map_err(failed)?;
        }
    }
    printer.settle(ctx)?;
    Ok(printer)
}

/// The answer to a bitmap of a size that is not drawn, or by a build that draws none.
fn bitmap_refused(error: EvalError) -> ApiError {
    match error {
        EvalError::NotBuilt { .. } => ApiError::new(ErrorKind::NotBuilt, error),
        _ => ApiError::bad_request(error),
    }
}

/// Parameters of a request as the language has them.
pub(super) fn targets_of(call: &Call, now_s: i64) -> Result<Targets, ApiError> {
    let params = &call.params;
    let server_zone = TimeZone::UTC;
    let zone = zone_or(params.get("tz"), &server_zone);
    let given = |name: &str| params.get(name).filter(|text| !text.is_empty());
    let now = match given("now") {
        Some(text) => parse_time(text, &zone, now_s).map_err(|error| ApiError::parameter("now", error))?,
        None => now_s,
    };
    let range = request_range(given("from"), given("until"), &zone, now)
        .map_err(|error| ApiError::parameter("from or until", error))?;
    let max_data_points = match given("maxDataPoints") {
        Some(text) => Some(text.parse().map_err(|_| {
            ApiError::parameter("maxDataPoints", format!("{text:?} is not a positive whole number"))
        })?),
        None => None,
    };
    let x_files_factor = match given("xFilesFactor") {
        Some(text) => text
            .parse()
            .map_err(|_| ApiError::parameter("xFilesFactor", format!("{text:?} is not a number")))?,
        None => 0.0,
    };
    let template = params.bracketed("template[", "]");
    Ok(Targets {
        targets: params.all("target").chain(params.all("target[]")).map(str::to_owned).collect(),
        range,
        now,
        clock: now_s,
        zone,
        server_zone,
        max_data_points,
        x_files_factor,
        template: template
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect::<BTreeMap<_, _>>(),
    })
}

/// Returns true for a parameter that is given and not empty, as graphite-web reads its switches.
fn is_set(call: &Call, name: &str) -> bool {
    call.params.get(name).is_some_and(|text| !text.is_empty())
}

/// Returns true if the client asks for Metrictank's metadata, as Go reads switches.
fn wants_meta(call: &Call) -> bool {
    let given = call.params.get("meta").unwrap_or("");
    ["1", "t", "true"].iter().any(|name| name.eq_ignore_ascii_case(given))
}

/// Format of an answer with its parameters.
struct Form {
    format: Format,
    reading: Reading,
    options: RenderOptions,
    picture: PictureOptions,
    /// Size of the bitmap, for PNG.
    bitmap: Option<BitmapSize>,
}

impl Form {
    /// Layout that decides the size of the answer.
    fn layout(&self) -> Layout {
        match self.format {
            Format::Csv => Layout::NamePerPoint,
            Format::Svg | Format::Png => Layout::Picture { width: self.picture.width },
            _ => Layout::NamePerSeries,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Dygraph,
    Rickshaw,
    Raw,
    Csv,
    Svg,
    Png,
    Pickle,
    Msgpack,
}

impl Format {
    fn of(call: &Call) -> Result<Format, ApiError> {
        let params = &call.params;
        let name = match params.get("format") {
            None if is_set(call, "rawData") => "raw",
            None => "png",
            Some(name) => name,
        };
        Ok(match name {
            "json" => Format::Json,
            "dygraph" => Format::Dygraph,
            "rickshaw" => Format::Rickshaw,
            "raw" => Format::Raw,
            "csv" => Format::Csv,
            "svg" => Format::Svg,
            "png" => Format::Png,
            "pickle" => Format::Pickle,
            "msgpack" => Format::Msgpack,
            other => {
                let expected = "expected png, svg, json, raw, csv, dygraph, rickshaw, pickle or msgpack";
                return Err(ApiError::parameter("format", format!("unknown format {other:?}, {expected}")));
            }
        })
    }

    fn content_type(self) -> &'static str {
        match self {
            Format::Json | Format::Dygraph | Format::Rickshaw => "application/json",
            Format::Raw => "text/plain",
            Format::Csv => "text/csv",
            Format::Svg => "image/svg+xml",
            Format::Png => "image/png",
            Format::Pickle => "application/pickle",
            Format::Msgpack => "application/x-msgpack",
        }
    }
}
