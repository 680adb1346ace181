//! Series counts of tenants, which a gateway asks owners for.
//!
//! Invariant: without a report of the last minute a tenant has no count, so that nothing is refused.
//! Not here: what a gateway refuses (`cluster::gateway`).

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_cluster::gateway::Gateway;
use chronolith_cluster::peers::{OwnerDirectory, OwnersAddress};
use tokio::runtime::Handle;

use super::client::NodeClient;
use super::lookup::HttpLookup;

/// Owners that a gateway asks for their reports.
pub(crate) struct GatewayOwners {
    directory: OwnerDirectory,
    lookup: HttpLookup,
}

impl GatewayOwners {
    /// Owners whose requests run on the runtime of `handle`. Sends no request.
    pub(crate) fn new(
        owners: &OwnersAddress,
        client: Arc<NodeClient>,
        env: &Env,
        handle: &Handle,
    ) -> GatewayOwners {
        let lookup =
            HttpLookup { owners: owners.clone(), client, disk: env.disk.clone(), runtime: handle.clone() };
        GatewayOwners { directory: OwnerDirectory::new(env.clock.clone()), lookup }
    }

    /// Looks owners up, and hands their series counts to `gateway`. Blocks the thread.
    pub(crate) fn refresh(&self, gateway: &Gateway) {
        self.directory.refresh(&self.lookup);
        gateway.set_tenant_series(self.directory.tenant_series());
    }
}
