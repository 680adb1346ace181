//! Ledger of appends under faults: acknowledged records are there once, refused ones never, others at most
//! once, all in the order of their appends.

use bytes::Bytes;
use chronolith_replicated_log::{LogError, PartitionId, Position, Record};

/// One append and its outcome.
pub(crate) struct Entry {
    pub(crate) value: Bytes,
    pub(crate) outcome: Result<Position, LogError>,
}

/// Appends to one partition by one caller.
#[derive(Default)]
pub(crate) struct Ledger(pub(crate) Vec<Entry>);

/// Outcomes of a ledger.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) acknowledged: usize,
    pub(crate) possibly_written: usize,
    pub(crate) refused: usize,
}

impl Ledger {
    /// Compares the ledger with everything that its partition has; `None` of these records are from
    /// elsewhere.
    pub(crate) fn verify(&self, partition: PartitionId, records: &[Record]) -> Counts {
        let mut counts = Counts::default();
        let mut left = records.iter().peekable();
        for (number, entry) in self.0.iter().enumerate() {
            let found = left.next_if(|record| record.value == entry.value);
            let what = || format!("append {number} of partition {partition}: {:?}", entry.outcome);
            match (&entry.outcome, found) {
                (Ok(at), Some(record)) => {
                    assert_eq!((at.partition, at.offset), (partition, record.offset), "{}", what());
                    counts.acknowledged += 1;
                }
                (Ok(_), None) => panic!("{} is lost or out of order; next is {:?}", what(), left.peek()),
                (Err(error), _) if error.may_be_written() => counts.possibly_written += 1,
                (Err(_), Some(record)) => panic!("{} is stored at {}", what(), record.offset),
                (Err(_), None) => counts.refused += 1,
            }
        }
        assert_eq!(left.next().map(|record| record.offset), None, "a record twice, or from elsewhere");
        counts
    }
}
