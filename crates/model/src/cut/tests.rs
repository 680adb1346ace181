//! The rules of cuts, in every order of two owners that stop and start, over logs with three cuts, repeated
//! records and out-of-order samples; and faulty rules, which the same search finds.

use std::rc::Rc;

use chronolith_base::hash::{HashMap, HashSet};

use super::*;
use crate::log_position::{PartitionId, TopicId};

/// Bit `o`: the sample of the record at offset `o`.
type Samples = u8;

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Sample {
        store: u8,
        window: i64,
    },
    /// All windows that start before.
    Cut {
        before: i64,
    },
}

/// Rules that a faulty owner breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Blocks are published whatever the catalogue has.
    IgnoresCatalogue,
    /// The newest cut of a store is published first.
    PublishesNewestFirst,
    /// Windows that wait for their block do not hold `resume` back.
    ResumeIgnoresCutWindows,
    /// Open windows do not hold `resume` back either.
    ResumeIsPosition,
    /// Two owners give a block the same name.
    NamesWithoutWriter,
}

/// Name of a block: cut, window, and the writer where names have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Name {
    cut: u64,
    window: i64,
    writer: u8,
}

/// A block: its samples, and whose files they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Block {
    name: Name,
    samples: Samples,
    files_of: u8,
}

/// Catalogue of a store, and what lies in its folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Folder {
    cut: Option<u64>,
    /// Live blocks, with the files that they were published with.
    live: Vec<Block>,
    /// Files of live blocks, and of blocks that an owner is about to publish.
    files: Vec<Block>,
}

/// A running owner: everything else follows from the records.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Run {
    start: u64,
    next_offset: u64,
    /// Newest cut of each store that is settled.
    settled: [Option<u64>; 2],
    /// Store and cut whose files are written.
    uploaded: Option<(u8, u64)>,
}

impl Run {
    fn starts_at(start: u64) -> Run {
        Run { start, next_offset: start, settled: [None; 2], uploaded: None }
    }
}

/// Everything that survives a stop, and both owners.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    folders: [Folder; 2],
    resume: Option<u64>,
    runs: [Run; 2],
}

/// An owner as the records made it.
struct Owner {
    windows: OwnedWindows<u8>,
    /// Samples of open windows.
    open: BTreeMap<(u8, i64), Samples>,
    /// Samples of windows that are cut and not settled.
    cut: BTreeMap<(u8, u64, i64), Samples>,
}

/// The log, the rules, and owners that were made before.
struct Setting<'a> {
    log: &'a [Entry],
    fault: Fault,
    owners: HashMap<Run, Rc<Owner>>,
}

impl Setting<'_> {
    fn owner(&mut self, run: &Run) -> Rc<Owner> {
        let log = self.log;
        self.owners.entry(run.clone()).or_insert_with(|| Rc::new(Owner::of(run, log))).clone()
    }
}

impl Owner {
    fn of(run: &Run, log: &[Entry]) -> Owner {
        let mut owner =
            Owner { windows: OwnedWindows::new(run.start), open: BTreeMap::new(), cut: BTreeMap::new() };
        for offset in run.start..run.next_offset {
            match log[offset as usize] {
                Entry::Sample { store, window } => {
                    owner.windows.note_samples(store, window);
                    *owner.open.entry((store, window)).or_default() |= 1 << offset;
                }
                Entry::Cut { before } => {
                    owner.windows.cut(offset, |_, window| window < before);
                    let cut = owner.open.extract_if(.., |key, _| key.1 < before);
                    owner.cut.extend(cut.map(|(key, samples)| ((key.0, offset, key.1), samples)));
                }
            }
            owner.windows.end_record(offset);
        }
        for store in [0, 1] {
            owner.settle_up_to(store, run.settled[usize::from(store)]);
        }
        owner
    }

    fn settle_up_to(&mut self, store: u8, cut: Option<u64>) {
        self.cut.retain(|key, _| key.0 != store || Some(key.1) > cut);
        while let Some(oldest) = self.oldest_cut(store).filter(|oldest| Some(*oldest) <= cut) {
            self.windows.settle(&store, oldest);
        }
    }

