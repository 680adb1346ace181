//! The plan of a query as JSON, with counts and times of each operator: `explain=1` and the slow query log.
//! Not here: counting (`exec::trace`).

use chronolith_promql::engine::trace::{Trace, TraceNode, Use};
use serde_json::{Value, json};

/// The plan of a traced query with this text; null if no operators were counted.
pub fn report(trace: &Trace, text: &str) -> Value {
    trace.report(text).as_ref().map(tree).into()
}

/// A tree of nodes as JSON.
fn tree(node: &TraceNode) -> Value {
    let ms = |ns: u64| ns as f64 / 1e6;
    let shared = node.shared.map(|(id, which)| {
        let which = match which {
            Use::First => "first",
            Use::Again => "again",
        };
        json!({ "id": id, "use": which })
    });
    let mut tree = json!({
        "op": node.op,
        "text": node.text,
        "seriesSelected": node.series_selected,
        "series": node.series,
        "chunks": node.chunks,
        "samples": node.samples,
        "memoryBytes": node.memory_bytes,
        "timeMs": ms(node.time_ns),
        "selfMs": ms(node.self_ns),
        "children": node.children.iter().map(self::tree).collect::<Value>(),
    });
    // Only where there is something to say: most queries share nothing.
    if let (Some(shared), Some(fields)) = (shared, tree.as_object_mut()) {
        fields.insert("shared".to_owned(), shared);
    }
    if let Some(fields) = tree.as_object_mut().filter(|_| node.rollup_windows > 0) {
        let rollups = json!({ "windows": node.rollup_windows, "spanMs": node.rollup_span_ms });
        fields.insert("rollups".to_owned(), rollups);
    }
    tree
}
