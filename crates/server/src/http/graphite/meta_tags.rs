//! `/metaTags`: rules that add tags to series (Metrictank): listed, upserted, swapped as a whole.
//!
//! Invariants: a rule is checked before it is stored; the rule of a list of expressions is replaced, and
//! removed by one without tags; a change is durable before its request is answered.
//! Not here: what rules select (`graphite::storage::meta_tags`), the store and its limits (`tsdb`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_model::StoreId;
use chronolith_service::graphite::annotations::parsed_meta_tags;
use chronolith_service::limits::WRITE_QUEUE_WAIT;
use chronolith_tsdb::StoredMetaTags;
use serde_json::{Value, json};

use super::answer;
use crate::http::call;
use crate::http::dispatch;
use crate::http::error::{ApiError, ErrorKind};
use crate::web::Web;

pub(in crate::http) async fn list(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    let answered = async {
        let call = call::open(&web, request).await?;
        let rules = web.service.lifecycle.readable_store()?.graphite().meta_tags(&call.tenant);
        let rules: Vec<Value> = rules.iter().map(of_rule).collect();
        Ok(answer::of_value(&rules.into(), &call))
    };
    answered.await.unwrap_or_else(answer::of_error)
}

fn of_rule(rule: &StoredMetaTags) -> Value {
    json!({ "metaTags": rule.tags, "expressions": rule.expressions })
}

pub(in crate::http) async fn upsert(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    change(&web, request, |value, bytes_max| {
        let rule = rule_of(value, &mut bytes_max.clone())?;
        Ok(move |rules: &mut Vec<StoredMetaTags>| {
            let mut answer = of_rule(&rule);
            let known = rules.iter().position(|known| known.expressions == rule.expressions);
            let is_created = known.is_none() && !rule.tags.is_empty();
            match known {
                Some(idx) if rule.tags.is_empty() => drop(rules.remove(idx)),
                Some(idx) => rules[idx] = rule,
                None if is_created => rules.push(rule),
                None => {}
            }
            answer["created"] = is_created.into();
            answer
        })
    })
    .await
}

pub(in crate::http) async fn swap(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    change(&web, request, |value, bytes_max| {
        let records = value.get("records").and_then(Value::as_array);
        let records = records.ok_or_else(|| ApiError::bad_request("\"records\" must be a list of rules"))?;
        let mut bytes_left = bytes_max;
        let rules = records.iter().map(|record| rule_of(record, &mut bytes_left));
        let rules: Vec<StoredMetaTags> = rules.collect::<Result<_, _>>()?;
        Ok(move |stored: &mut Vec<StoredMetaTags>| {
            let removed_count = stored.iter().filter(|rule| !rules.contains(rule)).count();
            let added_count = rules.iter().filter(|rule| !stored.contains(rule)).count();
            *stored = rules;
            json!({ "deleted": removed_count, "added": added_count })
        })
    })
    .await
}

/// Changes the rules of a tenant by the change that `read` makes of the body.
async fn change<C>(
    web: &Arc<Web>,
    request: Request,
    read: impl FnOnce(&Value, u64) -> Result<C, ApiError>,
) -> Response<Body>
where
    C: FnOnce(&mut Vec<StoredMetaTags>) -> Value + Send + 'static,
{
    let answered = async {
        let (call, body) = call::open_with_body(web, request).await?;
        let bytes_max = web.service.limits_of(&call.tenant).annotations.all_rules_bytes_max as u64;
        let change = read(&answer::json_of(web, &call, &body)?, bytes_max)?;
        drop(body);
        let store = web.service.lifecycle.store()?.clone();
        let owner = call.tenant.clone();
        let class = &web.service.admission.write;
        let changed = dispatch::run_to_end(web, class, &call.identity, WRITE_QUEUE_WAIT, move |_| {
            let limits = store.settings().limits_of(&StoreId::from(&owner)).annotations;
            store.graphite().change_meta_tags(&owner, &limits, change)
        });
        let value = changed.await?.map_err(answer::of_log)?;
        Ok(answer::of_value(&value, &call))
    };
    answered.await.unwrap_or_else(answer::of_error)
}

/// Expressions of one rule, and tags: each expression is compiled for each request.
const RULE_TEXTS_MAX: usize = 256;

/// Reads and checks a rule; its expressions are sorted, so that equal ones are found. Takes its texts off
/// `bytes_left`.
fn rule_of(value: &Value, bytes_left: &mut u64) -> Result<StoredMetaTags, ApiError> {
    let limit = |what: String| ApiError::new(ErrorKind::Execution, what);
    let mut texts = |name: &str| {
        let list = value.get(name).and_then(Value::as_array);
        let count = list.map_or(0, Vec::len);
        if count > RULE_TEXTS_MAX {
            return Err(limit(format!("{name:?} has {count} texts, limit {RULE_TEXTS_MAX}")));
        }
        let bytes: usize = list.into_iter().flatten().filter_map(Value::as_str).map(str::len).sum();
        *bytes_left = bytes_left.checked_sub(bytes as u64).ok_or_else(|| {
            limit("the rules have more texts than graphite.max-meta-tags-size allows".to_owned())
        })?;
        let texts: Option<Vec<String>> =
            list.and_then(|list| list.iter().map(|text| text.as_str().map(str::to_owned)).collect());
        texts.ok_or_else(|| ApiError::bad_request(format!("{name:?} must be a list of strings")))
    };
    let tags = texts("metaTags")?;
    let mut expressions = texts("expressions")?;
    expressions.sort();
    expressions.dedup();
    let rule = StoredMetaTags { tags, expressions };
    parsed_meta_tags(std::slice::from_ref(&rule)).map_err(ApiError::bad_request)?;
    Ok(rule)
}
