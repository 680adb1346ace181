//! Counts of a running query: totals, counts per operator for EXPLAIN and the slow query log, samples per
//! step for query statistics.
//!
//! Invariants: totals cost one atomic add per series; nodes (two clock readings per series and node) and
//! steps are counted only on request. Times of a node include the times of the nodes below it.
//! Not here: choice of the operators with a node, printing of a report.

mod steps;

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use chronolith_base::Clock;
use chronolith_model::SeriesRead;

use crate::grid::{Grid, Windows};
pub use steps::StepSamples;
use steps::StepTally;

/// Nodes of one report; work of further ones counts in the node above them.
pub const TRACE_NODES_MAX: usize = 2000;
/// Bytes of the text of a node.
pub const TRACE_TEXT_BYTES_MAX: usize = 240;

/// Counts of one query, readable while it runs.
#[derive(Default)]
pub struct Trace {
    totals: Counts,
    nodes: Option<Nodes>,
    wants_steps: bool,
    steps: OnceLock<StepTally>,
}

/// Counts of a node, or of a query.
#[derive(Default)]
struct Counts {
    series_selected: AtomicU64,
    chunks: AtomicU64,
    samples: AtomicU64,
    rollup_windows: AtomicU64,
    /// Length of the windows that were counted last.
    rollup_span_ms: AtomicU64,
    memory_bytes: AtomicU64,
    series_yielded: AtomicU64,
    time_ns: AtomicU64,
}

struct Nodes {
    clock: Arc<dyn Clock>,
    list: Mutex<Vec<Arc<Node>>>,
    /// Index of the node whose operator runs.
    current: AtomicUsize,
}

/// One node of the tree.
pub struct Node {
    op: &'static str,
    text: String,
    parent: usize,
    /// Number of the shared subplan, from 1; 0 if it is none.
    shared: AtomicU32,
    use_of_shared: Use,
    counts: Counts,
}

/// Use of a shared subplan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// First use, which computes the part.
    First,
    /// The series of the first use are read again.
    Again,
}

/// A node of a report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceNode {
    /// Kind of the operator: `query` for the whole, `select`, or the word in the query.
    pub op: &'static str,
    /// Text of the node in the query, cut at [`TRACE_TEXT_BYTES_MAX`].
    pub text: String,
    /// Series that its selector selected.
    pub series_selected: u64,
    /// Series that it returned to the node above.
    pub series: u64,
    /// Chunks of the selected series in the range that was read.
    pub chunks: u64,
    /// Samples that were read, and values of roll-ups.
    pub samples: u64,
    /// Windows of roll-ups among them.
    pub rollup_windows: u64,
    /// Length of these windows in milliseconds; 0 if there are none.
    pub rollup_span_ms: u64,
    /// Memory that it reserved.
    pub memory_bytes: u64,
    /// Time in it and in the nodes below.
    pub time_ns: u64,
    /// Time in it alone.
    pub self_ns: u64,
    /// Number of the shared subplan, from 1, and its use.
    pub shared: Option<(u32, Use)>,
    /// Nodes below, in the order of the plan.
    pub children: Vec<TraceNode>,
}

impl Trace {
    /// Totals only.
    #[must_use]
    pub fn new() -> Trace {
        Trace::default()
    }

    /// Counts per node as well.
    #[must_use]
    pub fn with_nodes(mut self, clock: Arc<dyn Clock>) -> Trace {
        let root = Node::new("query", "", 0, Use::First);
        let list = Mutex::new(vec![Arc::new(root)]);
        self.nodes = Some(Nodes { clock, list, current: AtomicUsize::new(0) });
        self
    }

    /// Counts samples per step as well.
    #[must_use]
    pub fn with_steps(mut self) -> Trace {
        self.wants_steps = true;
        self
    }

    /// Series that selectors found so far.
    #[must_use]
    pub fn series_selected(&self) -> u64 {
        self.totals.series_selected.load(Ordering::Relaxed)
    }

    /// Samples that were read so far.
    #[must_use]
    pub fn samples_read(&self) -> u64 {
        self.totals.samples.load(Ordering::Relaxed)
    }

    /// Windows of roll-ups that were used so far.
    #[must_use]
    pub fn rollup_windows(&self) -> u64 {
        self.totals.rollup_windows.load(Ordering::Relaxed)
    }

    /// Samples per step, if requested and if the query has started.
    #[must_use]
    pub fn step_samples(&self) -> Option<StepSamples> {
        self.steps.get().map(StepTally::report)
    }

    /// The tree of nodes, if requested. `text` is the text of the query.
    #[must_use]
    pub fn report(&self, text: &str) -> Option<TraceNode> {
        let nodes = self.nodes.as_ref()?;
        let list = nodes.list.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Children come after their parents, so one walk from the end hands all of them upwards.
        let mut built: Vec<TraceNode> = list.iter().map(|node| node.report()).collect();
        while let Some(mut node) = built.pop() {
            node.children.reverse();
            let below_ns: u64 = node.children.iter().map(|child| child.time_ns).sum();
            node.self_ns = node.time_ns.saturating_sub(below_ns);
            let Some(parent) = list.get(built.len()).map(|node| node.parent) else { continue };
            match built.get_mut(parent) {
                Some(above) => above.children.push(node),
                None => {
                    node.text = cut(text);
                    node.time_ns = node.time_ns.max(below_ns);
                    return Some(node);
                }
            }
        }
        None
    }

    /// Starts counting with the steps of the query.
    pub fn begin(&self, grid: Grid) {
        if self.wants_steps {
            self.steps.get_or_init(|| StepTally::new(grid));
        }
    }

