//! A carbon listener: its settings and counters.

use chronolith_service::access::Identity;
use chronolith_service::carbon::CarbonInput;
use chronolith_service::options::CarbonListener;
use std::sync::Arc;

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
}
