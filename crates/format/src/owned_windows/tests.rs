//! Files round-trip; damage of any byte is noticed; the golden file decodes to the same content.

use chronolith_model::TenantId;
use proptest::prelude::{any, prop};

use super::*;

fn file() -> OwnedWindowsFile {
    let partition = LogPartition { topic: TopicId(*b"a topic's number"), number: PartitionId(3) };
    let tenant = |name| StoreId::from(&TenantId::new(name).expect("an id"));
    let open = |start, first_offset| OpenWindow { start, first_offset, opened_ms: 1_800_000_000_000 };
    let cut = |offset, has_later, windows| HeldCut {
        offset,
        first_offset: offset / 2,
        time_ms: 1_800_000_000_001,
        has_later,
        windows,
    };
    OwnedWindowsFile {
        position: partition.at(u64::MAX - 5),
        stores: vec![
            StoreWindows {
                store: tenant("a"),
                open: vec![open(-7_200_000, 17), open(1_799_993_600_000, 400)],
                cuts: vec![cut(90, false, vec![i64::MIN, 0]), cut(91, true, vec![7_200_000])],
            },
            StoreWindows { store: tenant("b"), open: Vec::new(), cuts: vec![cut(91, false, vec![0])] },
        ],
    }
}

fn encoded(file: &OwnedWindowsFile) -> Vec<u8> {
    let mut out = Vec::new();
    file.encode(&mut out);
    out
}

#[test]
fn files_round_trip() {
    let empty = OwnedWindowsFile { stores: Vec::new(), ..file() };
    for one in [file(), empty] {
        assert_eq!(OwnedWindowsFile::decode(&encoded(&one)), Ok(one));
    }
}

#[test]
fn no_cut_no_flipped_bit_and_no_further_byte_goes_unnoticed() {
    let bytes = encoded(&file());
    for at in 0..bytes.len() {
        assert!(OwnedWindowsFile::decode(&bytes[..at]).is_err(), "cut at {at}");
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(OwnedWindowsFile::decode(&damaged).is_err(), "byte {at}");
    }
    assert!(OwnedWindowsFile::decode(&[&bytes[..], b"x"].concat()).is_err());
}

proptest::proptest! {
    #[test]
    fn forged_files_end_without_panic(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        junk in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut forged = encoded(&file());
        forged.truncate(forged.len() - 4);
        let idx = at.index(forged.len());
        forged[idx] = byte;
        for mut content in [forged.clone(), [&forged[..36], &junk].concat()] {
            let sum = crc32c(&content).to_le_bytes();
            content.extend_from_slice(&sum);
            if let Ok(file) = OwnedWindowsFile::decode(&content) {
                assert_eq!(OwnedWindowsFile::decode(&encoded(&file)), Ok(file));
            }
        }
    }
}

const GOLDEN_1: &[u8] = include_bytes!("../../testdata/owned_windows/version-1.owned_windows");

#[test]
fn golden_files_read_as_ever() {
    assert_eq!(encoded(&file()), GOLDEN_1, "the bytes that are written have changed: that needs a version");
    assert_eq!(OwnedWindowsFile::decode(GOLDEN_1), Ok(file()));
}