    fn oldest_cut(&self, store: u8) -> Option<u64> {
        self.windows.next_to_publish().find(|(of, _)| **of == store).map(|(_, one)| one.cut)
    }

    /// Stores with the cut that they publish next.
    fn publications(&self, fault: Fault) -> Vec<(u8, u64)> {
        let next = self.windows.next_to_publish();
        let in_order = next.map(|(store, one)| (*store, one.cut));
        if fault != Fault::PublishesNewestFirst {
            return in_order.collect();
        }
        let newest = |store: u8| self.cut.keys().filter(move |key| key.0 == store).map(|key| key.1).max();
        in_order.filter_map(|(store, _)| Some((store, newest(store)?))).collect()
    }

    fn resume(&self, fault: Fault) -> u64 {
        match fault {
            Fault::ResumeIgnoresCutWindows => {
                resume_after(self.windows.next_offset(), self.windows.open.values().copied())
            }
            Fault::ResumeIsPosition => self.windows.next_offset(),
            _ => self.windows.resume(),
        }
    }

    /// Blocks of a cut of a store, with files of `writer`.
    fn blocks(&self, store: u8, cut: u64, writer: u8, fault: Fault) -> Vec<Block> {
        let of_cut = self.cut.iter().filter(|(key, _)| (key.0, key.1) == (store, cut));
        let in_name = if fault == Fault::NamesWithoutWriter { 0 } else { writer };
        let name = |window| Name { cut, window, writer: in_name };
        of_cut.map(|(key, &samples)| Block { name: name(key.2), samples, files_of: writer }).collect()
    }
}

impl World {
    /// Worlds after one step of one owner.
    fn next(&self, setting: &mut Setting<'_>) -> Vec<World> {
        let fault = setting.fault;
        let mut worlds = Vec::new();
        for (idx, run) in self.runs.iter().enumerate() {
            // A stop and the next start; an owner that starts later is one that stops later.
            let start = self.resume.unwrap_or(0);
            worlds.push(self.with(|world| *world.run(idx) = Run::starts_at(start)));
            if (run.next_offset as usize) < setting.log.len() {
                worlds.push(self.with(|world| world.run(idx).next_offset += 1));
            }
            let owner = setting.owner(run);
            match run.uploaded {
                None => {
                    for (store, cut) in owner.publications(fault) {
                        worlds.push(self.with(|world| world.upload(idx, &owner, store, cut, fault)));
                    }
                }
                Some((store, cut)) => {
                    worlds.push(self.with(|world| world.create(idx, &owner, store, cut, fault)));
                }
            }
            if let Some(resume) = next_resume(self.resume, owner.resume(fault)) {
                worlds.push(self.with(|world| world.resume = Some(resume)));
            }
        }
        worlds
    }

    fn with(&self, change: impl FnOnce(&mut World)) -> World {
        let mut world = self.clone();
        change(&mut world);
        world.forget_leftovers();
        world
    }

    fn run(&mut self, idx: usize) -> &mut Run {
        &mut self.runs[idx]
    }

    /// Puts the owners in an order: worlds in which they have changed their places are the same.
    fn ordered(mut self, fault: Fault) -> World {
        let [first, second] = &self.runs;
        if first <= second {
            return self;
        }
        self.runs.swap(0, 1);
        for folder in &mut self.folders {
            for block in folder.live.iter_mut().chain(&mut folder.files) {
                block.files_of = 1 - block.files_of;
                if fault != Fault::NamesWithoutWriter {
                    block.name.writer = block.files_of;
                }
            }
            folder.live.sort_unstable();
            folder.files.sort_unstable();
        }
        self
    }

    /// Removes files that no catalogue has and no owner is about to publish: a block is uploaded again before
    /// it is published.
    fn forget_leftovers(&mut self) {
        let uploaded = self.runs.each_ref().map(|run| run.uploaded);
        for (store, folder) in (0_u8..).zip(&mut self.folders) {
            let Folder { live, files, .. } = folder;
            files.retain(|block| {
                live.iter().any(|one| one.name == block.name)
                    || uploaded.contains(&Some((store, block.name.cut)))
            });
        }
    }

