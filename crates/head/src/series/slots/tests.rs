//! Slots are reused, and free pages are returned.

use chronolith_base::Rng;

use super::*;

const PAGE_SLOT_COUNT: usize = 1 << Cell::PAGE_BITS;

#[derive(Clone, Copy)]
struct Cell {
    value: u64,
    link: u32,
}

impl Slot for Cell {
    const EMPTY: Cell = Cell { value: 0, link: SLOT_NONE };
    const PAGE_BITS: u32 = 9;

    fn link(&self) -> u32 {
        self.link
    }

    fn set_link(&mut self, link: u32) {
        self.link = link;
    }
}

fn cell(value: u64) -> Cell {
    Cell { value, link: SLOT_NONE }
}

#[test]
fn random_allocs_and_frees_keep_their_values() {
    let rng = Rng::from_seed(5);
    let mut slots = Slots::new();
    let mut held: Vec<(u32, u64)> = Vec::new();
    for step in 0..60_000u64 {
        // The number of slots in use oscillates between none and a few pages.
        if rng.below(100) < if step / 8000 % 2 == 0 { 70 } else { 20 } || held.is_empty() {
            held.push((slots.alloc(cell(step)), step));
        } else {
            let (idx, value) = held.swap_remove(rng.below(held.len() as u64) as usize);
            assert_eq!(slots.get(idx).unwrap().value, value);
            slots.free(idx);
        }
        assert_eq!(slots.used_count(), held.len() as u64);
    }
    for (idx, value) in held {
        assert_eq!(slots.get(idx).unwrap().value, value);
    }
}

#[test]
fn pages_are_freed_after_a_peak_and_reused() {
    let mut slots = Slots::new();
    let page_bytes = (PAGE_SLOT_COUNT * size_of::<Cell>()) as u64;
    for round in 0..3 {
        let held: Vec<u32> = (0..20 * PAGE_SLOT_COUNT as u64).map(|v| slots.alloc(cell(v))).collect();
        let peak = slots.heap_bytes();
        assert!(peak >= 20 * page_bytes && peak < 21 * page_bytes, "round {round}: {peak}");
        held.iter().for_each(|&idx| slots.free(idx));
        let rest = slots.heap_bytes();
        assert!(rest < 2 * page_bytes, "round {round}: {rest}");
    }
}

#[test]
fn the_lowest_page_with_room_is_filled_first() {
    let mut slots = Slots::new();
    let held: Vec<u32> = (0..4 * PAGE_SLOT_COUNT as u64).map(|v| slots.alloc(cell(v))).collect();
    slots.free(held[3 * PAGE_SLOT_COUNT]);
    slots.free(held[7]);
    assert_eq!(slots.alloc(cell(0)), held[7]);
    assert_eq!(slots.alloc(cell(0)), held[3 * PAGE_SLOT_COUNT]);
    assert_eq!(slots.alloc(cell(0)) as usize, 4 * PAGE_SLOT_COUNT, "all pages were full");
}
