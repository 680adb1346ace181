//! A carbon listener: its settings and counters.

use chronolith_service::access::Identity;
use chronolith_service::admission::Permit;
use chronolith_service::carbon::CarbonInput;
use chronolith_service::limits::WRITE_QUEUE_WAIT;
use chronolith_service::options::CarbonListener;
use std::sync::Arc;

use crate::limits::ACCEPT_PAUSE;
use crate::web::Web;

pub(crate) struct Listener {
    pub(crate) web: Arc<Web>,
    pub(crate) options: CarbonListener,
    pub(crate) input: Arc<CarbonInput>,
    /// Sender of all points: the tenant of the options.
    pub(super) identity: Identity,
}

impl Listener {
    pub(crate) fn new(web: Arc<Web>, options: CarbonListener, input: Arc<CarbonInput>) -> Listener {
        let identity = Identity::internal(&options.tenant);
        Listener { web, options, input, identity }
    }

    /// Waits for a permit to append points, in turn with the writes of all tenants. The connection is not
    /// read meanwhile, so that its sender waits too.
    pub(super) async fn append_permit(&self) -> Permit {
        let class = &self.web.service.admission.write_apply;
        loop {
            match class.acquire(&self.identity, 0, WRITE_QUEUE_WAIT).await {
                Ok(permit) => return permit,
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }
}
