//! Reports about an evaluated query: the plan next to its result (`explain=1`), the line of the slow query
//! log, and the statistics that Prometheus gives (`stats`).
//! Invariants: names of statistics are Prometheus's. Not here: counting (`exec::trace`).

use chronolith_promql::engine::trace::Trace;
use chronolith_service::evaluation::promql::Timings;

use crate::json;

/// Statistics that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatsMode {
    None,
    Totals,
    /// `stats=all`: by step, too.
    Steps,
}

impl StatsMode {
    pub(super) fn parse(text: Option<&str>) -> StatsMode {
        match text {
            None => StatsMode::None,
            Some("all") => StatsMode::Steps,
            Some(_) => StatsMode::Totals,
        }
    }
}

/// Prometheus's words about a value of `stats` that it will refuse one day.
pub(super) fn stats_warning(text: Option<&str>) -> Option<String> {
    let odd = text.filter(|text| !matches!(*text, "true" | "all"))?;
    Some(format!(
        "value {odd:?} for parameter \"stats\" is deprecated and will be rejected in the next major release, use \
         \"true\" or \"all\""
    ))
}

/// Appends the member `stats` of the answer's data.
pub(super) fn put_stats(out: &mut Vec<u8>, mode: StatsMode, timings: Timings, trace: &Trace, peak: u64) {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let (queue, preparation) = (seconds(timings.queue_ns), seconds(timings.preparation_ns));
    let inner = seconds(timings.evaluation_ns);
    let evaluation = preparation + inner;
    let total_time = queue + evaluation;
    json::put_display(
        out,
        format_args!(
            ",\"stats\":{{\"timings\":{{\"evalTotalTime\":{evaluation},\"resultSortTime\":0,\
             \"queryPreparationTime\":{preparation},\"innerEvalTime\":{inner},\"execQueueTime\":{queue},\
             \"execTotalTime\":{total_time}}},\"samples\":{{"
        ),
    );
    let steps = trace.step_samples().unwrap_or_default();
    let sum = |list: &[(i64, u64)]| list.iter().map(|(_, count)| count).sum::<u64>();
    if mode == StatsMode::Steps {
        put_steps(out, "totalQueryableSamplesPerStep", &steps.total);
        put_steps(out, "samplesReadPerStep", &steps.read);
    }
    let (total, read) = (sum(&steps.total), sum(&steps.read));
    json::put_display(
        out,
        format_args!("\"totalQueryableSamples\":{total},\"samplesRead\":{read},\"peakSamples\":{peak}}}}}"),
    );
}

fn put_steps(out: &mut Vec<u8>, name: &str, steps: &[(i64, u64)]) {
    json::put_display(out, format_args!("\"{name}\":["));
    for (idx, (time_ms, count)) in steps.iter().enumerate() {
        out.extend_from_slice(if idx > 0 { b",[" } else { b"[" });
        json::put_time_short(out, *time_ms);
        json::put_display(out, format_args!(",{count}]"));
    }
    out.extend_from_slice(b"],");
}
