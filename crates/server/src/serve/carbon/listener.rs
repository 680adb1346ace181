//! A carbon listener: its settings and counters.

use chronolith_service::carbon::CarbonInput;
use chronolith_service::options::CarbonListener;
use std::sync::Arc;

use crate::app::App;

pub(crate) struct Listener {
    pub(crate) app: Arc<App>,
    pub(crate) options: CarbonListener,
    pub(crate) input: Arc<CarbonInput>,
}
