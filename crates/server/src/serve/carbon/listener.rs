//! A carbon listener: its settings and counters.

use chronolith_service::access::Identity;
use chronolith_service::admission::Permit;
use chronolith_service::carbon::CarbonInput;
use chronolith_service::limits::WRITE_QUEUE_WAIT;
use chronolith_service::options::CarbonListener;
use std::net::IpAddr;
use std::sync::Arc;

use crate::limits::ACCEPT_PAUSE;
use crate::web::Web;

pub(crate) struct Listener {
    pub(crate) web: Arc<Web>,
    pub(crate) options: CarbonListener,
    pub(in crate::serve) input: Arc<CarbonInput>,
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

    /// Returns true if `--carbon.allow` has the address of a sender. A refused one is logged.
    pub(super) fn allows(&self, sender: IpAddr) -> bool {
        if self.web.service.options.write.carbon.allows(sender) {
            return true;
        }
        if let Some(suppressed) = self.admit_log_line("carbon_not_allowed") {
            let remote = sender.to_canonical();
            tracing::warn!(%remote, listener = self.input.name, suppressed, "sender refused by carbon.allow");
        }
        false
    }

    /// Returns the number of suppressed lines if it is time for another one of this reason.
    pub(super) fn admit_log_line(&self, reason: &'static str) -> Option<u64> {
        let service = &self.web.service;
        service.writes.reject_log.admit(service.env.clock.mono_ns(), reason, Some(&self.options.tenant), 1)
    }
}
