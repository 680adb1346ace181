//! Every file of a small block cut at every byte and with every byte flipped: an error or the right answer.

use super::*;

const CHECKED_FILES: [&str; 3] = ["index", "chunks/000001", "tombstones"];

/// File and item of an error: a range ends before its file does, so that a forged length may lead to another
/// kind of damage to the same item.
fn damaged_item(message: &str) -> String {
    message.split(" at offset").next().unwrap_or_default().to_owned()
}

/// Reads all that can be read, from maps and by range, which must not differ. Returns the number of series.
fn read_undamaged(env: &Env, dir: &Path, want: &Bits, case: &str) -> Option<usize> {
    let (mapped, ranged) = (Block::open(env, dir), open_ranged(env, dir).map(|(block, _)| block));
    let text =
        |block: &Result<_, BlockError>| block.as_ref().err().map(|error| damaged_item(&error.to_string()));
    if text(&mapped).is_some_and(|error| error.contains("chunk segment")) {
        // By range, headers of segments are not read: each chunk has its checksum.
        ranged.ok().and_then(|block| read_block(env, &block, want, case));
        return None;
    }
    assert_eq!(text(&mapped), text(&ranged), "{case}");
    let counts = [mapped, ranged].map(|block| read_block(env, &*block.ok()?, want, case));
    assert_eq!(counts[0], counts[1], "{case}: read by range");
    counts[0]
}

/// Series that fail are left out, series that are read must be right.
fn read_block(env: &Env, block: &Block, want: &Bits, case: &str) -> Option<usize> {
    let damages = block.verify();
    let all = Selector { matchers: &[], range: TimeRange::ALL };
    let _ = block.label_names(&all, 0, &context(env));
    let _ = block.label_values("i", &all, 0, &context(env));
    let mut batches = block.select(&all, &context(env)).ok()?;
    let mut found = Vec::new();
    while let Ok(true) = batches.next_batch(&mut found) {}
    let mut right = 0;
    for series in found {
        let mut columns = Columns::default();
        let wanted = want.get(&series.labels).unwrap_or_else(|| panic!("{case}: made up {}", series.labels));
        let done = series.samples.read(TimeRange::ALL, &mut columns);
        let samples: Vec<_> =
            columns.times.iter().copied().zip(columns.values.iter().map(|v| v.to_bits())).collect();
        assert!(wanted.starts_with(&samples), "{case}: wrong samples");
        if done.is_ok() {
            assert_eq!(samples.len(), wanted.len(), "{case}: samples lost silently");
            right += 1;
        }
    }
    assert!(right == want.len() || !damages.is_empty(), "{case}: damage that verify does not see");
    Some(right)
}

fn overwrite(env: &Env, path: &Path, bytes: &[u8]) {
    env.disk.create(path).unwrap().write_at(bytes, 0).unwrap();
}

#[test]
fn cut_and_flipped_files_never_give_a_wrong_answer() {
    let want = some_series(3, 130);
    let (env, dir) = fake_block(&want);
    for file in CHECKED_FILES {
        let path = dir.join(file);
        let good = env.disk.read(&path).unwrap();
        for at in 0..good.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                overwrite(&env, &path, &bad);
                let right = read_undamaged(&env, &dir, &want, &format!("{file} byte {at} ^ {flip:#x}"));
                // A damaged chunk costs its own series only.
                assert!(!file.starts_with("chunks") || at < 8 || right >= Some(want.len() - 1), "byte {at}");
            }
            overwrite(&env, &path, &good[..at]);
            let right = read_undamaged(&env, &dir, &want, &format!("{file} cut at {at}"));
            assert!(right < Some(want.len()), "{file} cut at {at} is noticed");
        }
        overwrite(&env, &path, &good);
    }
    assert_eq!(read_undamaged(&env, &dir, &want, "whole"), Some(3));
}

#[test]
fn a_cut_or_flipped_meta_json_is_an_error_or_harmless() {
    let want = some_series(2, 2);
    let (env, dir) = fake_block(&want);
    let path = dir.join("meta.json");
    let good = env.disk.read(&path).unwrap();
    for at in 0..good.len() {
        overwrite(&env, &path, &good[..at]);
        assert!(Block::open(&env, &dir).is_err(), "cut at {at}");
        for flip in [0x01, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            overwrite(&env, &path, &bad);
            // `meta.json` has no checksum: another digit is another number. No sample may be made up, though.
            let Ok(block) = Block::open(&env, &dir) else { continue };
            let found = read_all(&env, &block).unwrap();
            assert!(found.iter().all(|(labels, samples)| want.get(labels) == Some(samples)), "byte {at}");
        }
    }
}

/// The chunks of another block have right checksums: their samples outside the times of the index were left
/// out in silence, so that answers were short.
#[test]
fn chunks_of_another_time_are_damage() {
    let series = some_series(6, 300);
    for shift_ms in [1, -1, 10, 999, -1000, 60_000, -299_000, 299_000, 3_600_000, -7_200_000] {
        let (env, dir) = fake_block(&series);
        let later = |(labels, samples): (&Labels, &Vec<(i64, u64)>)| {
            (labels.clone(), samples.iter().map(|(time, bits)| (time + shift_ms, *bits)).collect())
        };
        let range = TimeRange::new(WINDOW.start + shift_ms, WINDOW.end + shift_ms);
        let other: Bits = series.iter().map(later).collect();
        let other = block_dir(&write(&env, Path::new(DIR), &other, range).expect("a block"));
        let bytes = env.disk.read(&other.join("chunks/000001")).expect("read");
        overwrite(&env, &dir.join("chunks/000001"), &bytes);
        let Ok(block) = Block::open(&env, &dir) else { continue };
        let selector = Selector { matchers: &[], range: TimeRange::ALL };
        let mut batches = block.select(&selector, &context(&env)).expect("selects");
        let mut read = Vec::new();
        while batches.next_batch(&mut read).expect("a batch") {}
        assert_eq!(read.len(), series.len());
        for one in read {
            let error = one.samples.read(TimeRange::ALL, &mut Columns::default());
            assert!(matches!(error, Err(QueryError::Corrupt { .. })), "{shift_ms}: {:?}", one.labels);
        }
    }
}
