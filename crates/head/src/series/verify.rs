//! Verifies the sealed files that startup found, one file at a time, so that damage is reported soon after
//! startup and not only when a query reads the chunk.
//!
//! Invariant: damage is reported only if the head references a chunk that cannot be read. Files written by
//! this process are not verified.
//! Not here: files that cannot be opened, which startup reports (`recovery::sealed`).

use chronolith_base::DecodeError;
use chronolith_format::head::sealed::{decode_record, walk};

use parking_lot::Mutex;

use crate::series::SeriesStore;

/// Files left to verify, and damage found.
pub(crate) struct SealedVerification {
    progress: Mutex<Progress>,
}

struct Progress {
    /// Numbers of files, the newest last.
    left: Vec<u32>,
    /// Messages: file, and the loss in it.
    damages: Vec<String>,
}

impl SealedVerification {
    /// Queues all files `numbers` for verification.
    pub(crate) fn new(mut numbers: Vec<u32>) -> SealedVerification {
        numbers.sort_unstable();
        SealedVerification { progress: Mutex::new(Progress { left: numbers, damages: Vec::new() }) }
    }

    pub(crate) fn damages(&self) -> Vec<String> {
        self.progress.lock().damages.clone()
    }

    /// Verifies the next file; returns false if there is none left. Cost: one pass over the file, without a
    /// lock.
    pub(crate) fn verify_next(&self, series: &SeriesStore) -> bool {
        let Some(number) = self.progress.lock().left.pop() else { return false };
        let Some(file) = series.store.file(number) else { return true };
        let bytes = match series.env.disk.map(file.path()) {
            Ok(bytes) => bytes,
            // The file was dropped meanwhile, or its readers report the error.
            Err(_) => return true,
        };
        if walk(&bytes, |_, _, _| {}).is_ok() {
            return true;
        }
        let (chunk_count, sample_count, first) = lost_chunks(series, number, &bytes);
        if let Some(error) = first {
            let path = file.path().display();
            let text = format!(
                "{path}: {chunk_count} chunks with {sample_count} samples are lost, the first: {error}"
            );
            tracing::error!(damage = text, "sealed chunk file is damaged");
            self.progress.lock().damages.push(text);
        }
        true
    }
}

/// Returns the numbers of chunks and samples of file `number` that the head references and that cannot be
/// read, and the error of the first.
fn lost_chunks(series: &SeriesStore, number: u32, bytes: &[u8]) -> (u64, u64, Option<DecodeError>) {
    let (mut chunk_count, mut sample_count, mut first) = (0, 0, None);
    let mut ids = Vec::new();
    for (stripe_idx, stripe) in series.stripes().iter().enumerate() {
        for page in 0.. {
            ids.clear();
            let stripe = stripe.lock();
            let Some(()) = stripe.page_ids(stripe_idx, page, &mut ids) else { break };
            for &id in &ids {
                let Some(record) = stripe.series(id) else { continue };
                let nodes = stripe.sealed_of(record);
                for node in nodes.filter(|node| node.chunk_ref().file() == number) {
                    if let Err(error) = decode_record(bytes, node.chunk_ref().offset() as usize) {
                        chunk_count += 1;
                        sample_count += u64::from(node.count());
                        first.get_or_insert(error);
                    }
                }
            }
        }
    }
    (chunk_count, sample_count, first)
}
