//! File of texts: frames of texts, as in the WAL, whose segments may have been removed.
//!
//! Invariant: readers take untrusted bytes and never panic. Layout: `docs/head/wal.md`.
//! Not here: the payload of a frame (`wal`), schedule of writing a file (`head`).

use chronolith_base::crc::crc32c;

use super::wal::{FRAME_HEADER_BYTES, FrameHeader, KIND_TEXTS, STRIPE_NONE};

/// Appends a frame of texts to the bytes of a file of texts; `frame_idx` counts from 0.
pub fn put_frame(key: u128, frame_idx: u64, payload: &[u8], out: &mut Vec<u8>) {
    let header =
        FrameHeader { sequence: frame_idx, ..FrameHeader::for_payload(KIND_TEXTS, STRIPE_NONE, payload) };
    header.put_frame(key, payload, out);
}

/// Returns the payloads of the undamaged frames of a file of texts, in order. A frame with a damaged payload
/// is left out; a damaged header, or the end of a torn write, ends the file.
pub fn frames(bytes: &[u8], key: u128) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    let next = move || {
        let header = FrameHeader::decode(rest, key).filter(|header| header.kind == KIND_TEXTS)?;
        let payload = rest.get(FRAME_HEADER_BYTES..)?.get(..header.payload_len as usize)?;
        rest = rest.get(header.frame_len()..).unwrap_or(&[]);
        Some((header, payload))
    };
    let frames = std::iter::from_fn(next);
    frames.filter(|(header, payload)| header.payload_crc == crc32c(payload)).map(|(_, payload)| payload)
}

#[cfg(test)]
mod tests {
    use super::super::wal::{encode_texts, put_text};
    use super::*;

    fn payload(id: u64) -> Vec<u8> {
        let mut out = Vec::new();
        encode_texts("tenant", 0, &mut out);
        put_text(id, b"text", &mut out);
        out
    }

    #[test]
    fn a_file_is_read_up_to_its_damage() {
        let payloads: Vec<Vec<u8>> = (0..4).map(payload).collect();
        let mut file = Vec::new();
        for (idx, payload) in (0..).zip(&payloads) {
            put_frame(5, idx, payload, &mut file);
        }
        let found = |bytes: &[u8], key| frames(bytes, key).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(found(&file, 5), payloads);
        assert!(found(&file, 6).is_empty(), "of another log");
        let frame_len = file.len() / 4;
        for len in 0..file.len() {
            let whole = (len / frame_len).max(found(&file[..len], 5).len());
            assert_eq!(found(&file[..len], 5), payloads[..whole]);
            assert!(whole <= len / frame_len + 1);
        }
        let mut damaged = file.clone();
        damaged[frame_len + FRAME_HEADER_BYTES + 2] ^= 1;
        assert_eq!(found(&damaged, 5), [&payloads[..1], &payloads[2..]].concat());
        damaged[2 * frame_len] ^= 1;
        assert_eq!(found(&damaged, 5), payloads[..1]);
    }
}
