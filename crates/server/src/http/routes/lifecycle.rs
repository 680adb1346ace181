//! Rows of lifecycle and administration.
//! Not here: handlers.

use chronolith_service::access::Scope;

use crate::http::routing::{Answer, Effect, ErrorForm, Methods, RequestBody, Route, Shows, handler};
use crate::http::{admin, lifecycle, tenant_deletion};

pub(super) const ROUTES: &[Route] = &[
    Route::new(&["/-/healthy"], "success unless only a restart helps")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(lifecycle::healthy))
        .answers(Answer::Text)
        .errors(ErrorForm::Text)
        .details("200; 503 with the reason if only a restart helps"),
    Route::new(&["/-/ready"], "success while queries and writes are served")
        .on(Methods::Get, Scope::Public, Shows::NoSeries, Effect::Neither, handler!(lifecycle::ready))
        .answers(Answer::Text)
        .errors(ErrorForm::Text)
        .details("200; 503 with the progress while it starts, or while it stops"),
    Route::new(&["/-/reload"], "reads the settings file again")
        .on(Methods::PostPut, Scope::Admin, Shows::WholeServer, Effect::Controls, handler!(lifecycle::reload))
        .answers(Answer::Text)
        .errors(ErrorForm::Text)
        .details("reads the settings file again; needs `--web.enable-lifecycle`"),
    Route::new(&["/api/v1/admin/tsdb/delete_series"], "deletes samples")
        .on(
            Methods::PostPut,
            Scope::DeleteMetrics,
            Shows::AllSeries,
            Effect::Changes,
            handler!(admin::delete_series),
        )
        .takes("match[]! start end @tenant")
        .body(RequestBody::Form)
        .answers(Answer::NoContent)
        .details(
            "deletes samples by `match[]`, `start`, `end`, those of Graphite clients included; this \
                  and the following need `--web.enable-admin-api`",
        ),
    Route::new(&["/api/v1/admin/tsdb/clean_tombstones"], "frees the space of deleted samples now")
        .on(
            Methods::PostPut,
            Scope::Admin,
            Shows::AllSeries,
            Effect::Changes,
            handler!(admin::clean_tombstones),
        )
        .takes("@tenant")
        .answers(Answer::NoContent),
    Route::new(&["/api/v1/admin/tsdb/snapshot"], "makes a copy by hard links")
        .on(Methods::PostPut, Scope::Admin, Shows::AllSeries, Effect::Changes, handler!(admin::snapshot))
        .takes("skip_head @tenant")
        .body(RequestBody::Form)
        .details("a copy by hard links; `skip_head`"),
    Route::new(&["/api/v1/admin/tsdb/compaction"], "pauses or resumes compaction")
        .on(Methods::PostPut, Scope::Admin, Shows::WholeServer, Effect::Changes, handler!(admin::compaction))
        .takes("paused!")
        .body(RequestBody::Form)
        .details("`paused=true` or `false`"),
    Route::new(&["/api/v1/admin/tenants/{id}"], "deletes a tenant; state of its deletion")
        .on(
            Methods::Get,
            Scope::ReadStatus,
            Shows::AllSeries,
            Effect::Reads,
            handler!(tenant_deletion::state),
        )
        .on(
            Methods::Delete,
            Scope::Admin,
            Shows::AllSeries,
            Effect::Changes,
            handler!(tenant_deletion::delete),
        )
        .details(
            "DELETE removes all data of the tenant in the background and answers 202; GET shows its state: \
                  `none`, `deleting`, `deleted`",
        ),
    Route::new(&["/compactor/delete_tenant"], "deletes the tenant of the request, as in Mimir")
        .on(
            Methods::Post,
            Scope::Admin,
            Shows::AllSeries,
            Effect::Changes,
            handler!(tenant_deletion::delete_as_mimir),
        )
        .takes("@tenant")
        .answers(Answer::Text)
        .details("deletes the tenant of the request, as in Mimir: 200 without a body"),
    Route::new(&["/compactor/delete_tenant_status"], "state of the deletion, as in Mimir")
        .on(
            Methods::Get,
            Scope::ReadStatus,
            Shows::AllSeries,
            Effect::Reads,
            handler!(tenant_deletion::state_as_mimir),
        )
        .takes("@tenant")
        .answers(Answer::PlainJson)
        .details("`tenant_id`, and `blocks_deleted` once nothing is left, as in Mimir"),
];
