//! Report of a node for others: `GET /internal/v1/node`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Response, header};

use crate::http::error::{ApiError, ErrorKind};
use crate::peers::ReportJson;
use crate::web::Web;

pub(super) async fn node(State(web): State<Arc<Web>>) -> Response<Body> {
    let Some(owner) = web.service.lifecycle.roles.owner() else {
        return ApiError::new(ErrorKind::NotFound, "this node owns no partition").into_text();
    };
    match serde_json::to_vec(&ReportJson::new(&owner.report())) {
        Ok(json) => {
            let mut response = Response::new(Body::from(json));
            let json_type = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json_type);
            response
        }
        Err(error) => ApiError::new(ErrorKind::Internal, error).into_text(),
    }
}
