//! Rows of the web interface.
//! Not here: handlers.

use chronolith_service::access::Scope;

use crate::http::page;
use crate::http::routing::{Answer, Effect, Methods, Route, Shows, handler};

pub(super) const ROUTES: &[Route] = &[
    Route::new(&["/", "/graph"], "query page")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(page::page))
        .answers(Answer::Page)
        .details("query page: panels `g0.expr`, `g0.tab`, ..."),
    Route::new(&["/explore"], "metrics, labels and values")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(page::page))
        .answers(Answer::Page)
        .details("metrics, labels and values; databases and fields; paths"),
    Route::new(&["/cardinality", "/tsdb-status"], "cardinality of head and blocks, metrics by size and use")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(page::page))
        .answers(Answer::Page),
    Route::new(&["/storage"], "blocks, WAL, memory, bucket")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(page::page))
        .answers(Answer::Page),
    Route::new(&["/cluster"], "roles, partitions and owners of a cluster")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(page::page))
        .answers(Answer::Page),
    Route::new(&["/queries"], "running queries, dearest queries of the last hour")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(page::page))
        .answers(Answer::Page),
    Route::new(&["/tenants"], "tenants and their use of limits")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(page::page))
        .answers(Answer::Page),
    Route::new(&["/rejects"], "rejected samples by reason and tenant, examples")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(page::page))
        .answers(Answer::Page),
    Route::new(&["/plan"], "the plan of a query, or of a line of the slow query log")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(page::page))
        .answers(Answer::Page),
    Route::new(&["/alerts"], "alerts")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(page::page))
        .answers(Answer::Page),
    Route::new(&["/rules"], "rules")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(page::page))
        .answers(Answer::Page),
    Route::new(&["/settings", "/config", "/flags"], "settings")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(page::page))
        .answers(Answer::Page),
    Route::new(&["/ui/{hash}/{*path}"], "files of the interface")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(page::file))
        .answers(Answer::File)
        .details("files of the interface; `hash` is that of their content, so they are cached for good"),
];
