//! Differential against graphite-web 1.1.10: generated requests on both sides, compared.
//!
//! Usage: `differential [REQUESTS] [SEED] [ONLY]`; ONLY keeps the requests of one function. Starts
//! `tools/graphite-oracle/run.sh` per job, over whisper files if `ORACLE_BACKEND` is `whisper`. A difference
//! that no rule explains fails the run, as does a rule that explains nothing.
//! Not here: rules (`rules`), the grammar of requests (`generate`), data (`dataset`).

mod compare;
mod dataset;
mod generate;
mod oracle;
mod rules;
mod subject;

use std::collections::BTreeMap;

use compare::Verdict;
use generate::Generator;

type AnyError = Box<dyn std::error::Error>;

/// Requests of one job of the oracle.
const JOB_REQUESTS: usize = 500;
/// Differences that are printed in full.
const PRINTED_MAX: usize = 25;
/// Share of requests that must agree, of those that no rule explains.
const AGREEMENT_MIN: f64 = 0.99;

/// Requests of one function.
#[derive(Default)]
struct Tally {
    total: usize,
    equal: usize,
    explained: usize,
    /// Both sides refuse.
    refused: usize,
}

fn main() -> Result<(), AnyError> {
    let mut args = std::env::args().skip(1);
    let request_count: usize = args.next().map_or(Ok(6000), |text| text.parse())?;
    let seed: u64 = args.next().map_or(Ok(1), |text| text.parse())?;
    let only = args.next();
    let dataset = dataset::dataset();
    let source = dataset::source(&dataset);
    let mut generator = Generator::new(seed);
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let mut explained: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut printed = 0;
    let mut left = request_count;
    while left > 0 {
        let requests: Vec<generate::Request> = std::iter::repeat_with(|| generator.request(only.as_deref()))
            .take(left.min(JOB_REQUESTS))
            .collect();
        left -= requests.len();
        let answers = oracle::answers(&dataset, &requests)?;
        for (request, theirs) in requests.iter().zip(&answers) {
            let ours = subject::answer(&source, request);
            let verdict = compare::verdict(request, theirs, &ours);
            for name in &request.functions {
                let tally = tallies.entry(name.clone()).or_default();
                tally.total += 1;
                tally.equal += usize::from(matches!(verdict, Verdict::Equal));
                tally.explained += usize::from(matches!(verdict, Verdict::Explained(_)));
            }
            let all = tallies.entry(String::new()).or_default();
            all.total += 1;
            all.refused += usize::from(compare::status(theirs) != 200 && compare::status(&ours) != 200);
            match verdict {
                Verdict::Equal => all.equal += 1,
                Verdict::Explained(rule) => {
                    all.explained += 1;
                    *explained.entry(rule).or_default() += 1;
                }
                Verdict::Different(reason) => {
                    printed += 1;
                    if printed <= PRINTED_MAX {
                        println!("DIFFERENT {}\n  {reason}", request.describe());
                    }
                }
            }
        }
    }
    report(&tallies, &explained, only.is_none())
}

fn report(
    tallies: &BTreeMap<String, Tally>,
    explained: &BTreeMap<&'static str, usize>,
    is_complete: bool,
) -> Result<(), AnyError> {
    let percent = |part: usize, total: usize| 100.0 * part as f64 / total.max(1) as f64;
    for (name, tally) in tallies.iter().filter(|(name, _)| !name.is_empty()) {
        if tally.equal < tally.total {
            println!(
                "{name:32} {:5} requests, {:6.2} % equal, {} explained",
                tally.total,
                percent(tally.equal, tally.total),
                tally.explained
            );
        }
    }
    for (rule, count) in explained {
        println!("rule {rule}: {count}");
    }
    let Some(all) = tallies.get("") else { return Err("no requests".into()) };
    let agreed = all.equal + all.explained;
    println!("{} requests are refused by both sides", all.refused);
    println!(
        "{} requests over {} functions: {:.3} % equal, {:.3} % with rules",
        all.total,
        tallies.len() - 1,
        percent(all.equal, all.total),
        percent(agreed, all.total)
    );
    let unused: Vec<&str> =
        rules::RULES.iter().map(|rule| rule.name).filter(|name| !explained.contains_key(name)).collect();
    if is_complete && !unused.is_empty() {
        return Err(format!("rules that explain nothing: {unused:?}").into());
    }
    if percent(agreed, all.total) < 100.0 * AGREEMENT_MIN {
        return Err("agreement is below the limit".into());
    }
    Ok(())
}
