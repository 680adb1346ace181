//! Tools over blocks in directories: compared with promtool where it is installed, damage, JSON.

use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_block::{Block, BlockSource, BlockWriter, write_sidecar};
use chronolith_format::chunk::kinds;
use chronolith_model::histogram::{Buckets, Span};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{BlockEncoding, Columns, FloatHistogram, Histogram, IntHistogram, Labels, TimeRange};
use serde_json::Value;
use tempfile::TempDir;

use super::*;

const START_MS: i64 = 1_600_000_000_000;
const RANGE: TimeRange = TimeRange { start: START_MS, end: START_MS + 7_200_000 };

/// A directory with one block.
struct Fixture {
    dir: TempDir,
    env: Env,
    block_dir: PathBuf,
}

impl Fixture {
    fn new(encoding: BlockEncoding, series: &[(Labels, Columns)]) -> Fixture {
        let (dir, env) = (tempfile::tempdir().unwrap(), Env::real());
        // promtool wants a database around the block.
        env.disk.create_dir_all(&dir.path().join("wal")).unwrap();
        let mut writer = BlockWriter::create(&env, dir.path()).unwrap().with_encoding(encoding);
        for (labels, columns) in series {
            let mut chunks = Vec::new();
            kinds::encode(columns, &mut chunks);
            writer.add(labels, &chunks).unwrap();
        }
        let meta = writer.finish(BlockSource::head(RANGE)).unwrap().unwrap();
        let block_dir = dir.path().join(meta.ulid.to_string());
        Fixture { dir, env, block_dir }
    }

    /// Text of a tool over the directory of the block, and its exit code as a bool.
    fn run(&self, tool: &str, args: &[&str]) -> (String, bool) {
        self.run_in(&self.block_dir, tool, args).unwrap()
    }

    fn run_in(&self, dir: &Path, tool: &str, args: &[&str]) -> anyhow::Result<(String, bool)> {
        let given = ["block", tool, dir.to_str().unwrap()];
        let matches = command().try_get_matches_from(given.iter().chain(args))?;
        let mut out = Vec::new();
        let code = run_tool(&self.env, &matches, &mut out)?;
        Ok((String::from_utf8(out).unwrap(), code == ExitCode::SUCCESS))
    }

    /// Output of promtool; `None` without it.
    fn promtool(&self, tool: &str, args: &[&str]) -> Option<String> {
        let dir = self.dir.path().to_str().unwrap();
        match Process::new("promtool").args(["tsdb", tool]).args(args).arg(dir).output() {
            Ok(output) => {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                Some(String::from_utf8(output.stdout).unwrap())
            }
            Err(_) => {
                println!("NOT RUN: promtool missing");
                None
            }
        }
    }
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::from_pairs(pairs.iter().copied())
}

fn floats(values: &[f64]) -> Columns {
    let mut columns = Columns::default();
    (0..).zip(values).for_each(|(idx, value)| columns.push(START_MS + idx * 15_000, *value));
    columns
}

fn float_series() -> Vec<(Labels, Columns)> {
    let odd = [
        f64::NAN,
        STALE_NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        5e-324,
        f64::MAX,
        0.1,
        1e6,
        999_999.0,
        1_234_567.5,
        1e-4,
        0.000_012_5,
        1e21,
        123_456_789_012_345_680.0,
    ];
    let mut series =
        vec![(labels(&[("__name__", "odd"), ("q", "a\"b\\c\nd"), ("zone", "süd ☃")]), floats(&odd))];
    for host in ["a", "b", "c"] {
        let values: Vec<f64> = (0..300).map(|k| f64::from(k) * 0.1).collect();
        series.push((labels(&[("__name__", "made"), ("host", host)]), floats(&values)));
    }
    series.sort_by(|a, b| a.0.cmp(&b.0));
    series
}

fn integers(k: u64) -> Histogram {
    let positive = vec![Span { offset: -2, length: 2 }, Span { offset: 1, length: 1 }];
    Histogram::Int(IntHistogram {
        schema: 1,
        zero_threshold: 0.001,
        zero_count: 2 + k,
        count: 1_000_010 + 4 * k,
        sum: 18.4 + k as f64,
        positive: Buckets { spans: positive, counts: vec![1_000_000 + k, 0, 3 + k] },
        negative: Buckets { spans: vec![Span { offset: 0, length: 2 }], counts: vec![1 + k, 4] },
        ..IntHistogram::default()
    })
}

