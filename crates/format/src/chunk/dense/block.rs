//! Runs of up to 128 integers as bytes: a base, bits of one width, and patches for what does not fit.
//!
//! Invariant: any `i64`s survive (arithmetic wraps); a reader takes untrusted bytes and never reads beyond
//! them.
//! Not here: meaning of the integers (`times`, `values`).

use std::ops::Range;

use chronolith_base::bytes::{put_uvarint, put_varint, unzigzag, zigzag};
use chronolith_base::{ByteReader, DecodeError};

/// Integers in a whole block.
pub(super) const BLOCK_ITEMS: usize = 128;
/// The integers of a block; those beyond its length are undefined.
pub(super) type Block = [i64; BLOCK_ITEMS];

/// Head of a block in which a bitmap says which items equal the most common one.
const SPARSE: u8 = 127;
/// Set in the head when patches follow the packed bits.
const PATCHED: u8 = 0x80;
const WIDTH_MAX: u8 = 64;
const WHAT: &str = "dense block";
/// Bytes of the longest payload, and what an 8-byte load at its last byte may touch.
const PAYLOAD_BYTES_MAX: usize = BLOCK_ITEMS * 8;
const WORD_BYTES: usize = 8;
/// Widest item that one 8-byte load holds whatever the position of its first bit.
const LOAD_BITS: u32 = 57;

/// Parameters of a packed block: items are `base` plus `width` bits, others are patched.
#[derive(Clone, Copy)]
struct Plan {
    base: i64,
    width: u32,
    cost_bits: usize,
}

/// Appends `items` as blocks of [`BLOCK_ITEMS`], the last one shorter.
pub(super) fn put_blocks(items: &[i64], out: &mut Vec<u8>) {
    for block in items.chunks(BLOCK_ITEMS) {
        put_block(block, out);
    }
}