    /// Looks into the catalogue, then writes the files of the blocks of a cut.
    fn upload(&mut self, idx: usize, owner: &Owner, store: u8, cut: u64, fault: Fault) {
        let folder = &mut self.folders[usize::from(store)];
        if fault != Fault::IgnoresCatalogue && !may_publish(folder.cut, cut) {
            self.run(idx).settled[usize::from(store)] = Some(cut);
            return;
        }
        for block in owner.blocks(store, cut, idx as u8, fault) {
            folder.files.retain(|other| other.name != block.name);
            folder.files.push(block);
        }
        folder.files.sort_unstable();
        self.run(idx).uploaded = Some((store, cut));
    }

    /// Creates the next snapshot of the catalogue. Creation is atomic: the snapshot before it decides.
    fn create(&mut self, idx: usize, owner: &Owner, store: u8, cut: u64, fault: Fault) {
        let folder = &mut self.folders[usize::from(store)];
        if fault == Fault::IgnoresCatalogue || may_publish(folder.cut, cut) {
            folder.live.extend(owner.blocks(store, cut, idx as u8, fault));
            folder.live.sort_unstable();
            folder.cut = Some(cut);
        }
        let run = self.run(idx);
        run.uploaded = None;
        run.settled[usize::from(store)] = Some(cut);
    }

    /// Returns the invariant that does not hold, if there is one.
    fn fault(&self, setting: &mut Setting<'_>) -> Option<String> {
        let log = setting.log;
        let mut all_live: Samples = 0;
        for block in self.folders.iter().flat_map(|folder| &folder.live) {
            if all_live & block.samples != 0 {
                return Some(format!("samples {:b} are in two live blocks", all_live & block.samples));
            }
            all_live |= block.samples;
        }
        for Folder { live, files, .. } in &self.folders {
            if let Some(block) = live.iter().find(|block| !files.contains(block)) {
                return Some(format!("files of the live block {:?} were replaced", block.name));
            }
        }
        let is_sample = |offset: u64| matches!(log[offset as usize], Entry::Sample { .. });
        let is_live = |offset: u64| all_live >> offset & 1 == 1;
        let lost = (0..self.resume.unwrap_or(0)).find(|&offset| is_sample(offset) && !is_live(offset));
        if let Some(lost) = lost {
            return Some(format!("resume passes the sample at {lost}, which is in no live block"));
        }
        self.runs.iter().find_map(|run| self.fault_of(run, setting, all_live))
    }

    fn fault_of(&self, run: &Run, setting: &mut Setting<'_>, live: Samples) -> Option<String> {
        let log = setting.log;
        let owner = setting.owner(run);
        let open = owner.open.values().fold(0, |all, samples| all | samples);
        let cut = owner.cut.values().fold(0, |all, samples| all | samples);
        let is_in = |samples: Samples, offset: u64| samples >> offset & 1 == 1;
        for offset in run.start..run.next_offset {
            let Entry::Sample { store, .. } = log[offset as usize] else { continue };
            if !is_in(open, offset) && !is_in(cut, offset) && !is_in(live, offset) {
                return Some(format!("the sample at {offset} left the owner before it was in a live block"));
            }
            // Another owner may be ahead: the own cut is then still to come.
            let is_ahead = self.folders[usize::from(store)].cut >= Some(run.next_offset);
            if is_in(open, offset) && is_in(live, offset) && !is_ahead {
                return Some(format!("the sample at {offset} is in an open window and in a live block"));
            }
        }
        // An owner at the end of the log without anything to publish: every cut window is in a block.
        let is_done = run.next_offset as usize == log.len() && owner.cut.is_empty();
        let is_missing = |&offset: &u64| is_cut(log, offset) && !is_in(live, offset);
        let missing = (0..log.len() as u64).find(|offset| is_done && is_missing(offset));
        missing.map(|offset| format!("the sample at {offset} was cut and is in no live block"))
    }
}

/// Returns true if the record is a sample that a later cut concerns.
fn is_cut(log: &[Entry], offset: u64) -> bool {
    let Entry::Sample { window, .. } = log[offset as usize] else { return false };
    log[offset as usize..].iter().any(|entry| matches!(entry, Entry::Cut { before } if window < *before))
}

