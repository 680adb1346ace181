//! A carbon listener: its settings and counters.

use chronolith_service::carbon::CarbonInput;
use chronolith_service::options::CarbonListener;
use std::sync::Arc;

use crate::web::Web;

pub(crate) struct Listener {
    pub(crate) web: Arc<Web>,
    pub(crate) options: CarbonListener,
    pub(crate) input: Arc<CarbonInput>,
}
