//! Values of a pickle: numbers, ranges of texts, and sequences as linked lists in one arena.
//!
//! Invariants: a value is 16 bytes and copied freely: two values may name one text or sequence; the depth of
//! a sequence is bounded when it is filled, so that no reader recurses. Not here: opcodes (`machine`).

/// Nested sequences at most; points need three.
pub(super) const DEPTH_MAX: u8 = 8;

/// End of the list of items.
const ITEM_NONE: u32 = u32::MAX;

/// A range of the frame, or after its end of the decoded texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextRange {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// A value on the stack, in the memo or in a sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    /// Integers and booleans too: `float()` is applied to all of them.
    Number(f64),
    Text(TextRange),
    /// Index of a list or tuple.
    Sequence(u32),
    /// None, an empty dictionary or set, an integer beyond 128 bits.
    Other,
}

const _: () = assert!(size_of::<Value>() == 16);

/// A list or tuple.
#[derive(Debug, Clone, Copy)]
struct Sequence {
    first: u32,
    last: u32,
    len: u32,
    depth: u8,
}

/// An element of a sequence.
#[derive(Debug, Clone, Copy)]
struct Item {
    value: Value,
    next: u32,
}

/// All sequences of a frame.
#[derive(Debug, Default)]
pub(super) struct Arena {
    sequences: Vec<Sequence>,
    items: Vec<Item>,
}

impl Arena {
    /// Adds an empty sequence; `None` beyond 4 G of them.
    pub(super) fn new_sequence(&mut self) -> Option<Value> {
        let idx = u32::try_from(self.sequences.len()).ok()?;
        self.sequences.push(Sequence { first: ITEM_NONE, last: ITEM_NONE, len: 0, depth: 1 });
        Some(Value::Sequence(idx))
    }

    /// Appends an element; `None` if the target is no sequence, or nested too deeply.
    pub(super) fn append(&mut self, target: Value, value: Value) -> Option<()> {
        let Value::Sequence(idx) = target else { return None };
        let depth = match value {
            Value::Sequence(element) => self.sequences.get(element as usize)?.depth.saturating_add(1),
            _ => 1,
        };
        let item = u32::try_from(self.items.len()).ok()?;
        let sequence = self.sequences.get_mut(idx as usize)?;
        sequence.depth = sequence.depth.max(depth);
        if sequence.depth > DEPTH_MAX {
            return None;
        }
        match self.items.get_mut(sequence.last as usize) {
            Some(last) => last.next = item,
            None => sequence.first = item,
        }
        sequence.last = item;
        sequence.len += 1;
        self.items.push(Item { value, next: ITEM_NONE });
        Some(())
    }

    /// Elements of a sequence; none of another value.
    pub(super) fn elements(&self, value: Value) -> Elements<'_> {
        let next = match value {
            Value::Sequence(idx) => self.sequences.get(idx as usize).map_or(ITEM_NONE, |list| list.first),
            _ => ITEM_NONE,
        };
        Elements { items: &self.items, next }
    }

    /// Returns both elements of a sequence of two.
    pub(super) fn pair(&self, value: Value) -> Option<[Value; 2]> {
        let Value::Sequence(idx) = value else { return None };
        let sequence = self.sequences.get(idx as usize)?;
        let first = self.items.get(sequence.first as usize)?;
        let last = self.items.get(sequence.last as usize)?;
        (sequence.len == 2).then_some([first.value, last.value])
    }

    /// Empties the arena, keeping memory for `items_kept` items.
    pub(super) fn release(&mut self, items_kept: usize) {
        self.sequences.clear();
        self.items.clear();
        self.sequences.shrink_to(items_kept);
        self.items.shrink_to(items_kept);
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.sequences.capacity() * size_of::<Sequence>() + self.items.capacity() * size_of::<Item>()
    }
}

/// Iterator over the elements of a sequence.
pub(super) struct Elements<'a> {
    items: &'a [Item],
    next: u32,
}

impl Iterator for Elements<'_> {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let item = self.items.get(self.next as usize)?;
        self.next = item.next;
        Some(item.value)
    }
}
