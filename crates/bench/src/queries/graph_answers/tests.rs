//! Figures of a row: servers that send a coding, servers that do not.

use super::*;

fn cost(wall_ms: f64, wire_bytes: usize) -> Cost {
    Cost { walls_ms: vec![wall_ms], cpu: CpuSeconds::default(), wire_bytes }
}

#[test]
fn a_coding_that_a_server_does_not_send_has_no_figures() {
    let ours =
        vec![(Accept::Gzip, cost(2.0, 20)), (Accept::Zstd, cost(1.0, 25)), (Accept::Plain, cost(0.5, 90))];
    let theirs = vec![(Accept::Gzip, cost(6.0, 10)), (Accept::Plain, cost(4.0, 90))];
    let costs = vec![(Kind::Chronolith, ours), (Kind::Prometheus, theirs)];
    let row = Row { name: "head, 1 MB of rates".to_owned(), costs };
    assert_eq!(row.ratio(Kind::Prometheus, Accept::Gzip, Cost::wall_ms), 3.0);
    assert_eq!(row.ratio(Kind::Prometheus, Accept::Plain, Cost::wall_ms), 8.0);
    assert_eq!(row.ratio(Kind::Prometheus, Accept::Gzip, |cost| cost.wire_bytes as f64), 0.5);
    assert_eq!(row.figure(Kind::Chronolith, Accept::Zstd, Cost::wall_ms), 1.0);
    assert!(row.figure(Kind::Prometheus, Accept::Zstd, Cost::wall_ms).is_nan());
    assert!(row.ratio(Kind::Prometheus, Accept::Zstd, Cost::wall_ms).is_nan());
    assert!(row.figure(Kind::VictoriaMetrics, Accept::Gzip, Cost::wall_ms).is_nan());
}
