//! Rows of InfluxDB 1.x.
//! Not here: handlers.

use chronolith_service::access::Scope;

use crate::http::influx;
use crate::http::routing::{Answer, Effect, Methods, RequestBody, Route, Shows, handler};

pub(super) const ROUTES: &[Route] = &[
    Route::new(&["/write"], "writes line protocol")
        .on(
            Methods::Post,
            Scope::WriteMetrics,
            Shows::NoSeries,
            Effect::Changes,
            handler!(influx::write::write),
        )
        .takes("db rp precision consistency u p @tenant")
        .body(RequestBody::Text)
        .answers(Answer::NoContent)
        .cors()
        .details("line protocol: `db`, `rp`, `precision`, `consistency`; gzip"),
    Route::new(&["/api/v2/write"], "writes line protocol")
        .on(
            Methods::Post,
            Scope::WriteMetrics,
            Shows::NoSeries,
            Effect::Changes,
            handler!(influx::write::write_v2),
        )
        .takes("bucket precision org @tenant")
        .body(RequestBody::Text)
        .answers(Answer::NoContent)
        .details(
            "line protocol: `bucket` is `DATABASE` or `DATABASE/POLICY`, `precision`; `org` is \
                  ignored",
        ),
    Route::new(&["/api/v1/prom/write"], "remote write 1.0 into a database")
        .on(
            Methods::Post,
            Scope::WriteMetrics,
            Shows::NoSeries,
            Effect::Changes,
            handler!(influx::write::write_prometheus),
        )
        .takes("db rp u p @tenant")
        .body(RequestBody::Protobuf)
        .answers(Answer::NoContent)
        .details(
            "remote write 1.0 into the database `db`, `rp`: the measurement is the metric name, the \
                  field `value`",
        ),
    Route::new(&["/api/v1/prom/read"], "remote read of the field value of a database")
        .on(
            Methods::Post,
            Scope::ReadMetrics,
            Shows::SeriesOfTenant,
            Effect::Reads,
            handler!(influx::prometheus::read),
        )
        .takes("db rp u p @tenant")
        .body(RequestBody::Protobuf)
        .answers(Answer::Protobuf)
        .details("remote read of the field `value` of the measurements of `db`, `rp`, as samples"),
    Route::new(&["/query"], "statements of InfluxQL, or the query page")
        .on(
            Methods::Get,
            Scope::ReadMetrics,
            Shows::SeriesOfTenant,
            Effect::Reads,
            handler!(influx::query::query),
        )
        .on(
            Methods::Post,
            Scope::ReadMetrics,
            Shows::SeriesOfTenant,
            Effect::Changes,
            handler!(influx::query::query),
        )
        .takes("q db rp epoch pretty chunked chunk_size params async u p @tenant")
        .body(RequestBody::Form)
        .answers(Answer::InfluxQl)
        .cors()
        .details(
            "a GET with `g0.*`, or with `Accept: text/html` and neither `q` nor `db`, opens the \
                  [query page](#web-interface); else InfluxQL: `q`, `db`, `rp`, `epoch`, `pretty`, \
                  `chunked`, `chunk_size`, `params`, `async` (204 at once); JSON, CSV or msgpack by \
                  `Accept`",
        ),
    Route::new(&["/api/v2/query"], "refused: there is no Flux")
        .on(
            Methods::Post,
            Scope::ReadMetrics,
            Shows::NoSeries,
            Effect::Neither,
            handler!(influx::refused::flux),
        )
        .takes("@tenant")
        .answers(Answer::Forbidden)
        .details("403: there is no Flux"),
    Route::new(&["/ping"], "liveness and version")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(influx::ping::ping))
        .takes("verbose")
        .answers(Answer::NoContent)
        .cors()
        .details("204; 200 and the version with `verbose`"),
    Route::new(&["/status"], "liveness")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(influx::ping::status))
        .answers(Answer::NoContent)
        .cors()
        .details("204"),
    Route::new(&["/health"], "success if reads and writes are answered")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(influx::ping::health))
        .answers(Answer::PlainJson)
        .cors()
        .details("200 if reads and writes are answered, else 503"),
    Route::new(&["/debug/vars"], "counters as JSON, for Telegraf's input influxdb")
        .on(Methods::Get, Scope::ReadStatus, Shows::WholeServer, Effect::Reads, handler!(influx::vars::vars))
        .takes("@tenant")
        .answers(Answer::PlainJson)
        .details("counters as JSON, for Telegraf's input `influxdb`"),
];
