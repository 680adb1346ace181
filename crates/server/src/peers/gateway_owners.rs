//! Owners as a gateway uses them: their reports have the numbers of series of tenants.
//!
//! Invariant: without a report of the last minute a tenant has no known number, so that nothing is refused.
//! Not here: what a gateway refuses (`cluster::gateway`).

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_cluster::gateway::Gateway;
use chronolith_cluster::peers::{OwnerDirectory, OwnersAddress};
use tokio::runtime::Handle;

use super::client::NodeClient;
use super::lookup::HttpLookup;
use super::token::NodeToken;
use crate::options::NodeOptions;

/// Owners that a gateway asks for their reports.
pub(crate) struct GatewayOwners {
    directory: OwnerDirectory,
    lookup: HttpLookup,
}

impl GatewayOwners {
    /// Owners whose requests run on the runtime of `handle`. Sends no request.
    ///
    /// # Errors
    /// The text names the setting that cannot be used.
    pub(crate) fn new(
        owners: &OwnersAddress,
        options: &NodeOptions,
        token: &NodeToken,
        env: &Env,
        handle: &Handle,
    ) -> Result<GatewayOwners, String> {
        let client = Arc::new(NodeClient::new(options, token, &*env.disk)?);
        let lookup =
            HttpLookup { owners: owners.clone(), client, disk: env.disk.clone(), runtime: handle.clone() };
        Ok(GatewayOwners { directory: OwnerDirectory::new(env.clock.clone()), lookup })
    }

    /// Looks owners up, and hands their numbers of series to `gateway`. Blocks the thread.
    pub(crate) fn refresh(&self, gateway: &Gateway) {
        self.directory.refresh(&self.lookup);
        gateway.set_tenant_series(self.directory.tenant_series());
    }
}
