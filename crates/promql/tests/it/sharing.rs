//! Random queries, each in forms in which it occurs more than once, with and without sharing of equal parts:
//! values bit for bit, labels, order, annotations and errors are the same. `SHARING_SEEDS=FROM,COUNT cargo
//! test -p chronolith-promql --test it sharing::` takes other seeds.

use crate::generate::Generator;
use crate::promqltest::sharing::{Compared, FORMS, compare};
use crate::series;
use chronolith_base::Rng;
use chronolith_promql::parser::ParserOptions;
use chronolith_promql::{EngineOptions, NameRemoval};

const QUERIES_PER_SEED: usize = 40;
/// Different functions of one range, which `#` stands for.
const FUNCTION_FORMS: &[&str] = &[
    "max_over_time(#) - min_over_time(#)",
    "rate(#) and avg_over_time(#)",
    "sum(increase(#)) / on () group_right count_over_time(#) unless last_over_time(#) > 5",
    "scalar(sum(stddev_over_time(#))) + changes(#)",
    "quantile_over_time(2, #) or resets(#)",
];
const RANGES: &[&str] = &[
    "requests_total[5m]",
    "temp{job=\"api\"}[90s]",
    "{job=\"api\"}[2m]",
    "h_mixed[5m]",
    "wild[1m] offset 30s",
    "h_exp[10m]",
    "(temp)[5m:1m]",
];

fn check_seed(seed: u64, shared: &mut usize) {
    let rng = Rng::from_seed(seed);
    let dataset = series::random(&rng);
    let source = dataset.source();
    let generator = Generator { rng: &rng, dataset: &dataset };
    let parser = ParserOptions {
        experimental_functions: true,
        binop_fill_modifiers: true,
        unquoted_utf8_names: false,
    };
    for name_removal in [NameRemoval::Immediate, NameRemoval::Delayed] {
        let options = EngineOptions { name_removal, parser, start_times: true, ..EngineOptions::default() };
        for _ in 0..QUERIES_PER_SEED {
            let query = generator.query().to_string();
            let pick = |from: &[&'static str]| from[rng.below(from.len() as u64) as usize];
            let text = match rng.below(4) {
                0 => pick(FUNCTION_FORMS).replace('#', pick(RANGES)),
                _ => pick(FORMS).replace('#', &query),
            };
            let start_ms = dataset.start_ms + rng.below(900_000) as i64;
            for range_ms in [(start_ms, start_ms, 0), (start_ms, start_ms + 300_000, 17_000)] {
                let found = compare(&source, &options, &text, range_ms)
                    .unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
                *shared += usize::from(found == Compared::Shared);
            }
        }
    }
}

#[test]
fn random_queries_have_the_same_results_with_and_without_sharing() {
    let wish = std::env::var("SHARING_SEEDS").ok();
    let wish = wish.as_deref().and_then(|text| text.split_once(','));
    let parsed = wish.and_then(|(from, count)| Some((from.parse().ok()?, count.parse().ok()?)));
    let (from, count): (u64, u64) = parsed.unwrap_or((1, 40));
    let mut shared = 0;
    (from..from + count).for_each(|seed| check_seed(seed, &mut shared));
    let asked = count as usize * QUERIES_PER_SEED * 4;
    assert!(shared * 6 > asked, "only {shared} of {asked} queries shared anything");
}
