//! Random queries that the parser accepts, as trees that can be made smaller.

use std::fmt;

use chronolith_base::Rng;
use chronolith_promql::ast::ValueType;
use chronolith_promql::functions::{self, Function};

use crate::series::Dataset;

/// Stands for a child in the text of a node.
const HOLE: char = '§';
/// Operators, functions and aggregations inside each other.
const DEPTH_MAX: u32 = 4;

/// Type of a node's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Scalar,
    Vector,
    Matrix,
}

/// A part of a query.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    kind: Type,
    /// With a [`HOLE`] for each child.
    text: String,
    children: Vec<Node>,
}

impl Node {
    /// Without children.
    pub(crate) fn leaf(kind: Type, text: &str) -> Node {
        Node { kind, text: text.to_owned(), children: Vec::new() }
    }

    fn of(kind: Type, text: impl Into<String>, children: Vec<Node>) -> Node {
        Node { kind, text: text.into(), children }
    }

    /// The same query with something left out, most left out first.
    pub(crate) fn smaller(&self) -> Vec<Node> {
        let mut all = Vec::new();
        self.descendants(self.kind, &mut all);
        for (at, child) in self.children.iter().enumerate() {
            let simple = match child.kind {
                Type::Scalar => "1",
                Type::Vector => "temp",
                Type::Matrix => "temp[5m]",
            };
            if child.text != simple && !child.children.is_empty() {
                all.push(self.with_child(at, Node::leaf(child.kind, simple)));
            }
            all.extend(child.smaller().into_iter().map(|smaller| self.with_child(at, smaller)));
        }
        all
    }

    fn with_child(&self, at: usize, child: Node) -> Node {
        let mut copy = self.clone();
        copy.children[at] = child;
        copy
    }

    fn descendants(&self, kind: Type, out: &mut Vec<Node>) {
        for child in &self.children {
            if child.kind == kind {
                out.push(child.clone());
            }
            child.descendants(kind, out);
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut children = self.children.iter();
        for (at, piece) in self.text.split(HOLE).enumerate() {
            if at > 0 {
                match children.next() {
                    Some(child) => write!(f, "{child}")?,
                    None => return Err(fmt::Error),
                }
            }
            f.write_str(piece)?;
        }
        Ok(())
    }
}

const METRICS: &[&str] = &[
    "requests_total",
    "errors_total",
    "temp",
    "up",
    "wild",
    "build",
    "limit",
    "lat_bucket",
    "lat_count",
    "nothing",
    "h_exp",
    "h_exp",
    "h_gauge",
    "h_custom",
    "h_mixed",
];
const LABELS: &[&str] = &["job", "instance", "path", "version", "le", "none", "__name__"];
const MATCHERS: &[&str] = &[
    r#"job="api""#,
    r#"job!="db""#,
    r#"instance=~"1.*""#,
    r#"instance!~"0|2""#,
    r#"path="/x""#,
    r#"path="""#,
    r#"none="x""#,
    r#"job=~"api|db""#,
];
const NAMELESS: &[&str] = &[
    r#"{__name__=~"temp|up"}"#,
    r#"{job="api"}"#,
    r#"{instance="1",job=~".+"}"#,
    r#"{__name__!~"lat.*|even.*",instance="0"}"#,
    r#"{__name__=~".*_total",path!="/"}"#,
    r#"{"m.é"}"#,
    r#"{"m.é","la bel"=~"x|"}"#,
    r#"{__name__=~"h_.*",instance!="1"}"#,
];
const DURATIONS: &[&str] = &[
    "1m",
    "2m",
    "5m",
    "90s",
    "30s",
    "15s",
    "10m",
    "1h",
    "1ms",
    "61s137ms",
    "1m1ms",
    "(1m+30s)",
    "300",
    "step()",
    "(step() + 1m)",
    "max_of(step(), 45s)",
    "min_of(range() + 1s, 5m)",
    "2 * 1m",
    "5m / 2",
    "7m % 4m",
    "2 ^ 6",
    "range()",
];
const OFFSETS: &[&str] = &[
    "1m",
    "-1m",
    "30s",
    "5m",
    "1m30s123ms",
    "-7s",
    "0s",
    "-(30s)",
    "step()",
    "-step()",
    "(range() / 2)",
    "-min_of(1m, range())",
    "(1m - 2m)",
    "max_of(step(), range())",
];
const SUBQUERY_STEPS: &[&str] =
    &["", "", "30s", "15s", "7s", "1m", "2m", "61s", "step()", "(15s * 2)", "max_of(step(), 10s)"];
const NUMBERS: &[&str] = &[
    "0", "1", "2", "3", "5", "0.5", "0.9", "0.99", "-1", "1.5", "NaN", "Inf", "-Inf", "1e3", "100", "1e-3",
    "0x10",
];
const ARITHMETIC: &[&str] = &["+", "-", "*", "/", "%", "^", "atan2"];
const TRIMS: &[&str] = &["</", ">/"];
const COMPARISONS: &[&str] = &["==", "!=", "<", "<=", ">", ">="];
const SETS: &[&str] = &["and", "or", "unless"];
const REGEXES: &[&str] = &["(.*)", "(a|d)(.*)", "1(.?)", "", ".+", "(?P<first>.).*", "[", "x", "/(.*)"];
const TEMPLATES: &[&str] = &["$1", "x-$1", "", "${first}", "$2$1", "$$", "v$0", "10"];
/// Functions whose arguments are not just of some type.
const LEFT_OUT: &[&str] = &["info"];
/// Second arguments of `info`.
const INFO_SELECTORS: &[&str] = &[
    "",
    ", {version=~\"v.*\"}",
    ", {__name__=\"target_info\"}",
    ", {__name__=~\"target_info|build\", version=~\".+\"}",
    ", {zone=\"a\"}",
    ", {none=\"\"}",
    ", {job=\"api\"}",
    ", {__name__!=\"target_info\"}",
    ", {__name__=~\".+_info\"}",
    ", {__name__=~\".+_info\", kind!=\"k\"}",
    ", {version!=\"v1\"}",
    ", {zone=\"b\", zone!=\"c\"}",
];
/// Names in `by`, `on` and their like that need quotes.
const QUOTED: &[&str] = &["\"la bel\"", "\"job\""];
const FILLS: &[&str] = &["0", "7", "-1.5", "NaN", "-Inf"];

/// Makes queries about a dataset.
pub(crate) struct Generator<'g> {
    pub(crate) rng: &'g Rng,
    pub(crate) dataset: &'g Dataset,
}

