//! Texts of offsets.

use crate::log_position::{PartitionId, TopicId};

use super::*;

fn partition(number: u32) -> LogPartition {
    LogPartition { topic: TopicId([7; 16]), number: PartitionId(number) }
}

#[test]
fn the_newest_offset_of_a_partition_counts() {
    let topic = partition(0).topic;
    let offsets: MinOffsets =
        format!("{topic}:0:5, {topic}:3:9,{topic}:0:4").parse().expect("as an answer has them");
    assert_eq!(offsets.of(partition(0)), Ok(Some(5)));
    assert_eq!(offsets.of(partition(3)), Ok(Some(9)));
    assert_eq!(offsets.of(partition(1)), Ok(None));
    let other = LogPartition { topic: TopicId([8; 16]), ..partition(0) };
    let error = offsets.of(other).expect_err("another topic").to_string();
    assert!(error.contains(&topic.to_string()) && error.contains(&other.topic.to_string()), "{error}");
}

#[test]
fn other_texts_are_refused() {
    for wrong in ["", "a", "a:1", "a:1:", "a:x:1", ":0:1", "a:0:-1", "a:0:1,b:0:1", "a:0:1,"] {
        assert!(wrong.parse::<MinOffsets>().is_err(), "{wrong}");
    }
    let many: Vec<String> = (0..=100).map(|number| format!("a:{number}:1")).collect();
    assert_eq!(many.join(",").parse::<MinOffsets>(), Err("more than 100 partitions".to_owned()));
}
