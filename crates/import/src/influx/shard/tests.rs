//! Limits of memory: the blocks are the same, whatever they are.

use std::collections::BTreeMap;

use super::*;

const DAY_NS: i64 = 86_400_000_000_000;

/// A write of three points in each of eight days, of a key.
fn write(key: &str, value: f64) -> Vec<u8> {
    let mut plain = vec![1];
    plain.extend_from_slice(&(key.len() as u16).to_be_bytes());
    plain.extend_from_slice(key.as_bytes());
    plain.extend_from_slice(&24u32.to_be_bytes());
    for at in 0..24i64 {
        plain.extend_from_slice(&(DAY_NS * 100 + at * DAY_NS / 3).to_be_bytes());
        plain.extend_from_slice(&(value + at as f64).to_bits().to_be_bytes());
    }
    plain
}

fn segment(writes: &[Vec<u8>]) -> Vec<u8> {
    let compressed = snap::raw::Encoder::new().compress_vec(&writes.concat()).unwrap();
    [&[1u8][..], &(compressed.len() as u32).to_be_bytes(), &compressed].concat()
}

/// Samples and ranges of the blocks of an import, and the counts of points.
fn import_with(limits: ShardLimits) -> (BTreeMap<i64, (u64, u64)>, FieldCounts) {
    let (env, _, _) = Env::fake(1_800_000_000_000, 7);
    let dir = Path::new("/blocks");
    env.disk.create_dir_all(dir).unwrap();
    let mut files = ShardFiles::default();
    for (idx, value) in [0.5, 100.5].into_iter().enumerate() {
        let path = PathBuf::from(format!("/_0000{idx}.wal"));
        let writes: Vec<Vec<u8>> = (0..5).map(|host| write(&format!("m,host={host}#!~#v"), value)).collect();
        let bytes = segment(&writes);
        env.disk.create(&path).unwrap().write_at(&bytes, 0).unwrap();
        files.wal.push(SourceFile { path, len: bytes.len() as u64 });
    }
    let announce: Announce = Box::new(|_| Ok(()));
    let target = ShardTarget { env: &env, blocks_dir: dir, newest: None, announce, limits };
    let mut report = InfluxReport::default();
    let (written, counts) = import(target, &files, &[], &mut report, &mut |_| {}).unwrap();
    let (blocks, damaged) = chronolith_block::open_dir(&env, dir);
    assert!(damaged.is_empty() && report.damages.is_empty());
    assert_eq!((blocks.len(), written.sample_count), (written.ulids.len(), 120));
    let of_block =
        |meta: &chronolith_format::block::meta::BlockMeta| (meta.stats.num_series, meta.stats.num_samples);
    (blocks.iter().map(|block| (block.meta().min_time, of_block(block.meta()))).collect(), counts)
}

#[test]
fn windows_and_the_wal_are_read_in_groups() {
    let (blocks, counts) = import_with(ShardLimits::default());
    assert_eq!(blocks.values().copied().collect::<Vec<_>>(), [(5, 15); 8]);
    assert_eq!(counts["m"]["v"], [120, 0, 0, 0, 0]);
    for (open_bytes_max, wal_bytes_max) in
        [(0, u64::MAX), (u64::MAX, 0), (0, 0), (2 * 5 * SERIES_BYTES, 3000)]
    {
        let limits = ShardLimits { open_bytes_max, wal_bytes_max };
        assert_eq!(import_with(limits), (blocks.clone(), counts.clone()), "{limits:?}");
    }
}