fn put_block(items: &[i64], out: &mut Vec<u8>) {
    let (low, high) = items.iter().fold((i64::MAX, i64::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    let width = width_of(distance(low, high));
    let unpatched = Plan::unpatched(items.len(), low, width);
    if width == 0 || (width > BUCKETS_LOG && Histogram::of(items, low, width).excludes_savings(unpatched)) {
        put_packed(items, unpatched, out);
    } else {
        put_searched(items, out);
    }
}

/// Writes a block by the cheapest plan that a search finds.
fn put_searched(items: &[i64], out: &mut Vec<u8>) {
    let mut sorted = [0i64; BLOCK_ITEMS];
    let sorted = &mut sorted[..items.len()];
    sorted.copy_from_slice(items);
    sorted.sort_unstable();
    let packed = Plan::new(sorted);
    if let Some(run) = long_run(sorted) {
        let common = sorted[run.start];
        let mut rest = [0i64; BLOCK_ITEMS];
        let rest_len = items.len() - run.len();
        rest[..run.start].copy_from_slice(&sorted[..run.start]);
        rest[run.start..rest_len].copy_from_slice(&sorted[run.end..]);
        let plan = Plan::new(&rest[..rest_len]);
        let sparse_bits = 8 + varint_bits(common) + 8 * items.len().div_ceil(8) + plan.cost_bits;
        if sparse_bits < packed.cost_bits {
            put_sparse(items, common, plan, out);
            return;
        }
    }
    put_packed(items, packed, out);
}

/// Buckets of a [`Histogram`], as a power of two.
const BUCKETS_LOG: u32 = 5;
const BUCKET_COUNT: usize = 1 << BUCKETS_LOG;
/// Bits that a patch takes at least: its position and its high part.
const PATCH_BITS_MIN: usize = 16;
/// Bits of a patched block before its items at least: head, patch count, base.
const PATCHED_HEAD_BITS_MIN: usize = 24;

/// Histogram of the items of a block in buckets of equal width: a lower bound of the cost of all patched and
/// sparse plans.
///
/// PERF: most blocks are packed without patches. The bound proves that without a sort of the block: 129 -> 55
/// instructions per sample of `put_blocks`, the bytes stay the same.
///   valgrind --tool=callgrind import_speed SOURCE TARGET (10 000 series x 250 samples of load-wal-large)
struct Histogram {
    item_count: usize,
    /// Number of items in the buckets before each one; the last entry counts all.
    before: [u8; BUCKET_COUNT + 1],
}

impl Histogram {
    /// Number of items, at least one, that are within `width` bits above `low`; `width` is more than
    /// [`BUCKETS_LOG`].
    fn of(items: &[i64], low: i64, width: u32) -> Histogram {
        let shift = width - BUCKETS_LOG;
        let mut counts = [0u8; BUCKET_COUNT];
        for &item in items {
            counts[(distance(low, item) >> shift) as usize % BUCKET_COUNT] += 1;
        }
        let mut before = [0u8; BUCKET_COUNT + 1];
        let mut sum = 0;
        for (count, before) in counts.iter().zip(&mut before[1..]) {
            sum += count;
            *before = sum;
        }
        Histogram { item_count: items.len(), before }
    }

    /// Most items in `BUCKETS` neighbouring buckets.
    fn most_in<const BUCKETS: usize>(&self) -> usize {
        let ends = self.before.iter().skip(BUCKETS);
        let most = ends.zip(&self.before).fold(0, |most, (end, start)| most.max(end - start));
        usize::from(most)
    }

    /// Returns true if no patched and no sparse plan is cheaper than `unpatched`.
    fn excludes_savings(&self, unpatched: Plan) -> bool {
        // A sparse block needs equal items, a quarter of all.
        if 4 * self.most_in::<1>() >= self.item_count {
            return false;
        }
        let saves = |saved: u32, patch_bits: usize| {
            let item_bits = self.item_count * (unpatched.width - saved) as usize;
            PATCHED_HEAD_BITS_MIN + item_bits + patch_bits < unpatched.cost_bits
        };
        let outside_bits = |inside: usize| (self.item_count - inside) * PATCH_BITS_MIN;
        // A window of half the width is within 17 buckets, one of a quarter in 9.
        if saves(1, outside_bits(self.most_in::<17>()))
            || saves(2, outside_bits(self.most_in::<9>()))
            || saves(3, outside_bits(self.most_in::<5>()))
            || saves(4, outside_bits(self.most_in::<3>()))
        {
            return false;
        }
        // All narrower ones are within two. High parts of items beyond the neighbours of these have at least
        // `saved - 3` bits.
        let near_bits = outside_bits(self.most_in::<2>());
        let far_count = self.item_count - self.most_in::<4>();
        (BUCKETS_LOG..=unpatched.width).all(|saved| {
            let high_bits = 8 * (saved as usize - 3).div_ceil(7) - 8;
            !saves(saved, near_bits + far_count * high_bits)
        })
    }
}

/// Numbers of patches that a plan is tried with; more than half the items never pay.
const PATCH_COUNTS: [usize; 11] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48];

impl Plan {
    /// Plan that packs all `len` items in `width` bits above the lowest, without patches.
    fn unpatched(len: usize, low: i64, width: u32) -> Plan {
        let base = if width == u32::from(WIDTH_MAX) { 0 } else { low };
        Plan { base, width, cost_bits: 8 + len * width as usize + varint_bits(base) }
    }

    /// The cheapest plan for `sorted`, which is not empty.
    ///
    /// Tries numbers of patches, not widths: the narrowest window that leaves out k items has only k + 1
    /// places. Only the winner's window is searched item by item.
    fn new(sorted: &[i64]) -> Plan {
        let (first, last) = (sorted[0], sorted[sorted.len() - 1]);
        let width = width_of(distance(first, last));
        let unpatched = Plan::unpatched(sorted.len(), first, width);
        let mut best = unpatched;
        let mut narrowest = width;
        for patch_count in PATCH_COUNTS {
            if 2 * patch_count > sorted.len() || narrowest == 0 {
                break;
            }
            let (start, width) = narrowest_window(sorted, sorted.len() - patch_count);
            if width >= narrowest {
                continue;
            }
            narrowest = width;
            let plan = Plan::patched(sorted, start..start + sorted.len() - patch_count, width);
            if plan.cost_bits < best.cost_bits {
                best = plan;
            }
        }
        if best.width == unpatched.width {
            return unpatched;
        }
        let window = fullest_window(sorted, (1 << best.width) - 1);
        let refined = Plan::patched(sorted, window, best.width);
        if refined.cost_bits < best.cost_bits { refined } else { best }
    }

    /// Packs the items of `window` and those above it that fit as well; `width` is below 64.
    fn patched(sorted: &[i64], window: Range<usize>, width: u32) -> Plan {
        let base = sorted[window.start];
        let outside = sorted[..window.start].iter().chain(&sorted[window.end..]);
        let patch_bits: usize = outside
            .map(|&item| high_part(item, base, width))
            .filter(|&high| high != 0)
            .map(|high| 8 + varint_bits(high))
            .sum();
        let cost_bits = 16 + sorted.len() * width as usize + varint_bits(base) + patch_bits;
        Plan { base, width, cost_bits }
    }
}

/// Start of the `len` neighbours of `sorted` that are closest together, and the width that they need.
fn narrowest_window(sorted: &[i64], len: usize) -> (usize, u32) {
    let widths = sorted.iter().zip(&sorted[len - 1..]).map(|(&low, &high)| distance(low, high));
    let (start, narrowest) =
        widths.enumerate().fold((0, u64::MAX), |best, one| if one.1 < best.1 { one } else { best });
    (start, width_of(narrowest))
}

/// The longest part of `sorted` whose items are within `limit` of its first.
fn fullest_window(sorted: &[i64], limit: u64) -> Range<usize> {
    let mut start = 0;
    let mut best = 0..0;
    for (end, &item) in sorted.iter().enumerate() {
        while distance(sorted[start], item) > limit {
            start += 1;
        }
        if end + 1 - start > best.len() {
            best = start..end + 1;
        }
    }
    best
}

/// Equal items that are at least a quarter of all, if some are; they cover two neighbouring eighths.
fn long_run(sorted: &[i64]) -> Option<Range<usize>> {
    let eighth = sorted.len() / 8;
    if eighth == 0 {
        return None;
    }
    let eighths = sorted.iter().step_by(eighth);
    let repeated = eighths.clone().zip(eighths.skip(1)).filter(|(a, b)| a == b).map(|(a, _)| *a);
    let run_of = |item| sorted.partition_point(|&x| x < item)..sorted.partition_point(|&x| x <= item);
    repeated.map(run_of).max_by_key(Range::len).filter(|run| 4 * run.len() >= sorted.len())
}

fn distance(low: i64, high: i64) -> u64 {
    high.wrapping_sub(low).cast_unsigned()
}

fn width_of(distance: u64) -> u32 {
    64 - distance.leading_zeros()
}

fn varint_bits(value: i64) -> usize {
    8 * (width_of(zigzag(value)) as usize).div_ceil(7).max(1)
}

/// Part of `item` beyond the packed bits; not for width 64.
fn high_part(item: i64, base: i64, width: u32) -> i64 {
    item.wrapping_sub(base) >> width
}

fn put_sparse(items: &[i64], common: i64, plan: Plan, out: &mut Vec<u8>) {
    out.push(SPARSE);
    put_varint(out, common);
    let mut rest = [0i64; BLOCK_ITEMS];
    let mut rest_len = 0;
    for eight in items.chunks(8) {
        let mut byte = 0u8;
        for (bit, &item) in eight.iter().enumerate() {
            if item != common {
                byte |= 1 << bit;
                rest[rest_len] = item;
                rest_len += 1;
            }
        }
        out.push(byte);
    }
    put_packed(&rest[..rest_len], plan, out);
}

fn put_packed(items: &[i64], plan: Plan, out: &mut Vec<u8>) {
    let Plan { base, width, .. } = plan;
    assert!(width <= u32::from(WIDTH_MAX), "a width is at most 64 bits");
    let head_at = out.len();
    out.push(width as u8);
    put_varint(out, base);
    if width == 64 {
        items.iter().for_each(|item| out.extend_from_slice(&item.wrapping_sub(base).to_le_bytes()));
        return;
    }
    let mask = (1u64 << width) - 1;
    let (mut word, mut used, mut patch_count) = (0u128, 0u32, 0u8);
    for &item in items {
        let offset = item.wrapping_sub(base);
        patch_count += u8::from(offset >> width != 0);
        word |= u128::from(offset.cast_unsigned() & mask) << used;
        used += width;
        if used >= 64 {
            out.extend_from_slice(&(word as u64).to_le_bytes());
            word >>= 64;
            used -= 64;
        }
    }
    out.extend_from_slice(&(word as u64).to_le_bytes()[..used.div_ceil(8) as usize]);
    if patch_count > 0 {
        out[head_at] |= PATCHED;
        put_patches(items, base, width, patch_count, out);
    }
}

fn put_patches(items: &[i64], base: i64, width: u32, patch_count: u8, out: &mut Vec<u8>) {
    out.push(patch_count);
    let highs = || (0u8..).zip(items).map(|(at, &item)| (at, high_part(item, base, width)));
    highs().filter(|&(_, high)| high != 0).for_each(|(at, _)| out.push(at));
    highs().filter(|&(_, high)| high != 0).for_each(|(_, high)| put_uvarint(out, zigzag(high)));
}

/// Reads the next block, which has `len` items, into the front of `out`.
pub(super) fn read_block(
    reader: &mut ByteReader<'_>,
    len: usize,
    out: &mut Block,
) -> Result<(), DecodeError> {
    debug_assert!(0 < len && len <= BLOCK_ITEMS, "a block has 1 to 128 items");
    let offset = reader.offset();
    let head = reader.u8(WHAT)?;
    if head == SPARSE {
        return read_sparse(reader, len, out);
    }
    read_packed(reader, (head, offset), len, out)
}

/// Skips the next block, which has `len` items, without unpacking it.
pub(super) fn skip_block(reader: &mut ByteReader<'_>, len: usize) -> Result<(), DecodeError> {
    let offset = reader.offset();
    let head = reader.u8(WHAT)?;
    if head != SPARSE {
        return skip_packed(reader, (head, offset), len);
    }
    reader.varint(WHAT)?;
    let bitmap = reader.bytes(WHAT, len.div_ceil(8))?;
    let rest_len: usize = bitmap.iter().map(|byte| byte.count_ones() as usize).sum();
    let offset = reader.offset();
    let head = reader.u8(WHAT)?;
    skip_packed(reader, (head, offset), rest_len)
}

fn skip_packed(
    reader: &mut ByteReader<'_>,
    (head, offset): (u8, usize),
    len: usize,
) -> Result<(), DecodeError> {
    let width = width_in(head, offset)?;
    reader.varint(WHAT)?;
    reader.bytes(WHAT, (len * usize::from(width)).div_ceil(8))?;
    if head & PATCHED != 0 {
        let count = usize::from(reader.u8(WHAT)?);
        reader.bytes(WHAT, count)?;
        for _ in 0..count {
            reader.uvarint(WHAT)?;
        }
    }
    Ok(())
}

/// Returns the width in the head of a block without a bitmap.
fn width_in(head: u8, offset: usize) -> Result<u8, DecodeError> {
    let width = head & !PATCHED;
    if width > WIDTH_MAX || head == WIDTH_MAX | PATCHED {
        let (expected, found) = ("a width of at most 64 bits, patches below that", u64::from(head));
        return Err(DecodeError::Invalid { what: WHAT, offset, expected, found });
    }
    Ok(width)
}

fn read_sparse(reader: &mut ByteReader<'_>, len: usize, out: &mut Block) -> Result<(), DecodeError> {
    let common = reader.varint(WHAT)?;
    let bitmap = reader.bytes(WHAT, len.div_ceil(8))?;
    let rest_len: usize = bitmap.iter().map(|byte| byte.count_ones() as usize).sum();
    let offset = reader.offset();
    let head = reader.u8(WHAT)?;
    let mut rest = [0i64; BLOCK_ITEMS];
    // Forged bits after the last item are counted too: their items are read and dropped.
    read_packed(reader, (head, offset), rest_len, &mut rest)?;
    out.fill(common);
    let mut rest = rest.iter();
    for (word_items, word_bytes) in out.chunks_exact_mut(64).zip(bitmap.chunks(8)) {
        let mut word = [0u8; 8];
        word[..word_bytes.len()].copy_from_slice(word_bytes);
        let mut word = u64::from_le_bytes(word);
        while word != 0
            && let Some(&item) = rest.next()
        {
            word_items[word.trailing_zeros() as usize] = item;
            word &= word - 1;
        }
    }
    Ok(())
}

/// Reads what follows `head`; nested sparse blocks are refused here by their width.
fn read_packed(
    reader: &mut ByteReader<'_>,
    (head, offset): (u8, usize),
    len: usize,
    out: &mut Block,
) -> Result<(), DecodeError> {
    let width = width_in(head, offset)?;
    let base = reader.varint(WHAT)?;
    let payload = reader.bytes(WHAT, (len * usize::from(width)).div_ceil(8))?;
    unpack(payload, u32::from(width), base, out);
    if head & PATCHED != 0 {
        patch(reader, u32::from(width), len, out)?;
    }
    Ok(())
}

fn patch(reader: &mut ByteReader<'_>, width: u32, len: usize, out: &mut Block) -> Result<(), DecodeError> {
    let count = usize::from(reader.u8(WHAT)?);
    let positions_at = reader.offset();
    let positions = reader.bytes(WHAT, count)?;
    for (idx, &at) in positions.iter().enumerate() {
        let high = unzigzag(reader.uvarint(WHAT)?);
        match out[..len].get_mut(usize::from(at)) {
            Some(item) => *item = item.wrapping_add(high << width),
            None => {
                let (offset, expected) = (positions_at + idx, "a position in the block");
                return Err(DecodeError::Invalid { what: WHAT, offset, expected, found: u64::from(at) });
            }
        }
    }
    Ok(())
}

/// Unpacks all 128 items; those after the payload's end are `base` or a part of the last byte.
fn unpack(payload: &[u8], width: u32, base: i64, out: &mut Block) {
    if width == 0 {
        out.fill(base);
        return;
    }
    // The payload is followed by zeros, so that a load at its last byte needs no check.
    let mut padded = [0u8; PAYLOAD_BYTES_MAX + WORD_BYTES];
    padded[..payload.len()].copy_from_slice(payload);
    if width <= LOAD_BITS {
        unpack_narrow(&padded, width, base, out);
    } else {
        unpack_wide(&padded, width, base, out);
    }
}

/// Unpacks several items per load while they fit: 8 up to width 8, 4 up to 14, 2 up to 28.
fn unpack_narrow(padded: &[u8; PAYLOAD_BYTES_MAX + WORD_BYTES], width: u32, base: i64, out: &mut Block) {
    match width {
        0..=8 => unpack_groups::<8>(padded, width, base, out),
        9..=14 => unpack_groups::<4>(padded, width, base, out),
        15..=28 => unpack_groups::<2>(padded, width, base, out),
        _ => unpack_groups::<1>(padded, width, base, out),
    }
}

/// `GROUP` items from every load; they and the up to 7 bits before them must fit 64.
fn unpack_groups<const GROUP: usize>(
    padded: &[u8; PAYLOAD_BYTES_MAX + WORD_BYTES],
    width: u32,
    base: i64,
    out: &mut Block,
) {
    let mask = u64::MAX >> (64 - width);
    let mut bit = 0u32;
    for group in out.chunks_exact_mut(GROUP) {
        let mut word = load(padded, (bit / 8) as usize) >> (bit % 8);
        for item in group {
            *item = base.wrapping_add((word & mask).cast_signed());
            word >>= width;
        }
        bit += width * GROUP as u32;
    }
}

fn unpack_wide(padded: &[u8; PAYLOAD_BYTES_MAX + WORD_BYTES], width: u32, base: i64, out: &mut Block) {
    let mask = u64::MAX >> (64 - width);
    for (bit, item) in (0..).step_by(width as usize).zip(out) {
        let at = bit / 8;
        let words = u128::from(load(padded, at)) | u128::from(load(padded, at + 8)) << 64;
        let low = (words >> (bit % 8)) as u64 & mask;
        *item = base.wrapping_add(low.cast_signed());
    }
}

/// Eight bytes at `at`. Reduced to the buffer, as items after a short block's payload may need more.
fn load(padded: &[u8; PAYLOAD_BYTES_MAX + WORD_BYTES], at: usize) -> u64 {
    let at = at & (PAYLOAD_BYTES_MAX - 1);
    let mut word = [0u8; WORD_BYTES];
    word.copy_from_slice(&padded[at..at + WORD_BYTES]);
    u64::from_le_bytes(word)
}

/// About how many bits `items` take as blocks: what a choice between codings needs, at 2 ns an item.
pub(super) fn estimate_bits(items: &[i64]) -> usize {
    estimate_from(items, ESTIMATE_BLOCKS)
}

/// As [`estimate_bits`], from fewer blocks: enough to tell which codings are out of the question.
pub(super) fn glance_bits(items: &[i64]) -> usize {
    estimate_from(items, GLANCE_BLOCKS)
}

fn estimate_from(items: &[i64], blocks_max: usize) -> usize {
    let block_count = items.len().div_ceil(BLOCK_ITEMS);
    let step = block_count.div_ceil(blocks_max).max(1);
    let sampled = items.chunks(BLOCK_ITEMS).step_by(step);
    let (mut bits, mut sampled_count) = (0, 0);
    for block in sampled {
        bits += estimate_block_bits(block);
        sampled_count += block.len();
    }
    (bits * items.len()).checked_div(sampled_count).unwrap_or(0)
}

/// Blocks that an estimate looks at.
const ESTIMATE_BLOCKS: usize = 8;
/// Blocks that a glance looks at.
const GLANCE_BLOCKS: usize = 2;
/// Counts of widths that an estimate keeps, for every fourth item each.
///
/// Neighbours mostly have the same width, and adding to a count waits for the one before.
const COUNT_LANES: usize = 4;
/// Bits of a block before its items, as the estimate assumes.
const BLOCK_HEAD_BITS: usize = 16;
/// Bits of a patch that the estimate assumes beyond the bits that stick out.
const PATCH_BITS: usize = 12;

fn estimate_block_bits(items: &[i64]) -> usize {
    let pivot = pivot_of(items);
    let mut lanes = [[0u8; 65]; COUNT_LANES];
    let mut all_bits = 0;
    let quads = items.chunks_exact(COUNT_LANES);
    let rest = quads.remainder();
    let mut count = |lane: &mut [u8; 65], item: i64| {
        let distance = zigzag(item.wrapping_sub(pivot));
        all_bits |= distance;
        lane[width_of(distance) as usize] += 1;
    };
    for quad in quads {
        for (lane, &item) in lanes.iter_mut().zip(quad) {
            count(lane, item);
        }
    }
    rest.iter().for_each(|&item| count(&mut lanes[0], item));
    if all_bits == 0 {
        return BLOCK_HEAD_BITS;
    }
    let counts: [u8; 65] = std::array::from_fn(|width| lanes.iter().map(|lane| lane[width]).sum());
    let equal = usize::from(counts[0]);
    // Patches for widths below the one tried: how many, and by how many bits in sum they stick out.
    let (mut over_count, mut over_bits) = (0usize, 0usize);
    let mut best_per_item = usize::MAX;
    let mut best_sparse = usize::MAX;
    for width in (0..=width_of(all_bits) as usize).rev() {
        let patch_bits = over_count * PATCH_BITS + over_bits;
        best_per_item = best_per_item.min(items.len() * width + patch_bits);
        if width > 0 {
            best_sparse = best_sparse.min((items.len() - equal) * width + patch_bits);
        }
        over_count += usize::from(counts[width]);
        over_bits += over_count;
        if 2 * over_count > items.len() - equal {
            break;
        }
    }
    BLOCK_HEAD_BITS + best_per_item.min(items.len() + 16 + best_sparse)
}

/// Middle one of five items.
fn pivot_of(items: &[i64]) -> i64 {
    let at = |fifth: usize| items[(items.len() - 1) * fifth / 4];
    let mut five = [at(0), at(1), at(2), at(3), at(4)];
    five.sort_unstable();
    five[2]
}

#[cfg(test)]
mod tests;
