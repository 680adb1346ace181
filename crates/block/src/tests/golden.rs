//! Blocks of Prometheus read from memory.

use std::path::Path;

use super::*;
use crate::open_dir;

const TEXT: &str = include_str!("../../../format/testdata/golden/floats.om");

macro_rules! golden {
    ($name:literal) => {
        [
            (
                "meta.json",
                &include_bytes!(concat!("../../../format/testdata/golden/", $name, "/meta.json"))[..],
            ),
            ("index", include_bytes!(concat!("../../../format/testdata/golden/", $name, "/index"))),
            ("tombstones", include_bytes!(concat!("../../../format/testdata/golden/", $name, "/tombstones"))),
            (
                "chunks/000001",
                include_bytes!(concat!("../../../format/testdata/golden/", $name, "/chunks/000001")),
            ),
        ]
    };
}

fn load(env: &Env, files: &[(&str, &[u8])]) -> PathBuf {
    let dir = Path::new(DIR).join("01M7WK3E014HA48J5BYXZ0VZ3Q");
    env.disk.create_dir_all(&dir.join("chunks")).unwrap();
    for (name, bytes) in files {
        env.disk.create(&dir.join(name)).unwrap().write_at(bytes, 0).unwrap();
    }
    dir
}

/// Native histograms of the block of Prometheus 3.
const HISTOGRAMS: usize = 80;

#[test]
fn blocks_of_prometheus_hold_what_their_text_says() {
    for (files, histogram_count) in [(golden!("prometheus-2.42"), 0), (golden!("prometheus-3"), HISTOGRAMS)] {
        let (env, _, _) = Env::fake(0, 1);
        load(&env, &files);
        let (blocks, failed) = open_dir(&env, Path::new(DIR));
        assert!(failed.is_empty(), "{failed:?}");
        let block = &blocks[0];
        assert_eq!(block.verify(), []);
        let mut found = read_all(&env, block).unwrap();
        let floats = bits_of(&text::parse(TEXT));
        let histograms: Vec<_> = found.extract_if(.., |labels, _| !floats.contains_key(labels)).collect();
        assert_eq!(found, floats);
        assert_eq!(histograms.iter().map(|(_, samples)| samples.len()).sum::<usize>(), histogram_count);
        assert_eq!(block.size_bytes(), files.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
        assert_eq!(block.range(), TimeRange::new(1_600_000_000_000, 1_600_004_485_001));
    }
}

#[test]
fn a_block_without_tombstones_file_opens() {
    let (env, _, _) = Env::fake(0, 1);
    let dir = load(&env, &golden!("prometheus-2.42"));
    env.disk.remove_file(&dir.join("tombstones")).unwrap();
    assert_eq!(Block::open(&env, &dir).unwrap().verify(), []);
}

#[test]
fn writing_the_content_again_gives_the_same_index_and_samples() {
    let (env, _, _) = Env::fake(0, 1);
    let files = golden!("prometheus-2.42");
    let dir = load(&env, &files);
    let series = read_all(&env, &Block::open(&env, &dir).unwrap()).unwrap();
    let meta = write(&env, Path::new("/again"), &series, WINDOW).unwrap();
    let again = Block::open(&env, &Path::new("/again").join(meta.ulid.to_string())).unwrap();
    assert_eq!(read_all(&env, &again).unwrap(), series);
    assert_eq!(again.verify(), []);
    // The format tests compare bytes; chunk offsets differ here by the zero bytes of 2.42, so only symbols
    // do.
    let ours = env.disk.read(&again.dir().join("index")).unwrap();
    assert_eq!(ours[..392], files[1].1[..392], "header and symbols");
    assert_eq!(meta.stats.num_chunks, 82);
    assert_eq!(meta.stats.num_samples, 898);
}
