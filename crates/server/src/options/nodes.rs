//! Options of calls between the nodes of a cluster.

use std::path::PathBuf;

use chronolith_cluster::peers::OwnersAddress;

/// Calls between the nodes of a cluster. Without a token there are none.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// File with the token that all nodes have; `None`: the node neither answers nor sends calls.
    pub token_file: Option<PathBuf>,
    /// File with the authorities of the nodes' certificates in PEM; `None`: calls are sent without TLS.
    pub ca_file: Option<PathBuf>,
    /// Name that the nodes' certificates have; `None` = the host of each address.
    pub server_name: Option<String>,
    /// Place of the owners that queries ask for recent samples; `None`: the server asks none.
    pub owners: Option<OwnersAddress>,
}
