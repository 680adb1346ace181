//! Blocks: every width, patches, sparse ones, cut and forged bytes.

use chronolith_base::Rng;

use super::*;

fn packed(items: &[i64]) -> Vec<u8> {
    let mut out = Vec::new();
    put_blocks(items, &mut out);
    out
}

fn unpacked(bytes: &[u8], count: usize) -> Result<Vec<i64>, DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let mut items = [0; BLOCK_ITEMS];
    let mut out = Vec::new();
    while out.len() < count {
        let len = (count - out.len()).min(BLOCK_ITEMS);
        read_block(&mut reader, len, &mut items)?;
        out.extend_from_slice(&items[..len]);
    }
    assert!(reader.is_empty());
    Ok(out)
}

#[track_caller]
fn check(items: &[i64], bytes_max: usize) {
    let bytes = packed(items);
    assert_eq!(unpacked(&bytes, items.len()).unwrap(), items);
    assert!(bytes.len() <= bytes_max, "{} bytes, at most {bytes_max} expected", bytes.len());
}

#[test]
fn every_width_and_length_round_trips() {
    let rng = Rng::from_seed(1);
    for width in 0..=64u32 {
        for count in [1usize, 2, 7, 8, 9, 63, 120, 127, 128, 129, 300] {
            let base = (rng.next_u64() >> rng.below(64)).cast_signed();
            let item = || rng.next_u64().checked_shr(64 - width).unwrap_or(0).cast_signed();
            let items: Vec<i64> = (0..count).map(|_| base.wrapping_add(item())).collect();
            let blocks = count.div_ceil(BLOCK_ITEMS);
            check(&items, blocks * 12 + (count * width as usize).div_ceil(8));
        }
    }
}

#[test]
fn outliers_are_patched_and_rare_changes_sparse() {
    let rng = Rng::from_seed(2);
    let mut items: Vec<i64> = (0..128).map(|_| rng.below(8) as i64).collect();
    items[17] = i64::MIN;
    items[90] = 1 << 40;
    check(&items, 48 + 30);
    let mut rare = vec![0i64; 128];
    for at in (0..128).step_by(6) {
        rare[at] = (rng.next_u64() >> 22).cast_signed();
    }
    check(&rare, 16 + 12 + (22 * 42usize).div_ceil(8));
    assert_eq!(packed(&rare)[0], SPARSE);
    check(&[i64::MIN, i64::MAX, 0, -1], 40);
}

#[test]
fn cut_blocks_are_errors() {
    let mut items: Vec<i64> = (0..128).map(|i| i % 7).collect();
    items[5] = i64::MAX;
    let mut rare = vec![3i64; 100];
    (rare[1], rare[50]) = (1 << 50, -(1 << 60));
    for items in [items, rare] {
        let bytes = packed(&items);
        for len in 0..bytes.len() {
            assert!(unpacked(&bytes[..len], items.len()).is_err(), "{len}");
        }
    }
}

#[test]
fn forged_blocks_are_errors() {
    let refused = |bytes: &[u8]| assert!(unpacked(bytes, 8).is_err(), "{bytes:?}");
    refused(&[65, 0]);
    refused(&[126, 0]);
    refused(&[64 | PATCHED, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    refused(&[SPARSE, 0, 0xff, SPARSE, 0, 0xff, 0, 0]);
    refused(&[PATCHED, 0, 1, 8, 2]);
    assert_eq!(unpacked(&[PATCHED, 0, 1, 7, 2], 8).unwrap()[7], 1);
}

#[test]
fn equal_items_cost_a_head() {
    assert_eq!(estimate_bits(&[7; 100]), BLOCK_HEAD_BITS);
}

/// A block as the search alone writes it.
fn searched(items: &[i64]) -> Vec<u8> {
    let mut out = Vec::new();
    put_searched(items, &mut out);
    out
}

#[test]
fn a_block_that_is_not_searched_has_the_plan_of_the_search() {
    let rng = Rng::from_seed(3);
    let (mut excluded_count, rounds) = (0, if cfg!(miri) { 300 } else { 60_000 });
    for _ in 0..rounds {
        let len = 1 + rng.below(BLOCK_ITEMS as u64) as usize;
        let width = rng.below(65) as u32;
        let any = |width: u32| rng.next_u64().checked_shr(64 - width).unwrap_or(0);
        let base = any(rng.below(65) as u32).cast_signed();
        // Uniform, halves with fewer bits, sums of several, a few outliers, few distinct ones.
        let shape = rng.below(5);
        let outlier_part = 2 + rng.below(60);
        let item = || match shape {
            0 => any(width),
            1 => any(width) & any(width),
            2 => (0..4).map(|_| any(width) / 4).sum(),
            3 if rng.below(outlier_part) == 0 => any(width),
            3 => any(width.saturating_sub(rng.below(12) as u32)),
            _ => rng.below(1 + u64::from(width)),
        };
        let items: Vec<i64> = (0..len).map(|_| base.wrapping_add(item().cast_signed())).collect();
        let mut written = Vec::new();
        put_block(&items, &mut written);
        let (low, high) = (items.iter().min().copied().unwrap(), items.iter().max().copied().unwrap());
        let width = width_of(distance(low, high));
        if width <= BUCKETS_LOG {
            continue;
        }
        assert_eq!(written, searched(&items), "{items:?}");
        let unpatched = Plan::unpatched(len, low, width);
        excluded_count += u32::from(Histogram::of(&items, low, width).excludes_savings(unpatched));
    }
    assert!(excluded_count > rounds / 10, "only {excluded_count} blocks are not searched");
}
