//! Verification of the sealed files that a start found, one file at a time, so that damage is named soon
//! after the start and not only when somebody queries the chunk.
//!
//! Holds: a damage is reported only if the head refers to a chunk that cannot be read. Files of this process
//! are not read.
//! Not here: files that cannot be opened at all, which the start names (`replay::sealed`).

use chronolith_base::DecodeError;
use chronolith_format::sealed::{decode_record, walk};

use crate::head::Head;

/// What is left to verify, and what was found.
#[derive(Default)]
pub(crate) struct SealedVerification {
    /// Numbers of files, the newest first.
    left: Vec<u32>,
    /// For people: file, and how much of it is lost.
    damages: Vec<String>,
}

impl SealedVerification {
    /// All of `numbers` are to be verified.
    pub(crate) fn new(mut numbers: Vec<u32>) -> SealedVerification {
        numbers.sort_unstable();
        SealedVerification { left: numbers, damages: Vec::new() }
    }

    pub(crate) fn damages(&self) -> Vec<String> {
        self.damages.clone()
    }
}

impl Head {
    /// Verifies the next sealed file of an earlier process; returns false if there is none left. To be called
    /// every second until then. Cost: one pass over a file of at most `sealed_file_bytes`, without a lock.
    pub fn verify_next_sealed_file(&self) -> bool {
        let Some(number) = self.sealed_verification.lock().left.pop() else { return false };
        let Some(file) = self.series.store.file(number) else { return true };
        let bytes = match self.env.disk.map(&file.path) {
            Ok(bytes) => bytes,
            // Dropped meanwhile, or named by whoever reads it.
            Err(_) => return true,
        };
        if walk(&bytes, |_, _, _| {}).is_ok() {
            return true;
        }
        let (chunk_count, sample_count, first) = self.lost_chunks(number, &bytes);
        if let Some(error) = first {
            let path = file.path.display();
            let text = format!(
                "{path}: {chunk_count} chunks with {sample_count} samples are lost, the first: {error}"
            );
            tracing::error!(note = text, "a sealed chunk file is damaged");
            self.sealed_verification.lock().damages.push(text);
        }
        true
    }

    /// Chunks and samples that the head has in file `number` and that cannot be read, and why the first cannot.
    fn lost_chunks(&self, number: u32, bytes: &[u8]) -> (u64, u64, Option<DecodeError>) {
        let (mut chunk_count, mut sample_count, mut first) = (0, 0, None);
        let mut ids = Vec::new();
        for (stripe_idx, stripe) in self.series.stripes.iter().enumerate() {
            for page in 0.. {
                ids.clear();
                let stripe = stripe.lock();
                let Some(()) = stripe.page_ids(stripe_idx, page, &mut ids) else { break };
                for &id in &ids {
                    let Some(hot) = stripe.hot(id) else { continue };
                    let floats = stripe.nodes.list(hot.sealed).map(|node| (node.place, node.count));
                    let track = stripe.histograms_of(id);
                    let histograms = track.into_iter().flat_map(|track| track.sealed.iter());
                    let histograms = histograms.map(|node| (node.place, node.count));
                    for (place, count) in floats.chain(histograms).filter(|(place, _)| place.file == number) {
                        if let Err(error) = decode_record(bytes, place.offset as usize) {
                            chunk_count += 1;
                            sample_count += u64::from(count);
                            first.get_or_insert(error);
                        }
                    }
                }
            }
        }
        (chunk_count, sample_count, first)
    }
}
