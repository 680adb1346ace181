//! Settings of calls between the nodes of a cluster.

use super::declaration::{Form, Setting};
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
];
