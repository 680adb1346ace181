//! Files built by hand, and damage.

use super::*;

/// First and last time of a block, and its bytes.
type NewBlock<'a> = (i64, i64, &'a [u8]);

/// A key and the blocks that could be read.
type FoundKey = (Vec<u8>, Vec<Vec<u8>>);

/// A file of keys with float blocks.
fn file(keys: &[(&str, &[NewBlock<'_>])]) -> Vec<u8> {
    let mut bytes = [&MAGIC.to_be_bytes()[..], &[VERSION]].concat();
    let mut index = Vec::new();
    for (key, blocks) in keys {
        index.extend_from_slice(&(key.len() as u16).to_be_bytes());
        index.extend_from_slice(key.as_bytes());
        index.push(0);
        index.extend_from_slice(&(blocks.len() as u16).to_be_bytes());
        for (min_time, max_time, block) in *blocks {
            index.extend_from_slice(&min_time.to_be_bytes());
            index.extend_from_slice(&max_time.to_be_bytes());
            index.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
            index.extend_from_slice(&(block.len() as u32 + 4).to_be_bytes());
            bytes.extend_from_slice(&crc32(block).to_be_bytes());
            bytes.extend_from_slice(block);
        }
    }
    let index_start = bytes.len() as u64;
    bytes.extend_from_slice(&index);
    bytes.extend_from_slice(&index_start.to_be_bytes());
    bytes
}

fn sample() -> Vec<u8> {
    file(&[("a#!~#v", &[(1, 5, b"first"), (6, 9, b"second block")]), ("b#!~#v", &[(-3, 4, b"third")])])
}

/// Keys with the blocks that can be read, and the number of errors.
fn read_all(bytes: &[u8]) -> Option<(Vec<FoundKey>, usize)> {
    let file = TsmFile::open(bytes).ok()?;
    let (mut keys, mut errors) = (Vec::new(), 0);
    for key in file.keys() {
        let Ok(key) = key else {
            errors += 1;
            continue;
        };
        let mut blocks = Vec::new();
        for entry in key.entries() {
            match file.block(&entry) {
                Ok(block) => blocks.push(block.to_vec()),
                Err(_) => errors += 1,
            }
        }
        keys.push((key.key.to_vec(), blocks));
    }
    Some((keys, errors))
}

#[test]
fn a_file_has_keys_with_blocks() {
    let bytes = sample();
    let file = TsmFile::open(&bytes).unwrap();
    let keys: Vec<IndexKey<'_>> = file.keys().collect::<Result<_, _>>().unwrap();
    assert_eq!(keys.iter().map(|key| key.key).collect::<Vec<_>>(), [&b"a#!~#v"[..], b"b#!~#v"]);
    let entries: Vec<IndexEntry> = keys[0].entries().collect();
    assert_eq!(entries[0], IndexEntry { min_time: 1, max_time: 5, offset: 5, size: 9 });
    assert_eq!(file.block(&entries[1]).unwrap(), b"second block");
    assert_eq!(keys[1].entries().next().unwrap().min_time, -3);
    assert_eq!(file.key_at(keys[1].offset).unwrap().key, keys[1].key);
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let bytes = sample();
    for end in 0..bytes.len() {
        // By chance, the end may look like an offset; keys are not found there.
        let found = read_all(&bytes[..end]);
        assert!(found.is_none_or(|(keys, errors)| errors == 1 && keys.is_empty()), "{end}");
    }
}

/// A flipped bit costs one block, keys from it on, or the file; only a key itself has no checksum.
#[test]
fn a_flipped_bit_is_contained() {
    let bytes = sample();
    let (whole, _) = read_all(&bytes).unwrap();
    let index_start = TsmFile::open(&bytes).unwrap().index_start;
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            match read_all(&damaged) {
                None => assert!(at < HEADER_BYTES || at >= bytes.len() - FOOTER_BYTES, "{at}"),
                Some((keys, errors)) if at < index_start => {
                    assert_eq!(errors, 1, "{at}");
                    let count = |keys: &[FoundKey]| keys.iter().map(|key| key.1.len()).sum::<usize>();
                    assert_eq!(count(&keys) + 1, count(&whole));
                }
                Some(_) => {}
            }
        }
    }
}

#[test]
fn an_index_that_points_outside_of_the_blocks_is_damage() {
    let bytes = sample();
    let file = TsmFile::open(&bytes).unwrap();
    for (offset, size) in [(0, 9), (4, 9), (u64::MAX, 9), (5, u32::MAX), (5, 0), (5, 3), (60, 9)] {
        let entry = IndexEntry { min_time: 0, max_time: 0, offset, size };
        assert!(file.block(&entry).is_err(), "{entry:?}");
    }
}
