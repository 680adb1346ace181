//! Execution of InfluxQL: databases and samples of a tenant as statements use them, and continuous queries.
//! Not here: statements (`influxql`), state between them (`influx`), requests and printed results (`server`).

pub mod continuous;
pub mod databases;
pub mod logins;
pub mod storage;

use chronolith_influxql::execute::SelectLimits;
use chronolith_model::QueryError;

use crate::options::InfluxOptions;

/// Limits of a SELECT by the settings.
#[must_use]
pub fn select_limits(options: &InfluxOptions) -> SelectLimits {
    SelectLimits {
        series_max: options.select_series_max as u64,
        points_max: options.select_point_max as u64,
        buckets_max: options.select_bucket_max as u64,
    }
}

/// Text of the failure of a statement, in InfluxDB's words where it has some.
#[must_use]
pub fn query_error(error: &QueryError) -> String {
    match error {
        // Also of a query that KILL QUERY has ended.
        QueryError::Canceled => "query interrupted".to_owned(),
        QueryError::Timeout => "query-timeout limit exceeded".to_owned(),
        error => error.to_string(),
    }
}
