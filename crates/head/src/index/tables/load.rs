//! Bulk load of the index from series files: pairs are interned payload by payload, the rest is built at the
//! end in passes over columns, in parallel.
//!
//! Invariant: there are no lookups between the first payload and [`TenantIndex::finish_load`], and the index
//! is empty before. Of equal label sets the youngest is kept: the older series had left the head before it
//! was created.

use chronolith_base::DecodeError;
use chronolith_format::head::series_file::SeriesReader;

use parking_lot::Mutex;

use super::members::{MemberIds, Members};
use super::tenant_index::{Pair, TenantIndex, hash_members, members_in, release_pair};
use crate::index::split_table::SplitTable;

/// Series below which the passes run one after another.
const PARALLEL_COUNT_MIN: usize = 1 << 14;

const UNKNOWN: u32 = u32::MAX;

/// Reusable memory for one payload.
#[derive(Default)]
pub(crate) struct LoadScratch {
    names: Vec<u32>,
    /// Maps the pairs of the payload to the pairs of the index.
    pairs: Vec<u32>,
    members: Vec<u32>,
}

impl TenantIndex {
    /// Reserves memory for as many pairs and series.
    pub(crate) fn reserve_load(&mut self, pair_count: usize, series_count: usize) {
        self.pairs.reserve(pair_count);
        self.pair_table.reserve(pair_count, |_| 0);
        self.rows.reserve(series_count);
        self.starts.reserve(series_count);
    }

    /// Adds the series of a payload; returns the number of those left out, as duplicates or for lack of room.
    ///
    /// # Errors
    /// [`DecodeError`]; the series before stay.
    pub(crate) fn load(
        &mut self,
        series: &mut SeriesReader<'_>,
        scratch: &mut LoadScratch,
    ) -> Result<u64, DecodeError> {
        let mut skipped_count = 0;
        scratch.names.clear();
        scratch.names.extend(series.names.iter().map(|name| self.intern_name(name)));
        scratch.pairs.clear();
        scratch.pairs.resize(series.pairs.len(), UNKNOWN);
        let mut members = std::mem::take(&mut scratch.members);
        while let Some(id) = series.next(&mut members)? {
            let text_len: usize = members.iter().map(|&m| series.pairs[m as usize].1.len()).sum();
            if self.has_row(id) || members.is_empty() || !self.has_room(text_len) {
                skipped_count += 1;
                continue;
            }
            for member in &mut members {
                let known = &mut scratch.pairs[*member as usize];
                if *known == UNKNOWN {
                    let (name, value) = series.pairs[*member as usize];
                    *known = self.intern_pair(scratch.names[name as usize], value);
                }
                *member = *known;
            }
            self.rows.push(id);
            self.starts.push(self.members.push(&members));
        }
        scratch.members = members;
        Ok(skipped_count)
    }

    /// Returns the ids of all series, dead ones included, in order of creation.
    pub(crate) fn ids(&self) -> &[u32] {
        self.rows.ids()
    }

    /// Builds the lookup structures. `dead` is a bitmap over the series, in order. Returns series that are
    /// dead as well because a younger one has the same labels, each with that one.
    pub(crate) fn finish_load(&mut self, mut dead: Vec<u64>) -> Vec<(u32, u32)> {
        dead.resize(self.rows.len().div_ceil(64), 0);
        let TenantIndex { rows, starts, members, pairs, label_table, .. } = self;
        let columns = Columns { ids: rows.ids(), starts, members, dead: &dead };
        let (table, replaced) = (Mutex::new(Some(label_table)), Mutex::new(Vec::new()));
        let build = || {
            let table = table.lock().take();
            if let Some(table) = table {
                *replaced.lock() = build_labels(table, &columns);
            }
        };
        let postings_bytes = std::thread::scope(|scope| {
            if columns.ids.len() >= PARALLEL_COUNT_MIN {
                // If no thread can be started, this one does both.
                let _ =
                    std::thread::Builder::new().name("replay-labels".to_owned()).spawn_scoped(scope, build);
            }
            let postings_bytes = build_postings(pairs, &columns);
            build();
            postings_bytes
        });
        let replaced = replaced.into_inner();
        self.postings_bytes += postings_bytes;
        for pair in self.pairs.iter().filter(|pair| pair.live_count > 0) {
            self.names[pair.name as usize].live_count += 1;
        }
        self.rows.set_dead(dead);
        let mut out = Vec::with_capacity(replaced.len());
        for (older, younger) in replaced {
            for pair in members_in(&self.starts, &self.members, older as usize).iter() {
                release_pair(&mut self.pairs, &mut self.names, pair);
            }
            self.rows.kill(older as usize);
            out.push((self.rows.id(older as usize), self.rows.id(younger as usize)));
        }
        out
    }
}

/// Loaded series, by column.
struct Columns<'a> {
    ids: &'a [u32],
    starts: &'a [u32],
    members: &'a Members,
    /// Bitmap over the series.
    dead: &'a [u64],
}

impl Columns<'_> {
    fn members_of(&self, idx: usize) -> MemberIds<'_> {
        members_in(self.starts, self.members, idx)
    }

    fn live(&self) -> impl Iterator<Item = usize> {
        (0..self.ids.len()).filter(|&idx| self.dead[idx / 64] >> (idx % 64) & 1 == 0)
    }
}

/// Fills the table of label sets; returns series whose labels a younger one has, each with that one.
fn build_labels(table: &mut SplitTable, columns: &Columns<'_>) -> Vec<(u32, u32)> {
    let mut replaced = Vec::new();
    let hash_of = |idx: u32| hash_members(columns.members_of(idx as usize).iter());
    table.load(
        columns.ids.len(),
        columns.live().map(|idx| (hash_of(idx as u32), idx as u32)),
        |a, b| columns.members_of(a as usize).iter().eq(columns.members_of(b as usize).iter()),
        hash_of,
        |older, younger| replaced.push((older, younger)),
    );
    replaced
}

/// Fills the postings of all pairs; returns their heap bytes.
fn build_postings(pairs: &mut [Pair], columns: &Columns<'_>) -> usize {
    let mut bytes = 0;
    for idx in columns.live() {
        let id = columns.ids[idx];
        for pair in columns.members_of(idx).iter() {
            let pair = &mut pairs[pair as usize];
            bytes += pair.postings.push(id);
            pair.live_count += 1;
        }
    }
    bytes
}
