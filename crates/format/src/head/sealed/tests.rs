//! Records by offset and by walking; damage.

use super::*;

/// Offset, header, chunk data.
type Record = (usize, RecordHeader, Vec<u8>);

fn file() -> (Vec<u8>, Vec<Record>) {
    let mut bytes = encode_file_header(3).to_vec();
    let mut records = Vec::new();
    for i in 0..5u32 {
        let header = RecordHeader {
            series_id: i,
            encoding: 1,
            count: i as u16,
            min_time: -i64::from(i),
            max_time: i64::from(i) << 40,
        };
        let chunk = vec![i as u8; 10 * i as usize];
        records.push((bytes.len(), header, chunk.clone()));
        encode_record(&header, &chunk, &mut bytes);
    }
    (bytes, records)
}

#[test]
fn records_are_found_by_offset_and_by_walking() {
    let (bytes, records) = file();
    assert_eq!(decode_file_header(&bytes), Ok(3));
    for (offset, header, chunk) in &records {
        assert_eq!(decode_record(&bytes, *offset), Ok((*header, chunk.as_slice())));
    }
    let mut walked = Vec::new();
    walk(&bytes, |offset, header, chunk| walked.push((offset, *header, chunk.to_vec()))).unwrap();
    assert_eq!(walked, records);
}

#[test]
fn cut_and_flipped_files_are_refused_at_the_place() {
    let (bytes, records) = file();
    for len in 0..bytes.len() {
        let mut count = 0;
        let result = walk(&bytes[..len], |_, _, _| count += 1);
        let is_border = len == FILE_HEADER_BYTES || records.iter().any(|(offset, _, _)| *offset == len);
        assert_eq!(result.is_ok(), is_border, "length {len}");
        assert_eq!(count, records.iter().filter(|r| r.0 + RECORD_OVERHEAD_BYTES + r.2.len() <= len).count());
    }
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x20;
        assert!(walk(&bad, |_, _, _| {}).is_err(), "byte {at}");
    }
}
