//! Senders whose samples are refused: a clock in microseconds, a second replica without a label of its own,
//! labels that are not valid, a field of another type, a value that is no number.
//!
//! Invariant: nothing of these requests is stored, but for the valid line next to a damaged one.

use chronolith_ingest::remote_write::v2::encode::{RequestEncoder, SampleOut, SeriesExtras};

use crate::metric;
use crate::request::{Counts, Protocol, Request};
use crate::tenant::Tenant;

/// Bytes of a label name beyond `label-name-length-limit` (1 KiB).
const LONG_NAME_BYTES: usize = 1100;
const JOB_COUNT: usize = 3;

/// Refused requests of one tenant.
pub(crate) struct Refused {
    tenant: Tenant,
    /// Labels of a series that has a sample 1 at each step, but the last one during a restart.
    taken: Vec<(String, String)>,
}

impl Refused {
    pub(crate) fn new(tenant: Tenant, taken: Vec<(String, String)>) -> Refused {
        Refused { tenant, taken }
    }

    /// The requests of the step at `time_ms`, which was sent before.
    pub(crate) fn requests(&self, time_ms: i64) -> Vec<Request> {
        let mut requests = vec![self.skewed(time_ms), self.replica(time_ms), self.invalid(time_ms)];
        if self.tenant == Tenant::Shop {
            requests.push(self.lines(time_ms));
            requests.push(self.carbon(time_ms));
        }
        requests
    }

    /// Times in microseconds are far in the future if they are taken as milliseconds.
    fn skewed(&self, time_ms: i64) -> Request {
        let jobs = ["settle", "export", "cleanup"];
        let series = (0..JOB_COUNT).map(|idx| {
            let labels = [("__name__", metric::SKEWED.name), ("job", jobs[idx])];
            (labels.to_vec(), sample(time_ms * 1000, 12.5 + idx as f64))
        });
        self.write(series)
    }

    /// Another value at a time that is taken: two replicas with equal labels.
    fn replica(&self, time_ms: i64) -> Request {
        let labels = self.taken.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.write([(labels, sample(time_ms, 0.0))].into_iter())
    }

    /// No name, a name twice, a reserved name, a name that is too long.
    fn invalid(&self, time_ms: i64) -> Request {
        let long = "x".repeat(LONG_NAME_BYTES);
        let name = ("__name__", "legacy_jobs");
        let sets = [
            vec![("job", "legacy")],
            vec![name, ("job", "a"), ("job", "b")],
            vec![name, ("__kind__", "float")],
            vec![name, (long.as_str(), "yes")],
        ];
        self.write(sets.into_iter().map(|labels| (labels, sample(time_ms, 1.0))))
    }

    /// A text in a field of numbers.
    fn lines(&self, time_ms: i64) -> Request {
        let line = format!("conveyor,line=L1 speed=\"fast\" {}\n", time_ms / 1000);
        self.request(Protocol::Lines, line.into_bytes(), 1)
    }

    fn carbon(&self, time_ms: i64) -> Request {
        let line = format!("warehouse.north.forklift1.battery charging {}\n", time_ms / 1000);
        self.request(Protocol::Carbon, line.into_bytes(), 1)
    }

    fn write<'a>(&self, series: impl Iterator<Item = (Vec<(&'a str, &'a str)>, SampleOut)>) -> Request {
        let mut encoder = RequestEncoder::new();
        let mut refused_count = 0;
        for (labels, sample) in series {
            encoder.push_series(labels, &[sample], &SeriesExtras::default());
            refused_count += 1;
        }
        self.request(Protocol::RemoteWrite, encoder.compressed(), refused_count)
    }

    fn request(&self, protocol: Protocol, body: Vec<u8>, refused_count: u64) -> Request {
        Request { tenant: self.tenant, protocol, body, stored: Counts::default(), refused_count }
    }
}

fn sample(time_ms: i64, value: f64) -> SampleOut {
    SampleOut { time_ms, value, start_ms: 0 }
}
