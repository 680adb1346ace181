//! State that all requests of the InfluxDB API and continuous queries share.
//! Not here: statements (`influxql`), their execution (`evaluation::influxql`).

pub mod password;
pub mod running;
pub mod signed_token;
pub mod watched;

use std::sync::Arc;

use chronolith_base::Rng;

use self::password::Passwords;
use self::running::RunningQueries;
use self::watched::ContinuousQueries;
use crate::counter::Counter;

/// State that all requests share.
pub struct InfluxContext {
    /// Passwords that were right.
    pub passwords: Arc<Passwords>,
    /// Requests with statements that run.
    pub queries: RunningQueries,
    /// Continuous queries between their runs.
    pub continuous: ContinuousQueries,
    /// Runs of continuous queries.
    pub continuous_runs: Counter,
    /// Runs of continuous queries that failed.
    pub continuous_failures: Counter,
}

impl InfluxContext {
    /// State without requests.
    pub fn new(rng: &Rng) -> InfluxContext {
        InfluxContext {
            passwords: Arc::new(Passwords::new(rng)),
            queries: RunningQueries::default(),
            continuous: ContinuousQueries::default(),
            continuous_runs: Counter::default(),
            continuous_failures: Counter::default(),
        }
    }
}