fn float_counts(k: u64) -> Histogram {
    let k = k as f64;
    Histogram::Float(FloatHistogram {
        count: 2_000_000.5 + k,
        sum: -3.25,
        positive: Buckets { spans: vec![Span { offset: 0, length: 2 }], counts: vec![0.5 + k, 2_000_000.0] },
        ..FloatHistogram::default()
    })
}

fn histograms(one: fn(u64) -> Histogram) -> Columns {
    let mut columns = Columns::default();
    for k in 0..40u64 {
        columns.push_histogram(START_MS + k.cast_signed() * 15_000, Arc::new(one(k)));
    }
    columns
}

#[test]
fn a_dump_of_floats_is_that_of_promtool() {
    let fixture = Fixture::new(BlockEncoding::Prometheus, &float_series());
    let (text, _) = fixture.run("dump", &[]);
    assert_eq!(text.lines().count(), 915);
    assert!(
        text.contains(
            "{__name__=\"odd\", q=\"a\\\"b\\\\c\\nd\", zone=\"süd ☃\"} 1.2345675e+06 1600000150000\n"
        )
    );
    if let Some(want) = fixture.promtool("dump", &[]) {
        assert_eq!(text, want);
    }
    let (matched, _) = fixture.run("dump", &["--match", "made{host=~\"a|c\"}", "--start", "1600000015000"]);
    let selector = "--match={__name__=\"made\",host=~\"a|c\"}";
    if let Some(want) = fixture.promtool("dump", &[selector, "--min-time=1600000015000"]) {
        assert_eq!(matched, want);
    }
    let last = ["--end", "1600000015000", "--match", "made{host=\"a\"}", "--match", "odd"];
    let (first, _) = fixture.run("dump", &last);
    assert_eq!(first.lines().count(), 4, "the end is inclusive, selectors are alternatives: {first}");
    // Dense chunks hold the same samples.
    let dense = Fixture::new(BlockEncoding::Dense, &float_series());
    assert_eq!(dense.run("dump", &[]).0, text);
}

/// promtool leaves out histograms, version 2.42 all of them: its lines are a part of those here.
#[test]
fn a_dump_of_histograms_has_the_lines_of_promtool() {
    let series = [
        (labels(&[("__name__", "floats")]), histograms(float_counts)),
        (labels(&[("__name__", "integers")]), histograms(integers)),
    ];
    let fixture = Fixture::new(BlockEncoding::Prometheus, &series);
    let (text, _) = fixture.run("dump", &[]);
    let all: Vec<&str> = text.lines().collect();
    assert_eq!(all.len(), 80);
    assert!(all[40].contains("} {count:1000010, sum:18.4, [-1.414213562373095,-1):4, "), "{}", all[40]);
    assert!(all[0].contains("} {count:2.0000005e+06, sum:-3.25, "), "{}", all[0]);
    if let Some(want) = fixture.promtool("dump", &[]) {
        assert!(want.lines().all(|line| all.contains(&line)), "{want}");
    }
}

#[test]
fn json_of_a_dump_has_a_line_per_series() {
    let fixture = Fixture::new(BlockEncoding::Dense, &float_series());
    let (text, _) = fixture.run("dump", &["--json", "--match", "made{host=\"b\"}", "--end", "1600000030000"]);
    let value: Value = serde_json::from_str(text.trim_end()).unwrap();
    let want = serde_json::json!({ "metric": { "__name__": "made", "host": "b" },
        "values": [[START_MS, "0"], [START_MS + 15_000, "0.1"], [START_MS + 30_000, "0.2"]] });
    assert_eq!(value, want);
}

#[test]
fn an_analysis_counts_as_promtool() {
    let fixture = Fixture::new(BlockEncoding::Prometheus, &float_series());
    let (text, _) = fixture.run("analyze", &["--limit", "2"]);
    for want in [
        "Duration: 2h0m0s\nTotal Series: 4\nLabel names: 4\n",
        "Postings (unique label pairs): 7\nPostings entries (total label pairs): 9\n",
        "Chunks: 10\nSamples: 915\n",
        "Most common label pairs:\n3 __name__=made\n1 __name__=odd\n\n",
        "Highest cardinality labels:\n3 host\n2 __name__\n\n",
        "Highest cardinality metric names:\n3 made\n1 odd\n\n",
        "Chunks by number of samples:\n1 11-30\n3 31-60\n6 120\n",
    ] {
        assert!(text.contains(want), "{want}\nis not in\n{text}");
    }
    let Some(promtool) = fixture.promtool("analyze", &["--limit=2"]) else { return };
    // Section by section: the order of equal numbers is not defined in promtool.
    for heading in ["Label pairs most involved in churning:", "Highest cardinality metric names:"] {
        let section = |text: &str| -> Vec<String> {
            let at = text.find(heading).unwrap_or_else(|| panic!("{heading} in {text}"));
            text[at..].lines().skip(1).take_while(|line| !line.is_empty()).map(str::to_owned).collect()
        };
        let numbers = |rows: Vec<String>| -> Vec<String> {
            // A label value may have several lines.
            let numbers = rows.iter().filter_map(|row| row.split(' ').next());
            numbers.filter(|word| word.parse::<u64>().is_ok()).map(str::to_owned).collect()
        };
        assert_eq!(numbers(section(&text)), numbers(section(&promtool)), "{heading}\n{text}\n{promtool}");
    }
}

