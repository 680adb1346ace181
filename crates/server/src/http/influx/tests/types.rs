//! Types of fields that differ between shard groups.

use super::*;

/// Covers a regression: a field that is a float in one shard group and an integer in the next was an integer
/// for a range that has points of the second one only, although it overlaps the first: `fill(-1.5)` was cut
/// to -1.
#[tokio::test]
async fn a_range_that_overlaps_a_shard_group_has_its_type() {
    let server = with_database();
    // 2023-11-20 is the border of two shard groups of a week.
    let border_s: i64 = 1_700_438_400;
    let body = format!("m v=0.5 {}\nm v=7i {}", border_s - 600, border_s + 30);
    assert_eq!(post(&server, "/write?db=db&precision=s", &body).await.status, StatusCode::NO_CONTENT);
    let filled = async |start_s: i64| {
        let text = format!(
            "SELECT sum(v) FROM m WHERE time >= {start_s}s AND time < {}s GROUP BY time(30s) fill(-1.5)",
            border_s + 60
        );
        let path = format!("/query?db=db&epoch=s&q={}", text.replace(' ', "%20").replace('>', "%3E"));
        let answer = post(&server, &path.replace('<', "%3C"), "").await;
        answer.json()["results"][0]["series"][0]["values"].to_string()
    };
    let want = "[[1700438370,-1.5],[1700438400,-1.5],[1700438430,7]]";
    assert_eq!(filled(border_s - 30).await, want);
    assert_eq!(filled(border_s).await, "[[1700438400,-1],[1700438430,7]]");
}
