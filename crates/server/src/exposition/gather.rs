//! All metrics of the server: each table with its source. Invariant: names start with `chronolith_` but for
//! the `process_` ones that every dashboard knows.

use chronolith_service::metrics::Family;
#[cfg(test)]
use chronolith_service::metrics::definition::Definition;
use chronolith_service::metrics::definition::collect;
use chronolith_service::metrics::{admission, line_protocol, query, tenants, write};
use chronolith_tsdb::TsdbStats;

use super::carbon_tls::CARBON_TLS;
use super::memory::{self, Memory};
use super::server;
use crate::metrics::bucket::BucketState;
use crate::metrics::rules::RuleGroups;
use crate::metrics::{
    background, bucket, carbon, cluster, compression, configured_rules, http, notifier, rules, select,
    stream, tsdb,
};
use crate::peers::{OWNERS, PEER_CALLS};
use crate::process;
use crate::web::Web;

/// All families at this moment.
pub(crate) fn gather(web: &Web) -> Vec<Family> {
    let mut families = Vec::new();
    let out = &mut families;
    let metrics = &web.metrics;
    collect(process::PROCESS, &process::read(&web.service.env), out);
    collect(server::SERVER, web, out);
    collect(http::HTTP, &metrics.http, out);
    collect(compression::COMPRESSION, &metrics.compression, out);
    collect(background::BACKGROUND, &metrics.background, out);
    collect(background::CONTINUOUS, &web.service.influx, out);
    collect(notifier::NOTIFIER, web.notifier(), out);
    collect(configured_rules::CONFIGURED_RULES, &web.service.rules.configured, out);
    collect(rules::RULES, &*web.service.rules.engine, out);
    collect(rules::RULE_GROUPS, &RuleGroups::read(&web.service), out);
    collect(rules::RULE_REPAIRS, &web.service.rules.repairs, out);
    collect(rules::RULE_BACKFILLS, &web.service.rules.backfills, out);
    collect(write::WRITE, &web.service.writes.metrics, out);
    collect(line_protocol::LINE_PROTOCOL, &metrics.line_protocol, out);
    collect(carbon::CARBON, &web.service.carbon, out);
    if let Some(tls) = web.carbon_tls() {
        collect(CARBON_TLS, tls, out);
    }
    collect(query::QUERY, &web.service.queries.metrics, out);
    collect(query::QUERY_CACHE, &web.service.queries.cache.counts(), out);
    collect(stream::REMOTE_READ, &metrics.remote_read, out);
    collect(stream::FEDERATE, &metrics.federate, out);
    collect(stream::BACKFILL, &metrics.backfill, out);
    collect(stream::SEARCH, &metrics.search, out);
    collect(stream::INFLUX_QUERY, &metrics.influx_query, out);
    if web.has_node_token() {
        collect(select::SELECT, metrics.select(), out);
    }
    if let Some(node) = web.query_node() {
        collect(OWNERS, &**node, out);
        collect(PEER_CALLS, node.calls(), out);
    }
    for table in admission::tables() {
        collect(table, &web.service.admission, out);
    }
    collect(memory::MEMORY, &Memory::read(web, 0), out);
    collect(tenants::TENANTS, &web.service.writes.tenants, out);
    if let Some(sources) = web.service.bucket.get() {
        collect(bucket::BUCKET, &BucketState::read(sources.bucket()), out);
    }
    let roles = &web.service.lifecycle.roles;
    if let Some(gateway) = roles.gateway() {
        collect(cluster::GATEWAY, &gateway.stats(), out);
    }
    if let Some(lease) = roles.rule_lease() {
        collect(cluster::RULE_LEASE, &lease.stats(), out);
    }
    if let Some(owner) = roles.owner() {
        collect(cluster::OWNER, &owner.status(), out);
    }
    match web.service.lifecycle.opened() {
        Some(store) => {
            collect(server::TENANT_SERIES, web, out);
            collect(server::TENANT_DELETIONS, &**store, out);
            collect(server::TENANT_LIMITS, &server::tenant_limit_uses(web), out);
            collect_store(&store.statistics().stats(), out);
        }
        None if web.service.lifecycle.is_storeless() || !roles.has_store() => {}
        None => collect(server::REPLAY, web, out),
    }
    families
}

fn collect_store(stats: &TsdbStats, out: &mut Vec<Family>) {
    for table in [tsdb::TSDB, tsdb::WAL, tsdb::MAINTENANCE] {
        collect(table, stats, out);
    }
    tsdb::collect_named(stats, out);
}

/// Definitions of all metrics but those that the store names itself.
#[cfg(test)]
pub(crate) fn definitions() -> Vec<Definition> {
    use chronolith_service::metrics::Metric;

    fn of<S>(table: &[Metric<S>]) -> Vec<Definition> {
        table.iter().map(Metric::definition).collect()
    }
    let mut all = [
        of(process::PROCESS),
        of(server::SERVER),
        of(server::TENANT_SERIES),
        of(server::TENANT_DELETIONS),
        of(server::TENANT_LIMITS),
        of(server::REPLAY),
        of(http::HTTP),
        of(compression::COMPRESSION),
        of(background::BACKGROUND),
        of(notifier::NOTIFIER),
        of(configured_rules::CONFIGURED_RULES),
        of(rules::RULES),
        of(rules::RULE_GROUPS),
        of(rules::RULE_REPAIRS),
        of(rules::RULE_BACKFILLS),
        of(write::WRITE),
        of(line_protocol::LINE_PROTOCOL),
        of(carbon::CARBON),
        of(CARBON_TLS),
        of(query::QUERY),
        of(query::QUERY_CACHE),
        of(stream::REMOTE_READ),
        of(stream::FEDERATE),
        of(stream::BACKFILL),
        of(stream::SEARCH),
        of(stream::INFLUX_QUERY),
        of(select::SELECT),
        of(OWNERS),
        of(PEER_CALLS),
        of(bucket::BUCKET),
        of(cluster::GATEWAY),
        of(cluster::RULE_LEASE),
        of(cluster::OWNER),
        of(memory::MEMORY),
        of(tenants::TENANTS),
        of(tsdb::TSDB),
        of(tsdb::WAL),
        of(tsdb::MAINTENANCE),
    ]
    .concat();
    all.extend(admission::tables().into_iter().flat_map(of));
    all
}
