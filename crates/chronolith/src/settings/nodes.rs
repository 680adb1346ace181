//! Settings of calls between the nodes of a cluster, and of query nodes.

use chronolith_cluster::options::Role;

use super::declaration::{Form, Setting, Settings};
use super::value::{self, set};

pub(super) static SETTINGS: &[Setting] = &[
    Setting::server(
        "cluster.node-token-file",
        "",
        Form::Text("FILE"),
        "File with the token of all nodes of a cluster, 16 characters or more; empty = no calls between nodes",
        |s, v| set(&mut s.server.nodes.token_file, value::file_or_none(v)),
    ),
    Setting::server(
        "cluster.node-ca-file",
        "",
        Form::Text("FILE"),
        "File with the authorities of the certificates of nodes in PEM; empty = calls without TLS",
        |s, v| set(&mut s.server.nodes.ca_file, value::file_or_none(v)),
    ),
    Setting::server(
        "cluster.node-server-name",
        "",
        Form::Text("HOST"),
        "Name in the certificates of nodes; empty = the host of each address",
        |s, v| set(&mut s.server.nodes.server_name, Ok(value::text_or_none(v))),
    ),
    Setting::server(
        "owners",
        "",
        Form::Text("PLACE"),
        "Owners that the role query asks, and a gateway for series counts: dns://NAME:PORT, file:///PATH with one HOST:PORT per line, or HOST:PORT,HOST:PORT",
        |s, v| {
            s.server.nodes.owners = if v.is_empty() { None } else { Some(v.parse()?) };
            Ok(())
        },
    ),
];

/// Checks the settings of a query node, which has no data directory, and of nodes that are none.
///
/// # Errors
/// The setting and the expected value.
pub(super) fn check(settings: &mut Settings) -> Result<(), String> {
    let server = &mut settings.server;
    let roles = &server.service.cluster.roles;
    if !roles.has(Role::Query) {
        return match server.nodes.owners {
            Some(_) if !roles.has(Role::Gateway) => {
                Err("owners: expected none without role query or gateway".to_owned())
            }
            Some(_) if server.nodes.token_file.is_none() => {
                Err("cluster.node-token-file: expected the file with the token of the owners, for owners"
                    .to_owned())
            }
            Some(_) | None => Ok(()),
        };
    }
    let is_alone = roles.list().len() == 1;
    if !is_alone && (roles.list().len() > 2 || !roles.has(Role::Gateway)) {
        return Err("role: expected query alone, or gateway,query".to_owned());
    }
    if is_alone && server.service.cluster.log.is_some() {
        return Err("log: expected none for role query, which asks owners and not the log".to_owned());
    }
    let Some(bucket) = &mut server.bucket else {
        return Err("bucket: expected the URL of the bucket of the owners, for role query".to_owned());
    };
    bucket.is_read_only |= is_alone;
    if server.nodes.owners.is_none() {
        return Err("owners: expected dns://NAME:PORT, file:///PATH or HOST:PORT,HOST:PORT, for role query"
            .to_owned());
    }
    if server.nodes.token_file.is_none() {
        return Err(
            "cluster.node-token-file: expected the file with the token of the owners, for role query"
                .to_owned(),
        );
    }
    if is_alone { check_rules(settings) } else { Ok(()) }
}

/// Checks that a process of a cluster with rule files can read what rules read, and write their results.
///
/// # Errors
/// The setting and the expected value.
pub(super) fn check_rules(settings: &Settings) -> Result<(), String> {
    let service = &settings.server.service;
    let roles = &service.cluster.roles;
    if service.rules.files.is_empty() || (roles.has(Role::Gateway) && roles.has(Role::Query)) {
        return Ok(());
    }
    let names: Vec<&str> = roles.list().iter().map(|role| role.name()).collect();
    Err(format!(
        "rules.files: expected none for role {}: rules read and write, use --role gateway,query for them",
        names.join(",")
    ))
}
