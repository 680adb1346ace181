//! Names and signatures of all functions.

use super::param::Param;

/// A function that templates may call, of Go or of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::template) enum Function {
    And,
    Args,
    Call,
    Eq,
    ExternalUrl,
    First,
    Ge,
    GraphLink,
    Gt,
    Html,
    Humanize,
    Humanize1024,
    HumanizeDuration,
    HumanizePercentage,
    HumanizeTimestamp,
    Index,
    Js,
    Label,
    Le,
    Len,
    Lt,
    Match,
    Ne,
    Not,
    Now,
    Or,
    ParseDuration,
    PathPrefix,
    Print,
    Printf,
    Println,
    Query,
    ReReplaceAll,
    SafeHtml,
    Slice,
    SortByLabel,
    StripDomain,
    StripPort,
    Strvalue,
    TableLink,
    Title,
    ToDuration,
    ToLower,
    ToTime,
    ToUpper,
    UrlQueryEscape,
    Urlquery,
    Value,
}

/// Types of the arguments of a function.
#[derive(Debug, Clone, Copy)]
pub(in crate::template) struct Signature {
    pub(in crate::template) fixed: &'static [Param],
    /// Type of any number of further arguments.
    pub(in crate::template) rest: Option<Param>,
}

impl Signature {
    const fn new(fixed: &'static [Param]) -> Signature {
        Signature { fixed, rest: None }
    }

    const fn variadic(fixed: &'static [Param], rest: Param) -> Signature {
        Signature { fixed, rest: Some(rest) }
    }

    /// Returns the type of the argument at `idx`.
    pub(in crate::template) fn param(&self, idx: usize) -> Param {
        self.fixed.get(idx).copied().or(self.rest).unwrap_or(Param::Any)
    }
}

struct Row {
    name: &'static str,
    function: Function,
    signature: Signature,
}

const fn row(name: &'static str, function: Function, signature: Signature) -> Row {
    Row { name, function, signature }
}

const NONE: Signature = Signature::new(&[]);
const TEXT: Signature = Signature::new(&[Param::Text]);
const TEXTS: Signature = Signature::new(&[Param::Text, Param::Text]);
const ANY: Signature = Signature::new(&[Param::Any]);
const ANYS: Signature = Signature::variadic(&[], Param::Any);
const SAMPLE: Signature = Signature::new(&[Param::Sample]);
const REFLECT: Signature = Signature::new(&[Param::Reflect]);
const REFLECT_PAIR: Signature = Signature::new(&[Param::Reflect, Param::Reflect]);
const REFLECTS: Signature = Signature::variadic(&[Param::Reflect], Param::Reflect);

const TABLE: [Row; 48] = [
    row("and", Function::And, REFLECTS),
    row("args", Function::Args, ANYS),
    row("call", Function::Call, REFLECTS),
    row("eq", Function::Eq, REFLECTS),
    row("externalURL", Function::ExternalUrl, NONE),
    row("first", Function::First, Signature::new(&[Param::Samples])),
    row("ge", Function::Ge, REFLECT_PAIR),
    row("graphLink", Function::GraphLink, TEXT),
    row("gt", Function::Gt, REFLECT_PAIR),
    row("html", Function::Html, ANYS),
    row("humanize", Function::Humanize, ANY),
    row("humanize1024", Function::Humanize1024, ANY),
    row("humanizeDuration", Function::HumanizeDuration, ANY),
    row("humanizePercentage", Function::HumanizePercentage, ANY),
    row("humanizeTimestamp", Function::HumanizeTimestamp, ANY),
    row("index", Function::Index, REFLECTS),
    row("js", Function::Js, ANYS),
    row("label", Function::Label, Signature::new(&[Param::Text, Param::Sample])),
    row("le", Function::Le, REFLECT_PAIR),
    row("len", Function::Len, REFLECT),
    row("lt", Function::Lt, REFLECT_PAIR),
    row("match", Function::Match, TEXTS),
    row("ne", Function::Ne, REFLECT_PAIR),
    row("not", Function::Not, REFLECT),
    row("now", Function::Now, NONE),
    row("or", Function::Or, REFLECTS),
    row("parseDuration", Function::ParseDuration, TEXT),
    row("pathPrefix", Function::PathPrefix, NONE),
    row("print", Function::Print, ANYS),
    row("printf", Function::Printf, Signature::variadic(&[Param::Text], Param::Any)),
    row("println", Function::Println, ANYS),
    row("query", Function::Query, TEXT),
    row("reReplaceAll", Function::ReReplaceAll, Signature::new(&[Param::Text, Param::Text, Param::Text])),
    row("safeHtml", Function::SafeHtml, TEXT),
    row("slice", Function::Slice, REFLECTS),
    row("sortByLabel", Function::SortByLabel, Signature::new(&[Param::Text, Param::Samples])),
    row("stripDomain", Function::StripDomain, TEXT),
    row("stripPort", Function::StripPort, TEXT),
    row("strvalue", Function::Strvalue, SAMPLE),
    row("tableLink", Function::TableLink, TEXT),
    row("title", Function::Title, TEXT),
    row("toDuration", Function::ToDuration, ANY),
    row("toLower", Function::ToLower, TEXT),
    row("toTime", Function::ToTime, ANY),
    row("toUpper", Function::ToUpper, TEXT),
    row("urlQueryEscape", Function::UrlQueryEscape, TEXT),
    row("urlquery", Function::Urlquery, ANYS),
    row("value", Function::Value, SAMPLE),
];

impl Function {
    pub(in crate::template) fn from_name(name: &str) -> Option<Function> {
        TABLE.iter().find(|row| row.name == name).map(|row| row.function)
    }

    pub(in crate::template) fn signature(self) -> Signature {
        TABLE.iter().find(|row| row.function == self).map_or(ANYS, |row| row.signature)
    }
}
