//! Parts that all requests of the InfluxDB API share.

use chronolith_base::Rng;

use super::password::Passwords;
use super::running::RunningQueries;
use super::watched::ContinuousQueries;

/// Parts that all requests share.
pub(crate) struct InfluxContext {
    pub(crate) passwords: Passwords,
    pub(crate) queries: RunningQueries,
    pub(crate) continuous: ContinuousQueries,
}

impl InfluxContext {
    pub(crate) fn new(rng: &Rng) -> InfluxContext {
        InfluxContext {
            passwords: Passwords::new(rng),
            queries: RunningQueries::default(),
            continuous: ContinuousQueries::default(),
        }
    }
}