impl Generator<'_> {
    /// A whole query.
    pub(crate) fn query(&self) -> Node {
        let depth = 1 + self.below(DEPTH_MAX);
        match self.below(20) {
            0 => self.scalar(depth),
            _ => self.vector(depth),
        }
    }

    fn below(&self, bound: u32) -> u32 {
        self.rng.below(u64::from(bound)) as u32
    }

    fn pick<'t>(&self, from: &[&'t str]) -> &'t str {
        from[self.rng.below(from.len() as u64) as usize]
    }

    fn vector(&self, depth: u32) -> Node {
        if depth == 0 {
            return self.selector();
        }
        match self.below(20) {
            0..=1 => self.selector(),
            2..=5 => self.aggregation(depth - 1),
            6..=10 => self.call(ValueType::Vector, depth - 1),
            11..=16 => self.binary(depth - 1),
            17 => Node::of(Type::Vector, "-§", vec![self.vector(depth - 1)]),
            18 => Node::of(Type::Vector, "(§)", vec![self.vector(depth - 1)]),
            _ => self.labels_call(depth - 1),
        }
    }

    fn scalar(&self, depth: u32) -> Node {
        if depth == 0 || self.below(2) == 0 {
            return Node::leaf(Type::Scalar, self.pick(NUMBERS));
        }
        match self.below(4) {
            0 => Node::of(Type::Scalar, "scalar(§)", vec![self.vector(depth - 1)]),
            1 => {
                let (op, bool_word) = match self.below(2) {
                    0 => (self.pick(ARITHMETIC), ""),
                    _ => (self.pick(COMPARISONS), " bool"),
                };
                let children = vec![self.scalar(depth - 1), self.scalar(depth - 1)];
                Node::of(Type::Scalar, format!("(§ {op}{bool_word} §)"), children)
            }
            2 => Node::of(Type::Scalar, "-§", vec![self.scalar(depth - 1)]),
            _ => self.call(ValueType::Scalar, depth - 1),
        }
    }

    fn shifted(&self) -> String {
        let mut text = String::new();
        if self.below(6) == 0 {
            text = format!(" offset {}", self.pick(OFFSETS));
        }
        if self.below(8) == 0 {
            let at = match self.below(4) {
                0 => "start()".to_owned(),
                1 => "end()".to_owned(),
                _ => {
                    let at_ms =
                        self.dataset.start_ms + i64::from(self.below(1200)) * 1000 + i64::from(self.below(3));
                    format!("{}", at_ms as f64 / 1000.0)
                }
            };
            text = if self.below(2) == 0 { format!(" @ {at}{text}") } else { format!("{text} @ {at}") };
        }
        text
    }

    fn selected(&self) -> String {
        if self.below(8) == 0 {
            return self.pick(NAMELESS).to_owned();
        }
        let metric = self.pick(METRICS);
        match self.below(3) {
            0 => format!("{metric}{{{}}}", self.pick(MATCHERS)),
            _ => metric.to_owned(),
        }
    }

    fn selector(&self) -> Node {
        let extension = match self.below(60) {
            0..=3 => " smoothed",
            4 => " anchored",
            _ => "",
        };
        Node::leaf(Type::Vector, &format!("{}{}{extension}", self.selected(), self.shifted()))
    }

    fn matrix(&self, depth: u32) -> Node {
        let (range, shift) = (self.pick(DURATIONS), self.shifted());
        if depth == 0 || self.below(3) > 0 {
            let extension = self.pick(&["", "", "", "", "", " anchored", " smoothed"]);
            return Node::leaf(Type::Matrix, &format!("{}[{range}]{shift}{extension}", self.selected()));
        }
        let step = self.pick(SUBQUERY_STEPS);
        let inner = if self.below(8) == 0 { self.scalar(depth - 1) } else { self.vector(depth - 1) };
        if inner.kind == Type::Scalar {
            return Node::of(Type::Matrix, format!("vector(§)[{range}:{step}]{shift}"), vec![inner]);
        }
        Node::of(Type::Matrix, format!("(§)[{range}:{step}]{shift}"), vec![inner])
    }

    fn label_list(&self) -> String {
        let count = self.below(3);
        let label = || if self.below(10) == 0 { self.pick(QUOTED) } else { self.pick(LABELS) };
        (0..count).map(|_| label()).collect::<Vec<_>>().join(", ")
    }

    fn aggregation(&self, depth: u32) -> Node {
        let grouping = match self.below(4) {
            0 => String::new(),
            1 => format!(" without ({}) ", self.label_list()),
            _ => format!(" by ({}) ", self.label_list()),
        };
        let inner = self.vector(depth);
        let plain = ["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"];
        let ranked = ["topk", "bottomk", "quantile", "limitk", "limit_ratio"];
        match self.below(20) {
            0..=10 => Node::of(Type::Vector, format!("{}{grouping}(§)", self.pick(&plain)), vec![inner]),
            11..=18 => {
                let param = self.scalar(depth.min(2));
                Node::of(Type::Vector, format!("{}{grouping}(§, §)", self.pick(&ranked)), vec![param, inner])
            }
            _ => {
                let label = self.pick(&["v", "job", "instance", "__name__", "", "a b", "le"]);
                Node::of(Type::Vector, format!("count_values{grouping}(\"{label}\", §)"), vec![inner])
            }
        }
    }

    fn call(&self, returns: ValueType, depth: u32) -> Node {
        let wanted = |f: &&Function| {
            f.returns == returns && !LEFT_OUT.contains(&f.name) && !f.args.contains(&ValueType::String)
        };
        let all: Vec<&Function> = functions::all().iter().filter(wanted).collect();
        let function = all[self.rng.below(all.len() as u64) as usize];
        let count = match function.variadic {
            0 => function.args.len(),
            _ => function.args_min() + self.below(2) as usize,
        };
        let is_histogram = function.name.starts_with("histogram");
        let mut children = Vec::new();
        for idx in 0..count {
            children.push(match function.arg_type(idx) {
                Some(ValueType::Scalar) => self.scalar(depth.min(2)),
                Some(ValueType::Matrix) => self.matrix(depth),
                _ if is_histogram && self.below(4) > 0 => self.buckets(),
                _ => self.vector(depth),
            });
        }
        let kind = if returns == ValueType::Scalar { Type::Scalar } else { Type::Vector };
        let holes = vec![HOLE.to_string(); count].join(", ");
        Node::of(kind, format!("{}({holes})", function.name), children)
    }

    fn buckets(&self) -> Node {
        let text = match self.below(10) {
            8 => self
                .pick(&["h_exp + on (job, instance) h_custom", "{__name__=~\"h_.*\"}", "h_custom </ 2"])
                .to_owned(),
            9 => format!("sum_over_time(h_mixed[{}])", self.pick(DURATIONS)),
            5 => self.pick(&["h_exp", "h_custom", "h_mixed", "sum by (job) (h_exp)"]).to_owned(),
            6 => format!("rate({}[{}])", self.pick(&["h_exp", "h_custom", "h_mixed"]), self.pick(DURATIONS)),
            7 => format!("sum(rate({}[{}]))", self.pick(&["h_exp", "h_custom"]), self.pick(DURATIONS)),
            0 => "lat_bucket".to_owned(),
            1 => "even_bucket".to_owned(),
            2 => "sum by (le) (rate(lat_bucket[5m]))".to_owned(),
            _ => format!("rate({{__name__=~\"lat_bucket|even_bucket\"}}[{}])", self.pick(DURATIONS)),
        };
        Node::leaf(Type::Vector, &text)
    }

    /// Functions with texts among their arguments.
    fn labels_call(&self, depth: u32) -> Node {
        let inner = vec![self.vector(depth)];
        let target = self.pick(&["new", "job", "instance", "__name__", "", "le", "x y", "la bel"]);
        let text = match self.below(7) {
            6 => format!("info(§{})", self.pick(INFO_SELECTORS)),
            0 | 1 => format!(
                "label_replace(§, \"{target}\", \"{}\", \"{}\", \"{}\")",
                self.pick(TEMPLATES),
                self.pick(LABELS),
                self.pick(REGEXES)
            ),
            2 => format!(
                "label_join(§, \"{target}\", \"-\", \"{}\", \"{}\")",
                self.pick(LABELS),
                self.pick(LABELS)
            ),
            3 => format!("sort_by_label(§, \"{}\", \"{}\")", self.pick(LABELS), self.pick(LABELS)),
            4 => format!("sort_by_label_desc(§, \"{}\", \"{}\")", self.pick(LABELS), self.pick(LABELS)),
            _ => format!("histogram_quantiles(§, \"q\", {}, {})", self.pick(NUMBERS), self.pick(NUMBERS)),
        };
        Node::of(Type::Vector, text, inner)
    }

    fn binary(&self, depth: u32) -> Node {
        let (left, right) = match self.below(6) {
            0 => (self.scalar(depth), self.vector(depth)),
            1 => (self.vector(depth), self.scalar(depth)),
            _ => (self.vector(depth), self.vector(depth)),
        };
        let both = left.kind == Type::Vector && right.kind == Type::Vector;
        let mut set = false;
        let op = match self.below(8) {
            7 => self.pick(TRIMS).to_owned(),
            0..=2 => self.pick(ARITHMETIC).to_owned(),
            3 | 4 => {
                let bool_word = if self.below(3) == 0 { " bool" } else { "" };
                format!("{}{bool_word}", self.pick(COMPARISONS))
            }
            5 | 6 if both => {
                set = true;
                self.pick(SETS).to_owned()
            }
            _ => "-".to_owned(),
        };
        let matching = if both { self.matching(set) } else { String::new() };
        Node::of(Type::Vector, format!("(§ {op}{matching} §)"), vec![left, right])
    }

    fn matching(&self, set: bool) -> String {
        let labels = match self.below(4) {
            0 => self.label_list(),
            1 => "job".to_owned(),
            2 => "job, instance".to_owned(),
            _ => return String::new(),
        };
        let word = if self.below(3) == 0 { "ignoring" } else { "on" };
        let mut text = format!(" {word} ({labels})");
        if set {
            return text;
        }
        if self.below(2) == 0 {
            let side = if self.below(3) == 0 { "group_right" } else { "group_left" };
            let include = self.pick(&[
                "",
                "version",
                "none",
                "path",
                "path, version",
                "__name__",
                "le",
                "job",
                "\"la bel\"",
            ]);
            text = format!("{text} {side} ({include})");
        }
        match self.below(16) {
            0..=2 => {
                let fill = self.pick(&["fill", "fill_left", "fill_right"]);
                text = format!("{text} {fill}({})", self.pick(FILLS));
            }
            3 => {
                text = format!("{text} fill_left({}) fill_right({})", self.pick(FILLS), self.pick(FILLS));
            }
            _ => {}
        }
        text
    }
}
