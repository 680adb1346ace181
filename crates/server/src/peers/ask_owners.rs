//! One look at the owners, for tools: the addresses of now and the report of each node.
//!
//! Not here: lookups of a running query node (`query_node`).

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_cluster::peers::OwnerDirectory;
use tokio::runtime::Handle;

use super::client::NodeClient;
use super::lookup::HttpLookup;
use super::token::NodeToken;
use crate::options::NodeOptions;

/// Looks the owners of `options` up and asks them for their reports, with the node token. Calls run on the
/// runtime of `handle`. Blocks the thread for some seconds at most.
///
/// # Errors
/// The text names the setting that is missing or cannot be used. A lookup that fails, and nodes that do not
/// answer, are in the directory.
pub fn ask_owners(env: &Env, handle: &Handle, options: &NodeOptions) -> Result<OwnerDirectory, String> {
    let expected = "owners: expected dns://NAME:PORT, file:///PATH or HOST:PORT,HOST:PORT";
    let owners = options.owners.clone().ok_or(expected)?;
    let path = options.token_file.as_deref();
    let path = path.ok_or("cluster.node-token-file: expected the file with the token of the owners")?;
    let token = NodeToken::read(path, &*env.disk)?;
    let client = Arc::new(NodeClient::new(options, &token, &*env.disk)?);
    let lookup = HttpLookup { owners, client, disk: env.disk.clone(), runtime: handle.clone() };
    let directory = OwnerDirectory::new(env.clock.clone());
    directory.refresh(&lookup);
    Ok(directory)
}