    /// Returns true if samples are counted per step.
    pub fn counts_steps(&self) -> bool {
        self.wants_steps
    }

    /// A new child of the current node; `None` if nodes are not recorded, or too many.
    pub fn node(&self, op: &'static str, text: &str, of_shared: Use) -> Option<NodeHandle<'_>> {
        let nodes = self.nodes.as_ref()?;
        let mut list = nodes.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() >= TRACE_NODES_MAX {
            return None;
        }
        let parent = nodes.current.load(Ordering::Relaxed);
        let node = Arc::new(Node::new(op, text, parent, of_shared));
        list.push(node.clone());
        Some(NodeHandle { nodes, idx: list.len() - 1, node })
    }

    /// Counts series that a selector found.
    pub fn count_selected(&self, batch: &[SeriesRead]) {
        let series = batch.len() as u64;
        self.totals.series_selected.fetch_add(series, Ordering::Relaxed);
        self.at_current(|counts| {
            let chunks: u64 = batch.iter().map(|one| one.samples.chunk_count_hint() as u64).sum();
            counts.series_selected.fetch_add(series, Ordering::Relaxed);
            counts.chunks.fetch_add(chunks, Ordering::Relaxed);
        });
    }

    /// Counts samples that were read from the source.
    pub fn count_read(&self, samples: u64) {
        self.totals.samples.fetch_add(samples, Ordering::Relaxed);
        self.at_current(|counts| {
            counts.samples.fetch_add(samples, Ordering::Relaxed);
        });
    }

    /// Counts windows of a roll-up that were used instead of samples.
    pub fn count_rolled_up(&self, span_ms: i64, windows: u64) {
        let add = |counts: &Counts| {
            counts.rollup_windows.fetch_add(windows, Ordering::Relaxed);
            counts.rollup_span_ms.store(span_ms.unsigned_abs(), Ordering::Relaxed);
        };
        add(&self.totals);
        self.at_current(add);
    }

    /// Counts memory that an operator reserved.
    pub fn count_memory(&self, bytes: u64) {
        self.at_current(|counts| {
            counts.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
        });
    }

    /// Notes that the steps of `inner` belong to a subquery, which `windows` take.
    pub fn note_subquery(&self, inner: Grid, windows: Windows) {
        if let Some(steps) = self.steps.get() {
            steps.note_subquery(inner, windows);
        }
    }

    /// Counts the values of an instant selector, one per step.
    pub fn tally_values(&self, grid: Grid, values: &[f64]) {
        if let Some(steps) = self.steps.get() {
            steps.add_values(grid, values);
        }
    }

    /// Counts the samples that a function sees in its windows.
    pub fn tally_windows(&self, windows: &Windows, times: &[i64]) {
        if let Some(steps) = self.steps.get() {
            steps.add_windows(windows, times);
        }
    }

    /// Counts the samples that windows see for the first time.
    pub fn tally_read(&self, windows: &Windows, times: &[i64]) {
        if let Some(steps) = self.steps.get() {
            steps.add_read(windows, times);
        }
    }

    fn at_current(&self, add: impl FnOnce(&Counts)) {
        let Some(nodes) = &self.nodes else { return };
        let current = nodes.current.load(Ordering::Relaxed);
        let node = nodes.list.lock().unwrap_or_else(PoisonError::into_inner).get(current).cloned();
        if let Some(node) = node {
            add(&node.counts);
        }
    }
}

/// Handle of a node: work that is run by it is counted in the node.
pub struct NodeHandle<'t> {
    nodes: &'t Nodes,
    idx: usize,
    node: Arc<Node>,
}

impl NodeHandle<'_> {
    /// Runs `work` and counts it in this node.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.nodes.current.swap(self.idx, Ordering::Relaxed);
        let started_ns = self.nodes.clock.mono_ns();
        let done = work();
        let took_ns = self.nodes.clock.mono_ns().saturating_sub(started_ns);
        self.node.counts.time_ns.fetch_add(took_ns, Ordering::Relaxed);
        self.nodes.current.store(before, Ordering::Relaxed);
        done
    }

    /// The node itself, for marks that are made later.
    pub fn node(&self) -> Arc<Node> {
        self.node.clone()
    }

    /// Counts a series that is returned to the node above.
    pub fn count_yielded(&self) {
        self.node.counts.series_yielded.fetch_add(1, Ordering::Relaxed);
    }
}

impl Node {
    fn new(op: &'static str, text: &str, parent: usize, use_of_shared: Use) -> Node {
        let shared = AtomicU32::new(0);
        let counts = Counts::default();
        Node { op, text: cut(text), parent, shared, use_of_shared, counts }
    }

    /// Marks the node as shared subplan `id`.
    pub fn mark_shared(&self, id: u32) {
        self.shared.store(id, Ordering::Relaxed);
    }

    fn report(&self) -> TraceNode {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TraceNode {
            op: self.op,
            text: self.text.clone(),
            series_selected: load(&self.counts.series_selected),
            series: load(&self.counts.series_yielded),
            chunks: load(&self.counts.chunks),
            samples: load(&self.counts.samples),
            rollup_windows: load(&self.counts.rollup_windows),
            rollup_span_ms: load(&self.counts.rollup_span_ms),
            memory_bytes: load(&self.counts.memory_bytes),
            time_ns: load(&self.counts.time_ns),
            self_ns: 0,
            shared: match self.shared.load(Ordering::Relaxed) {
                0 => None,
                id => Some((id, self.use_of_shared)),
            },
            children: Vec::new(),
        }
    }
}

/// The beginning of a text.
fn cut(text: &str) -> String {
    if text.len() <= TRACE_TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let mut end = TRACE_TEXT_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", text.get(..end).unwrap_or_default())
}
