//! Tests of the names of positions.

use super::*;

/// Operators compare it with the output of `kafka-topics.sh --describe`.
#[test]
fn topic_ids_print_as_in_kafka() {
    let id: [u8; 16] =
        [0xd9, 0x6e, 0x8f, 0x7c, 0x1b, 0x5a, 0x4a, 0x3c, 0x9b, 0x0f, 0x0e, 0xff, 0xfe, 0, 1, 2];
    assert_eq!(TopicId(id).to_string(), "2W6PfBtaSjybDw7__gABAg");
}
