//! Writers: threads that send batches of lines to a server, several at a time.
//!
//! Invariants: at most one batch per writer waits; the position up to which everything is stored advances in
//! the order of the batches; after a failure nothing more is sent.
//! Not here: the content of batches (`file`), HTTP (`server`).

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

use super::fault::fault_of;
use super::report::Findings;
use super::server::{InfluxServer, PolicyName, RefusedPoints};

/// Lines for one retention policy.
pub(crate) struct Batch {
    pub(super) target: PolicyName,
    pub(super) lines: Vec<u8>,
    pub(super) point_count: u64,
    /// Number of the first line in its file.
    pub(super) first_line: u64,
    /// Offset in the file up to which everything is stored with this batch.
    pub(super) end_offset: u64,
}

/// Results of the batches so far.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(super) stored_points: u64,
    pub(super) expired_points: u64,
    pub(super) refused: Findings,
    /// Offset up to which everything is stored or refused.
    pub(super) done_offset: u64,
    failure: Option<anyhow::Error>,
    next_number: u64,
    /// End of batches that are done although one before them is not, by number.
    done_later: BTreeMap<u64, u64>,
}

/// Results that the writers share.
#[derive(Default)]
pub(crate) struct WriteResults(Mutex<Written>);

impl WriteResults {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a batch could not be sent.
    pub(crate) fn has_failed(&self) -> bool {
        self.lock().failure.is_some()
    }
}

impl Written {
    /// Returns the failure that ended the writers.
    pub(crate) fn take_failure(&mut self) -> anyhow::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn note_done(&mut self, number: u64, end_offset: u64) {
        self.done_later.insert(number, end_offset);
        while let Some(end_offset) = self.done_later.remove(&self.next_number) {
            self.done_offset = end_offset;
            self.next_number += 1;
        }
    }
}

/// Threads that write.
pub(crate) struct Writers {
    batches: SyncSender<(u64, Batch)>,
    batch_count: u64,
}

impl Writers {
    /// Starts `count` writers. They end when the value is dropped; the scope waits for them.
    pub(crate) fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        server: &'env InfluxServer,
        results: &'env WriteResults,
        receiver: &'env Mutex<Option<Receiver<(u64, Batch)>>>,
        count: u64,
    ) -> Writers {
        let (batches, received) = sync_channel(usize::try_from(count).unwrap_or(1));
        *receiver.lock().unwrap_or_else(PoisonError::into_inner) = Some(received);
        for _ in 0..count {
            scope.spawn(move || {
                while let Some((number, batch)) = next_batch(receiver) {
                    write(server, results, number, &batch);
                }
            });
        }
        Writers { batches, batch_count: 0 }
    }

    /// Hands a batch on, waiting while all writers are busy.
    pub(crate) fn send(&mut self, batch: Batch) {
        // Fails only if all writers have panicked, which the scope reports.
        let _ = self.batches.send((self.batch_count, batch));
        self.batch_count += 1;
    }
}

fn next_batch(receiver: &Mutex<Option<Receiver<(u64, Batch)>>>) -> Option<(u64, Batch)> {
    let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
    receiver.as_ref()?.recv().ok()
}

fn write(server: &InfluxServer, results: &WriteResults, number: u64, batch: &Batch) {
    if results.has_failed() {
        return;
    }
    let mut refusals = Vec::new();
    let answer = write_points(server, &batch.target, &batch.lines, &mut refusals);
    let mut written = results.lock();
    match answer {
        Ok(()) => {
            let mut stored_count = batch.point_count;
            for refused in refusals {
                let refused_count = refused.count.min(stored_count);
                stored_count -= refused_count;
                if refused.is_expired {
                    written.expired_points += refused_count;
                } else {
                    written.refused.add(refused_count, || {
                        format!("lines from {} on: {}", batch.first_line, refused.message)
                    });
                }
            }
            written.stored_points += stored_count;
            written.note_done(number, batch.end_offset);
        }
        Err(error) => {
            written.failure.get_or_insert(error);
        }
    }
}

/// Writes `lines`, which can be parsed. A request in which a new field has two types is refused as a whole,
/// so it is sent again in halves, until the points that conflict stand alone.
fn write_points(
    server: &InfluxServer,
    target: &PolicyName,
    lines: &[u8],
    refusals: &mut Vec<RefusedPoints>,
) -> anyhow::Result<()> {
    let refused = server.write(target, lines)?;
    if refused.is_of_all_by_conflict()
        && let Some((first, second)) = halves(lines)
    {
        write_points(server, target, first, refusals)?;
        return write_points(server, target, second, refusals);
    }
    if refused.count > 0 {
        refusals.push(refused);
    }
    Ok(())
}

/// Splits lines between two points near the middle; `None` for a single point. A line break within a text is
/// no end of a point: the text before it has an open quote then, and cannot be parsed.
fn halves(lines: &[u8]) -> Option<(&[u8], &[u8])> {
    let middle = lines.len() / 2;
    let is_end = |at: &usize| lines.get(at - 1) == Some(&b'\n') && *at < lines.len();
    let parses = |at: &usize| lines.get(..*at).is_some_and(|part| fault_of(part).is_none());
    let after = (middle.max(1)..lines.len()).filter(is_end).find(parses);
    let at = after.or_else(|| (1..middle).rev().filter(is_end).find(parses))?;
    lines.split_at_checked(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_between_points() {
        let check = |lines: &str, first: &str| {
            let found = halves(lines.as_bytes()).map(|(first, second)| [first, second].map(<[u8]>::to_vec));
            let want = lines.strip_prefix(first).filter(|_| !first.is_empty());
            let want = want.map(|second| [first, second].map(|part| part.as_bytes().to_vec()));
            assert_eq!(found, want, "{lines:?}");
        };
        check("a v=1 1\nb v=1 1\n", "a v=1 1\n");
        check("a v=1 1\n", "");
        check("a v=\"x\ny\" 1\n", "");
        check("a v=\"x\ny\" 1\nb v=1 1\n", "a v=\"x\ny\" 1\n");
        check("a v=1 1\nb v=\"xxxxxxxxxxxxxxx\ny\" 1\n", "a v=1 1\n");
        check("a v=1 1\nb v=1 1\nc v=1 1\nd v=1 1\n", "a v=1 1\nb v=1 1\n");
        check("", "");
    }

    #[test]
    fn the_position_advances_in_order() {
        let mut written = Written::default();
        let mut done = |number, end| {
            written.note_done(number, end);
            written.done_offset
        };
        assert_eq!([done(1, 20), done(2, 30), done(0, 10), done(3, 40)], [0, 0, 30, 40]);
    }
}
