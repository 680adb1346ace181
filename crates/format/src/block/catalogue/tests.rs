//! Catalogue files written and read, cut at each byte, with flipped bits.

use super::*;

fn record(n: u128, parents: &[u128]) -> BlockRecord {
    BlockRecord {
        ulid: Ulid::new(1000, n),
        oldest_source: Ulid::new(900, n),
        min_time: -5,
        max_time: i64::MAX,
        size_bytes: 1 << 40,
        immutable_bytes: (n != 2).then_some(ImmutableBytes { index: 9, chunks: 1 << 39 }),
        series_count: 7,
        sample_count: (n != 2).then_some(1 << 40),
        tombstone_count: n as u64,
        compaction_failed: n.is_multiple_of(2),
        split_set: (n == 3).then(|| Ulid::new(1, 2)),
        parents: parents.iter().map(|&p| Ulid::new(1, p)).collect(),
    }
}

fn file() -> (Vec<u8>, Vec<(String, Change)>) {
    let mut out = encode_header(77).to_vec();
    let mut want = Vec::new();
    for (sequence, tenant) in (1..).zip(["a", "b", "a"]) {
        let mut payload = Vec::new();
        put_tenant(tenant, &mut payload);
        for n in 0..4 {
            let one = record(u128::from(sequence) + n, &[1, 2, 3][..n as usize % 4]);
            put_add(&one, &mut payload);
            want.push((tenant.to_owned(), Change::Add(one)));
        }
        put_remove(Ulid::new(3, 4), &mut payload);
        want.push((tenant.to_owned(), Change::Remove(Ulid::new(3, 4))));
        put_frame(77, sequence, &payload, &mut out);
    }
    (out, want)
}

fn changes(bytes: &[u8]) -> Result<(Contents, Vec<(String, Change)>), DecodeError> {
    let mut found = Vec::new();
    let contents = read(bytes, &mut |tenant, change| found.push((tenant.to_owned(), change)))?;
    Ok((contents, found))
}

#[test]
fn what_was_written_is_read() {
    let (bytes, want) = file();
    let (contents, found) = changes(&bytes).expect("reads");
    assert_eq!((contents.key, contents.sequence, contents.end), (77, 3, bytes.len()));
    assert!(contents.damages.is_empty());
    assert_eq!(found, want);
}

#[test]
fn no_cut_and_no_flipped_bit_goes_unnoticed() {
    let (bytes, want) = file();
    for len in 0..bytes.len() {
        let Ok((contents, found)) = changes(&bytes[..len]) else { continue };
        assert_eq!(found, want[..found.len()], "{len}");
        // A cut in the zeros after the last frame takes nothing.
        assert!(found.len() < want.len() || bytes[len..].iter().all(|&b| b == 0), "{len}");
        assert!(contents.end <= len.next_multiple_of(8), "{len}");
    }
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        if let Ok((contents, found)) = changes(&bytes) {
            // Only the zeros between frames are under no checksum.
            assert!(!contents.damages.is_empty() || found == want, "byte {at}");
        }
    }
}

#[test]
fn files_of_the_first_version_are_read_and_later_ones_refused() {
    let (bytes, want) = file();
    let with_version = |version: u16| {
        let mut bytes = bytes.clone();
        bytes[4..6].copy_from_slice(&version.to_le_bytes());
        let sum = crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&sum.to_le_bytes());
        changes(&bytes)
    };
    // A record without sizes has the same bytes in both versions.
    let (contents, found) = with_version(1).expect("reads");
    assert!(contents.is_earlier_version && found == want);
    assert!(!changes(&bytes).expect("reads").0.is_earlier_version);
    assert!(with_version(3).is_err());
}
