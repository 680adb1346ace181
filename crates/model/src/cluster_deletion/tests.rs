//! The rules of deletions, in every order of owners that stop and start, of two processes that write
//! tombstones, and of compactions, over logs with cuts at every place; and faulty rules, which the search
//! finds.

use chronolith_base::hash::HashSet;

use super::*;

/// Bit `n`: sample `n`.
type Samples = u8;

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Sample(u8),
    Delete,
    Cut,
}

/// Rules that a faulty process breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Cuts after the deletion are published before it is done.
    PublishesEarly,
    /// Tombstones are written before all partitions have passed the deletion.
    SettlesEarly,
    /// A process looks whether the deletion is done before it reads the catalogue.
    LooksFirst,
    /// A record that was written again deletes again.
    AppliesRepeats,
    /// The deletion is applied while a cut is in the head.
    IgnoresHeldCuts,
}

/// A live block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Block {
    id: u8,
    samples: Samples,
    deleted: Samples,
}

impl Block {
    fn visible(self) -> Samples {
        self.samples & !self.deleted
    }
}

/// A running owner of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Owner {
    next: usize,
    head: Samples,
    /// First record with a sample in the head.
    head_from: Option<usize>,
    /// Offset, samples and first record of cuts that it has not published.
    held: Vec<(usize, Samples, usize)>,
    restarts: u8,
}

/// A process that writes tombstones.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum Settler {
    #[default]
    Idle,
    /// Blocks that were read; true if the end of the deletion was looked for as well.
    Read(Vec<Block>, bool),
    /// The tombstones are entered.
    Entered,
}

/// Everything that survives a stop, and all processes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct World {
    blocks: Vec<Block>,
    next_id: u8,
    cuts: [Option<usize>; 2],
    resume: [usize; 2],
    marks: [Option<usize>; 2],
    is_done: bool,
    /// Two owners of partition 0, one of partition 1.
    owners: [Owner; 3],
    settlers: [Settler; 2],
}

const PARTITION_OF: [usize; 3] = [0, 0, 1];
const RESTARTS_MAX: u8 = 1;

struct Setting<'a> {
    logs: [&'a [Entry]; 2],
    fault: Fault,
    /// Samples that the deletion takes.
    taken: Samples,
    all: Samples,
}

impl Setting<'_> {
    /// Returns all worlds after one step.
    fn steps(&self, world: &World) -> Vec<World> {
        let mut next = Vec::new();
        for idx in 0..world.owners.len() {
            next.extend(self.apply(world, idx));
            next.extend(self.publish(world, idx));
        }
        for idx in 0..world.settlers.len() {
            next.extend(self.settle(world, idx));
        }
        next.extend(compact(world));
        next
    }

    fn apply(&self, world: &World, idx: usize) -> Option<World> {
        let partition = PARTITION_OF[idx];
        let offset = world.owners[idx].next;
        let entry = *self.logs[partition].get(offset)?;
        let mut world = world.clone();
        let cut_live = world.cuts[partition];
        let owner = &mut world.owners[idx];
        match entry {
            Entry::Sample(sample) => {
                owner.head |= 1 << sample;
                owner.head_from.get_or_insert(offset);
            }
            Entry::Cut => {
                if let Some(from) = owner.head_from.take()
                    && cut_live.is_none_or(|live| live < offset)
                {
                    owner.held.push((offset, owner.head, from));
                }
                owner.head = 0;
            }
            Entry::Delete => {
                if !owner.held.is_empty() && self.fault != Fault::IgnoresHeldCuts {
                    return None;
                }
                let marked = *world.marks[partition].get_or_insert(offset);
                if is_applied(marked as u64, offset as u64) || self.fault == Fault::AppliesRepeats {
                    owner.head &= !self.of_deletion();
                }
            }
        }
        owner.next += 1;
        Some(world)
    }

    /// Samples that the selectors of the deletion select, before and after it.
    fn of_deletion(&self) -> Samples {
        self.all
    }

    fn publish(&self, world: &World, idx: usize) -> Option<World> {
        let partition = PARTITION_OF[idx];
        let &(cut, samples, _) = world.owners[idx].held.first()?;
        let mut world = world.clone();
        if world.cuts[partition].is_none_or(|live| live < cut) {
            let marked = world.marks[partition].filter(|_| !world.is_done).map(|mark| mark as u64);
            if !may_publish_cut(marked, cut as u64) && self.fault != Fault::PublishesEarly {
                return None;
            }
            world.blocks.push(Block { id: world.next_id, samples, deleted: 0 });
            world.next_id += 1;
            world.cuts[partition] = Some(cut);
        }
        let owner = &mut world.owners[idx];
        owner.held.remove(0);
        let of_held = owner.held.iter().map(|(_, _, from)| *from);
        let oldest = of_held.chain(owner.head_from).min().unwrap_or(owner.next);
        world.resume[partition] = world.resume[partition].max(oldest);
        Some(world)
    }

    fn settle(&self, world: &World, idx: usize) -> Vec<World> {
        let mut next = world.clone();
        match &world.settlers[idx] {
            Settler::Idle => {
                let marks = world.marks.map(|mark| mark.map(|mark| mark as u64));
                let is_due = may_settle(marks) || self.fault == Fault::SettlesEarly;
                if world.is_done || !is_due {
                    return Vec::new();
                }
                let has_looked = self.fault == Fault::LooksFirst;
                next.settlers[idx] = Settler::Read(world.blocks.clone(), false);
                if has_looked {
                    // The look is this step; the catalogue is read in a later one.
                    next.settlers[idx] = Settler::Read(Vec::new(), true);
                }
            }
            Settler::Read(_, true) if self.fault == Fault::LooksFirst => {
                return self.enter(world, idx, &world.blocks).into_iter().collect();
            }
            Settler::Read(blocks, false) => {
                next.settlers[idx] = match world.is_done {
                    true => Settler::Idle,
                    false => Settler::Read(blocks.clone(), true),
                };
            }
            Settler::Read(blocks, true) => return self.enter(world, idx, blocks).into_iter().collect(),
            Settler::Entered => {
                next.is_done = true;
                next.settlers[idx] = Settler::Idle;
            }
        }
        vec![next]
    }

    /// Enters tombstones in the blocks that were read, if these are as they were.
    fn enter(&self, world: &World, idx: usize, read: &[Block]) -> Option<World> {
        let mut next = world.clone();
        let with_samples = read.iter().filter(|block| block.visible() & self.of_deletion() != 0);
        for block in with_samples {
            match next.blocks.iter_mut().find(|live| *live == block) {
                Some(live) => live.deleted |= self.of_deletion(),
                None => {
                    let mut again = world.clone();
                    again.settlers[idx] = Settler::Idle;
                    return Some(again);
                }
            }
        }
        next.settlers[idx] = Settler::Entered;
        Some(next)
    }

    /// Returns the fault of a world.
    fn fault_of(&self, world: &World) -> Option<String> {
        let visible = world.blocks.iter().fold(0, |all, block| all | block.visible());
        if world.is_done && visible & self.taken != 0 {
            return Some(format!("deleted samples are read: {world:?}"));
        }
        for (partition, log) in self.logs.iter().enumerate() {
            let records = log.iter().take(world.resume[partition]);
            let published = records.fold(0, |all, entry| match entry {
                Entry::Sample(sample) => all | 1 << sample,
                Entry::Delete | Entry::Cut => all,
            });
            let lost = published & !self.taken & !visible;
            if lost != 0 {
                return Some(format!("samples {lost:b} of partition {partition} are lost: {world:?}"));
            }
        }
        None
    }

    /// Visits every world that can be reached; returns their number.
    fn search(&self) -> Result<usize, String> {
        let mut seen = HashSet::default();
        seen.insert(World::default());
        let mut open = vec![World::default()];
        while let Some(world) = open.pop() {
            let next = self.steps(&world);
            if next.is_empty() && !world.is_done {
                return Err(format!("nothing goes on: {world:?}"));
            }
            for world in next.into_iter().chain(restarts(&world)) {
                if let Some(fault) = self.fault_of(&world) {
                    return Err(fault);
                }
                if seen.insert(world.clone()) {
                    open.push(world);
                }
            }
        }
        Ok(seen.len())
    }
}