/// Visits every world that can be reached. Returns their number, or the first broken invariant.
fn search(log: &[Entry], fault: Fault) -> Result<usize, String> {
    let mut setting = Setting { log, fault, owners: HashMap::default() };
    let start =
        World { folders: Default::default(), resume: None, runs: [Run::starts_at(0), Run::starts_at(0)] };
    let mut seen = HashSet::default();
    seen.insert(start.clone());
    let mut rest = vec![start];
    while let Some(world) = rest.pop() {
        if let Some(found) = world.fault(&mut setting) {
            return Err(found);
        }
        for next in world.next(&mut setting) {
            let next = next.ordered(fault);
            if seen.insert(next.clone()) {
                rest.push(next);
            }
        }
    }
    Ok(seen.len())
}

/// The samples in their order, with three cuts at each combination of places after the first sample.
fn logs(samples: &[Entry], befores: [i64; 3]) -> Vec<Vec<Entry>> {
    let mut logs = Vec::new();
    for first in 1..=samples.len() {
        for second in first..=samples.len() {
            for third in second..=samples.len() {
                let mut log = samples.to_vec();
                for (place, before) in
                    [third, second, first].into_iter().zip([2, 1, 0].map(|idx| befores[idx]))
                {
                    log.insert(place, Entry::Cut { before });
                }
                logs.push(log);
            }
        }
    }
    logs
}

const PARTITION: LogPartition = LogPartition { topic: TopicId([7; 16]), number: PartitionId(3) };
const A1: Entry = Entry::Sample { store: 0, window: 1 };
const A2: Entry = Entry::Sample { store: 0, window: 2 };
const B1: Entry = Entry::Sample { store: 1, window: 1 };

/// Two stores, whose blocks are published apart. The last sample is out of order where a cut is before it; it
/// may be the first one again, of a sender that got no answer.
const STORES: [Entry; 3] = [A1, B1, A1];
/// Two windows of a store.
const WINDOWS: [Entry; 3] = [A1, A2, A1];

/// Visits the worlds of some logs; returns their number.
fn search_all(logs: impl IntoIterator<Item = Vec<Entry>>) -> usize {
    let search =
        |log: Vec<Entry>| search(&log, Fault::None).unwrap_or_else(|fault| panic!("{log:?}: {fault}"));
    logs.into_iter().map(search).sum()
}

#[test]
fn every_order_of_two_owners_and_three_cuts_keeps_each_sample_once() {
    // Cuts of owners whose clocks differ may concern fewer windows than the cut before.
    let cuts_of_windows = [[2, 3, 3], [3, 2, 3]];
    let mut world_count = search_all(logs(&STORES, [2, 2, 2]));
    world_count +=
        cuts_of_windows.into_iter().map(|befores| search_all(logs(&WINDOWS, befores))).sum::<usize>();
    // The longer search: cargo test --release -p chronolith-model cut:: with this variable.
    if std::env::var_os("CHRONOLITH_CUT_MODEL").is_some() {
        for befores in [[2, 2, 3], [2, 3, 3], [3, 2, 2], [2, 2, 2]] {
            world_count += search_all(logs(&[A1, B1, A2, A1], befores));
        }
    }
    println!("{world_count} worlds");
    assert!(world_count > 100_000, "the search has become small: {world_count}");
}

/// Each rule is there for a reason: without it the search finds a broken invariant.
#[test]
fn a_fault_in_any_rule_is_found() {
    let finds = |fault: Fault| {
        let mut logs = logs(&STORES, [2, 2, 2]);
        logs.extend(self::logs(&WINDOWS, [2, 3, 3]));
        let found = logs.iter().find_map(|log| search(log, fault).err());
        found.unwrap_or_else(|| panic!("{fault:?} is not found"))
    };
    assert!(finds(Fault::IgnoresCatalogue).contains("two live blocks"));
    assert!(finds(Fault::PublishesNewestFirst).contains("before it was in a live block"));
    assert!(finds(Fault::ResumeIgnoresCutWindows).contains("resume passes"));
    assert!(finds(Fault::NamesWithoutWriter).contains("were replaced"));
    assert!(finds(Fault::ResumeIsPosition).contains("resume passes"));
}

