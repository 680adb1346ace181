//! Log of reads: for tests that count requests, rounds and reads at the same time.
//!
//! Invariant: reads are in the order of their starts.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// Reads since the last [`ReadLog::take_rounds`].
#[derive(Default)]
pub(crate) struct ReadLog(Mutex<State>);

#[derive(Default)]
struct State {
    reads: Vec<Read>,
    event_count: u64,
}

/// A read, with the numbers of its start and end among all starts and ends.
struct Read {
    key: String,
    start: u64,
    end: u64,
}

/// A read that has not ended.
pub(crate) struct OpenRead<'a> {
    log: &'a ReadLog,
    start: u64,
}

impl ReadLog {
    /// Logs a read of `key`, which ends when the result is dropped.
    pub(crate) fn begin(&self, key: &str) -> OpenRead<'_> {
        let mut state = self.0.lock();
        state.event_count += 1;
        let start = state.event_count;
        state.reads.push(Read { key: key.to_owned(), start, end: u64::MAX });
        OpenRead { log: self, start }
    }

    /// Number of keys of which a read has not ended.
    pub(crate) fn open_key_count(&self) -> usize {
        let state = self.0.lock();
        let open = state.reads.iter().filter(|read| read.end == u64::MAX);
        open.map(|read| read.key.as_str()).collect::<BTreeSet<_>>().len()
    }

    /// Empties the log. Returns the keys of its reads, by round: the reads of a round start before one of
    /// them ends.
    pub(crate) fn take_rounds(&self) -> Vec<Vec<String>> {
        let reads = std::mem::take(&mut self.0.lock().reads);
        let mut rounds: Vec<Vec<String>> = Vec::new();
        let mut first_end = 0;
        for read in reads {
            if read.start > first_end {
                rounds.push(Vec::new());
                first_end = read.end;
            }
            first_end = first_end.min(read.end);
            if let Some(round) = rounds.last_mut() {
                round.push(read.key);
            }
        }
        rounds
    }
}

impl Drop for OpenRead<'_> {
    fn drop(&mut self) {
        let mut state = self.log.0.lock();
        state.event_count += 1;
        let end = state.event_count;
        if let Some(read) = state.reads.iter_mut().find(|read| read.start == self.start) {
            read.end = end;
        }
    }
}
