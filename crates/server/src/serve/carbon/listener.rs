//! A carbon listener: its settings and counters.

use std::sync::Arc;

use crate::app::App;
use crate::carbon::CarbonInput;
use crate::options::CarbonListener;

pub(crate) struct Listener {
    pub(crate) app: Arc<App>,
    pub(crate) options: CarbonListener,
    pub(crate) input: Arc<CarbonInput>,
}