#[test]
fn a_catalogue_takes_later_cuts_alone() {
    assert!(may_publish(None, 0));
    assert!(may_publish(Some(7), 8));
    assert!(!may_publish(Some(7), 7));
    assert!(!may_publish(Some(8), 7));
}

#[test]
fn resume_is_the_oldest_record_that_is_in_no_block_and_only_grows() {
    assert_eq!(resume_after(9, [].into_iter()), 9);
    assert_eq!(resume_after(9, [5, 3, 7].into_iter()), 3);
    assert_eq!((next_resume(None, 0), next_resume(Some(3), 4)), (Some(0), Some(4)));
    assert_eq!((next_resume(Some(3), 3), next_resume(Some(3), 2)), (None, None));
}

#[test]
fn windows_hold_resume_back_until_their_block_is_live() {
    let mut owned = OwnedWindows::new(10);
    owned.note_samples("a", 0);
    owned.end_record(10);
    owned.note_samples("a", 2);
    owned.note_samples("b", 0);
    owned.end_record(12);
    assert_eq!((owned.resume(), owned.next_offset()), (10, 13));
    owned.cut(13, |_, window| window < 2);
    owned.end_record(13);
    let next: Vec<_> =
        owned.next_to_publish().map(|(store, one)| (*store, one.cut, one.windows.clone())).collect();
    assert_eq!(next, [("a", 13, vec![0]), ("b", 13, vec![0])]);
    owned.settle(&"a", 13);
    assert_eq!(owned.resume(), 11, "the other store waits, and the second window of the first one is open");
    // An out-of-order sample opens the window again.
    owned.note_samples("a", 0);
    owned.end_record(14);
    owned.cut(15, |_, _| true);
    owned.end_record(15);
    let next: Vec<_> = owned.next_to_publish().map(|(store, one)| (*store, one.cut)).collect();
    assert_eq!(next, [("a", 15), ("b", 13)]);
    owned.settle(&"b", 13);
    owned.settle(&"a", 15);
    assert_eq!(owned.resume(), 16);
}

#[test]
#[should_panic(expected = "settled in their order")]
fn a_later_cut_is_not_settled_first() {
    let mut owned = OwnedWindows::new(0);
    for offset in [0, 2] {
        owned.note_samples(1, 0);
        owned.end_record(offset);
        owned.cut(offset + 1, |_, _| true);
        owned.end_record(offset + 1);
    }
    owned.settle(&1, 3);
}

#[test]
fn names_of_blocks_are_the_same_in_every_version_and_differ_by_each_part() {
    let base = block_name_hash(PARTITION, 5, "a", 0, &[1; 16]);
    assert_eq!(base, 0x1289_1763_9193_9def_bbbf);
    assert!(base < 1 << 80);
    let others = [
        block_name_hash(LogPartition { topic: TopicId([8; 16]), ..PARTITION }, 5, "a", 0, &[1; 16]),
        block_name_hash(LogPartition { number: PartitionId(4), ..PARTITION }, 5, "a", 0, &[1; 16]),
        block_name_hash(PARTITION, 6, "a", 0, &[1; 16]),
        block_name_hash(PARTITION, 5, "b", 0, &[1; 16]),
        block_name_hash(PARTITION, 5, "a", 1, &[1; 16]),
        block_name_hash(PARTITION, 5, "a", 0, &[2; 16]),
    ];
    assert!(others.iter().all(|other| *other != base));
}

/// A start with notes of an earlier process: the oldest first record of a window counts.
#[test]
fn windows_of_an_earlier_process_hold_the_offset_to_resume_from() {
    let mut windows = OwnedWindows::new(100);
    windows.note_earlier('a', 1, 60);
    windows.note_earlier('a', 1, 70);
    windows.note_earlier_cut('b', CutWindows::new(50, vec![0, 1], 30));
    windows.note_samples('a', 1);
    windows.note_samples('a', 2);
    assert_eq!(windows.open().collect::<Vec<_>>(), [(&'a', 1, 60), (&'a', 2, 100)]);
    assert!(windows.is_open(&'a', 2) && !windows.is_open(&'b', 0));
    assert_eq!(windows.resume(), 30);
    windows.settle(&'b', 50);
    assert_eq!(windows.resume(), 60);
}
