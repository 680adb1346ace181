//! Against Prometheus's own tool, where it is installed: it reads our blocks, we read its blocks.

use std::process::Command;

use super::*;
use crate::open_dir;

/// Runs promtool; `None` (and a line that says so) when it is not there.
pub(crate) fn promtool(args: &[&str]) -> Option<String> {
    match Command::new("promtool").args(args).output() {
        Ok(output) => {
            let (out, err) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "promtool {args:?}: {out}{err}");
            Some(out.into_owned())
        }
        Err(_) => {
            println!("NOT RUN: promtool missing");
            None
        }
    }
}

pub(crate) fn parse_dump(dump: &str) -> Bits {
    let mut out = Bits::new();
    for line in dump.lines() {
        let (rest, time) = line.rsplit_once(' ').unwrap();
        let (series, value) = rest.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        out.entry(text::parse_labels(series)).or_default().push((time.parse().unwrap(), value.to_bits()));
    }
    out
}

/// Bits as a dump shows them: it prints the shortest text of a float, which is exact, but one NaN for all.
fn as_dumped(series: &Bits) -> Bits {
    let show = |bits: u64| if f64::from_bits(bits).is_nan() { f64::NAN.to_bits() } else { bits };
    let one = |samples: &[(i64, u64)]| samples.iter().map(|&(t, v)| (t, show(v))).collect();
    series.iter().map(|(l, samples)| (l.clone(), one(samples))).collect()
}

#[test]
fn promtool_reads_our_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let env = Env::real();
    // The tool wants a database around the block.
    env.disk.create_dir_all(&dir.path().join("wal")).unwrap();
    let mut series = some_series(70, 250);
    let odd = labels(&[("__name__", "odd"), ("zone", "süd ☃"), ("q", "a\"b\\c\nd")]);
    let values = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        5e-324,
        f64::MAX,
        0.1,
        chronolith_model::sample::STALE_NAN,
    ];
    series.insert(odd, (WINDOW.start..).zip(values.map(f64::to_bits)).collect());
    let writer = BlockWriter::create(&env, dir.path()).unwrap().with_small_limits(20_000, 100);
    let meta = add_all(writer, &series).finish(BlockSource::head(WINDOW)).unwrap().unwrap();
    let path = dir.path().to_str().unwrap();
    let Some(dump) = promtool(&["tsdb", "dump", path]) else { return };
    assert_eq!(parse_dump(&dump), as_dumped(&series));
    let list = promtool(&["tsdb", "list", path]).unwrap();
    let line = list.lines().find(|l| l.starts_with(&meta.ulid.to_string())).unwrap();
    let columns: Vec<&str> = line.split_whitespace().collect();
    let stats = &meta.stats;
    let counts = [stats.num_samples, stats.num_chunks, stats.num_series].map(|n| n.to_string());
    assert_eq!(columns[1], WINDOW.start.to_string());
    assert_eq!(columns[2], WINDOW.end.to_string());
    assert_eq!(columns[4..7], counts, "{line}");
    let analysis = promtool(&["tsdb", "analyze", "--extended", path]).unwrap();
    assert!(analysis.contains("Series: 71"), "{analysis}");
    assert!(analysis.contains("Label names: 5"), "{analysis}");
    let block = Block::open(&env, &dir.path().join(meta.ulid.to_string())).unwrap();
    assert_eq!(read_all(&env, &block).unwrap(), series, "mapped from a real disk");
    assert_eq!(block.verify(), []);
}

#[test]
fn we_read_blocks_of_promtool() {
    let dir = tempfile::tempdir().unwrap();
    let env = Env::real();
    let mut om = String::from("# TYPE made gauge\n");
    let mut want = text::Series::new();
    for i in 0..100i64 {
        for s in 0..400 {
            // Four hours: two blocks.
            let (seconds, value) = (1_600_000_000 + s * 36, (s * i) as f64 / 7.0);
            om.push_str(&format!("made{{i=\"{i}\",host=\"höst {}\"}} {value:?} {seconds}\n", i % 7));
            let labels =
                labels(&[("__name__", "made"), ("i", &i.to_string()), ("host", &format!("höst {}", i % 7))]);
            want.entry(labels).or_default().push((seconds * 1000, value));
        }
    }
    om.push_str("# EOF\n");
    let (input, out) = (dir.path().join("in.om"), dir.path().join("out"));
    env.disk.create(&input).unwrap().write_at(om.as_bytes(), 0).unwrap();
    let args = ["tsdb", "create-blocks-from", "openmetrics", input.to_str().unwrap(), out.to_str().unwrap()];
    if promtool(&args).is_none() {
        return;
    }
    let (blocks, failed) = open_dir(&env, &out);
    assert!(failed.is_empty() && blocks.len() > 1, "{failed:?}");
    let mut found = Bits::new();
    for block in &blocks {
        assert_eq!(block.verify(), []);
        for (labels, samples) in read_all(&env, block).unwrap() {
            found.entry(labels).or_default().extend(samples);
        }
    }
    assert_eq!(found, bits_of(&want));
}