#[test]
fn json_of_an_analysis_adds_up() {
    let fixture = Fixture::new(BlockEncoding::Dense, &float_series());
    let (text, _) = fixture.run_in(fixture.dir.path(), "analyze", &["--json"]).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let sum = |list: &str, key: &str| -> u64 {
        value[list].as_array().unwrap().iter().map(|row| row[key].as_u64().unwrap()).sum()
    };
    for key in ["samples", "bytes", "chunks"] {
        let total = value["total"][key].as_u64().unwrap();
        assert_eq!([sum("metrics", key), sum("encodings", key)], [total; 2], "{key}: {value}");
    }
    assert_eq!(sum("chunksBySamples", "chunks"), value["total"]["chunks"].as_u64().unwrap());
    assert_eq!(value["total"]["samples"], 915);
}

#[test]
fn damage_is_named_with_file_and_offset() {
    let fixture = Fixture::new(BlockEncoding::Prometheus, &float_series());
    let (text, is_sound) = fixture.run("verify", &[]);
    assert!(is_sound && text.starts_with("verified 1 blocks with 915 samples, "), "{text}");
    let path = fixture.block_dir.join("chunks/000001");
    let mut bytes = fixture.env.disk.read(&path).unwrap();
    bytes[40] ^= 1;
    fixture.env.disk.write_atomic(&path, &bytes).unwrap();
    let (text, is_sound) = fixture.run_in(fixture.dir.path(), "verify", &[]).unwrap();
    assert!(!is_sound && text.contains("chunks/000001: offset 8: chunk checksum"), "{text}");
    let (json, _) = fixture.run("verify", &["--json"]);
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["damages"][0]["offset"], 8);
    assert!(fixture.run_in(&fixture.block_dir, "dump", &[]).is_err(), "a dump is never shorter");
    fixture.env.disk.remove_file(&fixture.block_dir.join("index")).unwrap();
    let (text, is_sound) = fixture.run("verify", &[]);
    assert!(!is_sound && text.contains("index"), "{text}");
}

#[test]
fn a_sidecar_that_the_block_does_not_give_is_damage() {
    let fixture = Fixture::new(BlockEncoding::Dense, &float_series());
    let block = Block::open(&fixture.env, &fixture.block_dir).unwrap();
    let mut sidecar = Vec::new();
    write_sidecar(&fixture.env, &block, |bytes| sidecar.extend_from_slice(bytes)).unwrap();
    let path = fixture.block_dir.join("chronolith.sidecar");
    let verify = |bytes: &[u8]| {
        fixture.env.disk.write_atomic(&path, bytes).unwrap();
        fixture.run("verify", &[])
    };
    let (text, is_sound) = verify(&sidecar);
    assert!(is_sound && text.contains("1 sidecars; 0 damages"), "{text}");
    for at in (0..sidecar.len()).step_by(7) {
        let mut damaged = sidecar.clone();
        damaged[at] ^= 0x40;
        let (text, is_sound) = verify(&damaged);
        assert!(!is_sound && text.contains(&format!("chronolith.sidecar: offset {at}: ")), "{text}");
    }
    assert!(!verify(&sidecar[..sidecar.len() - 1]).1 && !verify(&[&sidecar[..], b"x"].concat()).1);
}

#[test]
fn a_directory_without_blocks_is_an_error() {
    let fixture = Fixture::new(BlockEncoding::Dense, &float_series());
    let empty = fixture.dir.path().join("wal");
    let error = fixture.run_in(&empty, "verify", &[]).unwrap_err().to_string();
    assert!(error.starts_with("no block in "), "{error}");
    assert!(fixture.run_in(Path::new("/missing"), "analyze", &[]).is_err());
    let error = fixture.run_in(&fixture.block_dir, "dump", &["--match", "a{"]).unwrap_err().to_string();
    assert!(error.starts_with("--match \"a{\": "), "{error}");
}