/// Joins the first two blocks without the deleted samples.
fn compact(world: &World) -> Option<World> {
    let a = *world.blocks.first()?;
    let b = *world.blocks.get(1)?;
    let mut next = world.clone();
    next.blocks.drain(..2);
    next.blocks.insert(0, Block { id: next.next_id, samples: a.visible() | b.visible(), deleted: 0 });
    next.next_id += 1;
    Some(next)
}

/// Returns the worlds after an owner has lost its directory and starts again.
fn restarts(world: &World) -> Vec<World> {
    let start = |idx: usize| {
        let mut next = world.clone();
        let restarts = next.owners[idx].restarts;
        let position = world.resume[PARTITION_OF[idx]];
        next.owners[idx] = Owner { next: position, restarts: restarts + 1, ..Owner::default() };
        next
    };
    (0..world.owners.len()).filter(|idx| world.owners[*idx].restarts < RESTARTS_MAX).map(start).collect()
}

/// Returns `entries` with a cut at the end and one at each other place.
fn with_cuts(entries: &[Entry]) -> Vec<Vec<Entry>> {
    let place = |at: usize| {
        let mut log = entries.to_vec();
        log.insert(at, Entry::Cut);
        log.push(Entry::Cut);
        log
    };
    (1..entries.len()).map(place).collect()
}

/// Runs the search over all logs: sample 0 and 2 are before the deletion, 1 and 3 after it.
fn search_all(fault: Fault) -> Result<usize, String> {
    use Entry::{Delete, Sample};
    let first = with_cuts(&[Sample(0), Delete, Sample(1), Delete]);
    let second = with_cuts(&[Sample(2), Delete, Sample(3)]);
    let mut count = 0;
    for a in &first {
        for b in &second {
            let setting = Setting { logs: [a, b], fault, taken: 0b0101, all: 0b1111 };
            count += setting.search().map_err(|why| format!("{a:?} {b:?}: {why}"))?;
        }
    }
    Ok(count)
}

#[test]
fn a_deletion_takes_the_samples_before_it_and_no_others() {
    let count = search_all(Fault::None).unwrap_or_else(|why| panic!("{why}"));
    assert!(count > 10_000, "{count} worlds");
}

#[test]
fn faulty_rules_are_found() {
    for fault in [
        Fault::PublishesEarly,
        Fault::SettlesEarly,
        Fault::LooksFirst,
        Fault::AppliesRepeats,
        Fault::IgnoresHeldCuts,
    ] {
        assert!(search_all(fault).is_err(), "{fault:?}");
    }
}
