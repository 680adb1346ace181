//! Reads stored samples back and compares them bit by bit with the sent ones.
//! Invariants: a server that claims to be exact must be; changed samples of other servers are counted.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::load::{Load, within};
use super::{CHECK_MS, CHECK_SERIES};
use crate::http;
use crate::server::{Kind, Server};
use crate::traffic::{self, POD_SERIES};

/// Samples that were compared.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Checked {
    /// Samples that were read back.
    pub(super) sample_count: usize,
    /// Samples with another value than the one sent.
    pub(super) changed_count: usize,
}

/// Reads all back from Chronolith, and the first hours of the first series from others.
pub(super) fn read_back(server: &Server, load: &Load, kind: Kind) -> Result<Checked> {
    let mut checked = Checked::default();
    for from_ms in (load.extent.start_ms..load.end_ms()).step_by(CHECK_MS as usize) {
        for first_series in (0..load.extent.series_count).step_by(CHECK_SERIES) {
            check_part(server, load, first_series, from_ms, &mut checked)?;
            if kind != Kind::Chronolith {
                return Ok(checked);
            }
        }
    }
    ensure!(checked.sample_count == load.sample_count(), "read back {} samples", checked.sample_count);
    ensure!(checked.changed_count == 0, "{} samples have other values", checked.changed_count);
    Ok(checked)
}

fn check_part(
    server: &Server,
    load: &Load,
    first_series: usize,
    from_ms: i64,
    checked: &mut Checked,
) -> Result<()> {
    let series = first_series..load.extent.series_count.min(first_series + CHECK_SERIES);
    let by_name: BTreeMap<String, usize> = series.map(|idx| (identity(idx), idx)).collect();
    let to_ms = from_ms + CHECK_MS;
    let modes: Vec<&str> = by_name.keys().filter_map(|name| Some(name.split_once(' ')?.1)).collect();
    let pods = traffic::pods_selector(first_series, first_series / POD_SERIES * POD_SERIES + POD_SERIES);
    let query =
        format!("{},mode=~\"{}\"}}[{}s]", pods.trim_end_matches('}'), modes.join("|"), CHECK_MS / 1000);
    let (status, body) = http::query(server.port, &query, to_ms - 1)?;
    let answer: Value = serde_json::from_str(&body).with_context(|| format!("HTTP {status}: {body:.200}"))?;
    let found = answer["data"]["result"].as_array().with_context(|| format!("{query:.100}: {body:.300}"))?;
    let mut seen_count = 0;
    for series in found {
        let label = |name: &str| series["metric"][name].as_str().unwrap_or_default();
        let idx = by_name.get(&format!("{} {}", label("instance"), label("mode")));
        let idx = *idx.with_context(|| format!("not of the load: {}", series["metric"]))?;
        let values = series["values"].as_array().context("no values")?;
        let sent = within(&load.samples[idx], from_ms, to_ms);
        compare(sent, values, from_ms, checked).with_context(|| identity(idx))?;
        seen_count += 1;
    }
    let expected_count =
        by_name.values().filter(|idx| !within(&load.samples[**idx], from_ms, to_ms).is_empty()).count();
    ensure!(seen_count == expected_count, "{seen_count} series of {expected_count}");
    Ok(())
}

/// Labels that no other series has.
fn identity(series_idx: usize) -> String {
    let labels = traffic::labels(series_idx);
    let label = |name: &str| labels.iter().find(|l| l.0 == name).map_or("", |l| l.1.as_str());
    format!("{} {}", label("instance"), label("mode"))
}

fn compare(sent: &[(i64, f64)], found: &[Value], from_ms: i64, checked: &mut Checked) -> Result<()> {
    let mut sent = sent.iter();
    for pair in found {
        // Seconds with three decimals are exact enough to find the millisecond.
        let time_ms = (pair[0].as_f64().context("no time")? * 1000.0).round() as i64;
        if time_ms < from_ms {
            // The start of a range is part of it in some versions.
            continue;
        }
        let value: f64 = pair[1].as_str().context("no value")?.parse()?;
        match sent.next() {
            Some(sample) if sample.0 == time_ms => {
                checked.sample_count += 1;
                checked.changed_count += usize::from(sample.1.to_bits() != value.to_bits());
            }
            other => bail!("sample at {time_ms}, expected {other:?}"),
        }
    }
    ensure!(sent.len() == 0, "{} samples are missing", sent.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Checked, compare};

    fn changed(found: &Value) -> anyhow::Result<usize> {
        let sent = [(10_000, 0.1), (25_000, -0.0), (40_001, 1e300)];
        let mut checked = Checked::default();
        compare(&sent, found.as_array().unwrap(), 10_000, &mut checked)?;
        assert_eq!(checked.sample_count, 3);
        Ok(checked.changed_count)
    }

    #[test]
    fn values_are_compared_bit_by_bit() {
        let equal = json!([[9.999, "7"], [10, "0.1"], [25, "-0"], [40.001, "1e300"]]);
        assert_eq!(changed(&equal).unwrap(), 0, "what lies before the range does not count");
        let other = json!([[10, "0.10000000000000002"], [25, "0"], [40.001, "1e300"]]);
        assert_eq!(changed(&other).unwrap(), 2);
    }

    #[test]
    fn what_is_missing_or_not_sent_is_an_error() {
        assert!(changed(&json!([[10, "0.1"], [25, "-0"]])).is_err());
        assert!(changed(&json!([[10, "0.1"], [25.001, "-0"], [40.001, "1e300"]])).is_err());
        assert!(changed(&json!([[10, "0.1"], [25, "-0"], [40.001, "1e300"], [55, "1"]])).is_err());
    }
}
