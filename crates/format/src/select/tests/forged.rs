//! Damaged, forged and cut bytes.

use super::*;
use crate::select::frame;

fn answers() -> Vec<Vec<u8>> {
    let mut encoder = AnswerEncoder::new(header(AnswerForm::Series));
    for id in 0..3 {
        encoder.start_series(&labels(id), ColumnType::Float).expect("short");
        encoder.put_columns(&mixed()).expect("ascends");
        encoder.end_series();
    }
    encoder.start_series(&labels(9), ColumnType::Text).expect("short");
    let texts: Vec<Arc<[u8]>> = vec![Arc::from(&b"a"[..]), Arc::from(&b""[..]), Arc::from(&b"a"[..])];
    encoder.put_texts(&[1, 2, 5], &texts).expect("ascends");
    encoder.end_series();
    encoder.put_warnings(&AnswerWarnings { is_partial: false, texts: vec!["w".to_owned()] });
    let mut list = AnswerEncoder::new(header(AnswerForm::List));
    list.put_list(&["a".to_owned(), "b".to_owned()]).expect("short");
    let mut estimate = AnswerEncoder::new(header(AnswerForm::Estimate));
    estimate.put_estimate(Some(ReadEstimate { series: 5, samples: 6 }));
    let failed = AnswerEncoder::new(header(AnswerForm::Series)).fail(&failures()[3]);
    vec![encoder.finish(), list.finish(), estimate.finish(), failed]
}

/// Kinds and payloads of the frames of an answer.
fn frames_of(answer: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut reader = frame::FrameReader::default();
    reader.push(answer);
    let mut frames = Vec::new();
    while let Some(one) = reader.next().expect("a frame") {
        frames.push((one.kind, one.payload));
    }
    frames
}

fn answer_of(frames: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    frames.iter().for_each(|(kind, payload)| frame::put_frame(*kind, payload, &mut out));
    out
}

#[test]
fn an_answer_that_is_cut_has_no_end() {
    for bytes in answers() {
        let whole = decode(&bytes).expect("an answer");
        assert!(whole.end.is_some() || whole.failure.is_some());
        for len in 0..bytes.len() {
            let found = decode(&bytes[..len]).expect("no damage");
            assert!(found.end.is_none() && found.failure.is_none(), "{len} of {}", bytes.len());
        }
        assert!(decode(&[&bytes[..], &[0]].concat()).is_err(), "a byte after the end");
    }
}

#[test]
fn each_flipped_bit_is_damage_or_leaves_no_end() {
    for bytes in answers() {
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            if let Ok(found) = decode(&damaged) {
                assert!(found.end.is_none() && found.failure.is_none(), "byte {at}");
            }
        }
    }
}

/// The same with right checksums: changed and cut payloads end with an error or another answer.
#[test]
fn forged_frames_end_without_panic() {
    for bytes in answers() {
        let frames = frames_of(&bytes);
        for idx in 0..frames.len() {
            for at in 0..frames[idx].1.len() {
                for byte in [0, 1, 0x7f, 0x80, 0xff, frames[idx].1[at].wrapping_add(1)] {
                    let mut forged = frames.clone();
                    forged[idx].1[at] = byte;
                    let _ = decode(&answer_of(&forged));
                }
                let mut cut = frames.clone();
                cut[idx].1.truncate(at);
                let _ = decode(&answer_of(&cut));
            }
            let mut without = frames.clone();
            without.remove(idx);
            assert!(
                decode(&answer_of(&without)).is_err() || idx + 1 == frames.len() || frames[idx].0 >= 3,
                "frame {idx} is missing"
            );
            let mut other_kind = frames.clone();
            other_kind[idx].0 = 200;
            assert!(decode(&answer_of(&other_kind)).is_err());
        }
    }
}

#[test]
fn a_length_beyond_the_limit_is_refused_before_its_bytes() {
    let mut bytes = vec![frame::KIND_HEADER];
    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    let error = decode(&bytes).expect_err("too long").to_string();
    assert_eq!(error, "frame of a select answer at offset 0: expected at most 32 MiB, found 4294967295");
}

#[test]
fn counts_at_the_end_are_those_of_the_series() {
    let mut frames = frames_of(&answers()[0]);
    let end = frames.len() - 1;
    frames[end].1[0] += 1;
    assert!(decode(&answer_of(&frames)).is_err());
    // A frame of series twice: its times and counts are there, the end is another one.
    let mut frames = frames_of(&answers()[0]);
    let series = frames.iter().position(|(kind, _)| *kind == frame::KIND_SERIES).expect("series");
    frames.insert(series, frames[series].clone());
    assert!(decode(&answer_of(&frames)).is_err());
}

#[test]
fn damaged_calls_are_refused_and_other_versions_are_named() {
    let bytes = encode_call(&call());
    for at in 0..bytes.len() {
        assert!(decode_call(&bytes[..at]).is_err(), "cut at {at}");
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(matches!(decode_call(&damaged), Err(SelectError::Content(_))), "byte {at}");
    }
    let with_sum = |mut content: Vec<u8>| {
        let sum = chronolith_base::crc::crc32c(&content);
        content.extend_from_slice(&sum.to_le_bytes());
        decode_call(&content)
    };
    let content = &bytes[..bytes.len() - 4];
    for at in 5..content.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut forged = content.to_vec();
            forged[at] = byte;
            if let Ok(call) = with_sum(forged) {
                assert_eq!(decode_call(&encode_call(&call)), Ok(call));
            }
        }
        assert!(with_sum(content[..at].to_vec()).is_err(), "cut at {at}");
    }
    let mut later = content.to_vec();
    later[4] = 2;
    let error = with_sum(later).expect_err("another version");
    assert_eq!(error, SelectError::Version { found: 2 });
    assert_eq!(error.to_string(), "select of version 2, this node has version 1");
    assert!(decode_call(&vec![0; CALL_BYTES_MAX + 1]).is_err());
}

#[test]
fn an_answer_of_another_version_is_named() {
    let mut frames = frames_of(&answers()[0]);
    frames[0].1[4] = 9;
    assert_eq!(decode(&answer_of(&frames)), Err(SelectError::Version { found: 9 }));
}
