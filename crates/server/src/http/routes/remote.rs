//! Rows of Prometheus's remote write.
//! Not here: handlers.

use chronolith_service::access::Scope;

use crate::http::routing::{Answer, Effect, ErrorForm, Methods, RequestBody, Route, Shows, handler};
use crate::http::write;

pub(super) const ROUTES: &[Route] =
    &[Route::new(&["/api/v1/write", "/api/v1/push"], "remote write 1.0 and 2.0")
        .on(Methods::Post, Scope::WriteMetrics, Shows::NoSeries, Effect::Changes, handler!(write::write))
        .takes("@tenant")
        .body(RequestBody::Protobuf)
        .answers(Answer::NoContent)
        .errors(ErrorForm::Text)
        .details("remote write 1.0 and 2.0; answers in [ingest.md](../ingest.md#answers)")];
