//! Requests by grammar from a seed: targets over all functions, times, zones, formats, find.
//!
//! Invariants: the same seed makes the same requests; each function is as likely as any other.
//! Not here: arguments of a function (`signatures` below is the table).

mod signatures;

use std::collections::BTreeMap;

use chronolith_base::rng::Rng;
use serde_json::{Value, json};

use crate::dataset::{LENGTH, START};
use signatures::SIGNATURES;

/// One request of either side.
pub(crate) struct Request {
    pub(crate) path: &'static str,
    pub(crate) targets: Vec<String>,
    params: BTreeMap<String, String>,
    /// Functions of the targets.
    pub(crate) functions: Vec<String>,
}

impl Request {
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(String::as_str)
    }

    pub(crate) fn template(&self) -> BTreeMap<String, String> {
        let named = self.params.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix("template[")?.strip_suffix(']')?;
            Some((name.to_owned(), value.clone()))
        });
        named.collect()
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut params = json!(self.params);
        if let Some(params) = params.as_object_mut()
            && self.path == "/render"
        {
            params.insert("target".to_owned(), json!(self.targets));
        }
        json!({"path": self.path, "params": params})
    }

    pub(crate) fn describe(&self) -> String {
        format!("{} {:?} {:?}", self.path, self.targets, self.params)
    }
}

/// Makes requests.
pub(crate) struct Generator {
    rng: Rng,
    functions: Vec<String>,
}

const LEAVES: &[&str] = &[
    "servers.web1.cpu.user",
    "servers.*.cpu.user",
    "servers.web*.cpu.*",
    "servers.{web1,db1}.mem.used",
    "servers.web[12].net.bytes",
    "servers.*.disk.util",
    "servers.db?.cpu.idle",
    "servers.web2.*.*",
    "special.*",
    "special.negative",
    "special.periodic",
    "special.empty",
    "special.single",
    "special.zero",
    "special.huge",
    "special.constant",
    "odd.a-b_c.x:y",
    "odd.123.45",
    "odd.a%b.*",
    "odd.*.Case",
    "no.such.path",
    "servers.web1.cpu.{user,idle}",
    "servers.*.net.bytes",
    "servers.w*1.mem.used",
    "special.{negative,huge}",
    "servers.db1.*.*",
    "servers.**.user",
    "**.util",
    "special.**",
    "seriesByTag('name=load')",
    "seriesByTag('dc=ams','name=~^(load|free)')",
    "seriesByTag('host!=a','dc=~f')",
    "seriesByTag('name=requests','host=b')",
];
const INTERVALS: &[&str] = &["10s", "1min", "5min", "90s", "7min", "1h", "30min", "1hour", "1d", "100s"];
const AGGREGATIONS: &[&str] = &[
    "sum", "average", "avg", "min", "max", "last", "median", "count", "diff", "stddev", "range", "multiply",
    "avg_zero", "rangeOf", "total", "current",
];
const TEXTS: &[&str] = &["name", "a b", "x;y", "ümlaut", "", "with 'quote'"];
const REGEXES: &[(&str, &str)] = &[
    ("^servers\\.(\\w+)\\.(.*)$", "\\2 of \\1"),
    ("web(\\d+)", "node\\1"),
    ("cpu", ""),
    ("(?<=web)1", "X"),
    ("[aeiou]+", "<\\g<0>>"),
    ("(a)|(u)", "[\\1\\2]"),
    ("\\.", "/"),
    ("x*", "-"),
    ("(?P<w>cpu|mem)", "\\g<w>!"),
    ("$", "end"),
];
const PATTERNS: &[&str] =
    &["web", "^servers\\.db", "cpu|mem", "(?!.*web)", "1$", "[0-9]{2}", "user\\)?$", "zzz"];
const NUMBERS: &[&str] =
    &["2", "0.5", "-1", "10", "100", "3.7", "1e3", "0", "50", "'5'", "0.001", "-2.5", "1000000", "95", "33"];
const WHOLES: &[&str] = &["1", "2", "3", "0", "5", "-1", "10", "-2", "7"];
const ZONES: &[&str] = &["UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "No/Zone"];

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Generator { rng: Rng::from_seed(seed), functions: Vec::new() }
    }

    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.rng.below(bound as u64)).unwrap_or(0)
    }

    fn one_in(&self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<'a>(&self, items: &[&'a str]) -> &'a str {
        items.get(self.below(items.len())).copied().unwrap_or("")
    }

    /// A request; of the function `only`, if it is given.
    pub(crate) fn request(&mut self, only: Option<&str>) -> Request {
        if only.is_none() && self.one_in(25) {
            return self.find_request();
        }
        self.functions.clear();
        let mut params = BTreeMap::new();
        let target_count = if self.one_in(8) { 2 } else { 1 };
        let mut targets: Vec<String> = (0..target_count).map(|_| self.target(only)).collect();
        self.range(&mut params);
        if self.one_in(12) {
            let body = self.pick(&[
                "scale($1.web1.cpu.user,$2)",
                "alias($1.db1.$2.used,'x')",
                "sumSeries($1.*.mem.$2)",
                "$1.web1.cpu.user",
            ]);
            let values = self.pick(&["'servers',3", "'servers','mem'", "\"servers\",\"used\"", "'servers'"]);
            targets.push(format!("template({body},{values})"));
            if self.one_in(2) {
                params.insert("template[1]".to_owned(), "servers".to_owned());
            }
        }
        for (name, values, odds) in [
            ("maxDataPoints", &["1", "7", "50", "100", "800"][..], 4),
            ("noNullPoints", &["1"], 10),
            ("xFilesFactor", &["0.5", "0.9", "0.1"], 8),
            ("tz", ZONES, 5),
            ("format", &["raw", "csv", "dygraph", "rickshaw"], 10),
        ] {
            if self.one_in(odds) {
                params.insert(name.to_owned(), self.pick(values).to_owned());
            }
        }
        Request { path: "/render", targets, params, functions: std::mem::take(&mut self.functions) }
    }

    fn find_request(&self) -> Request {
        let queries = [
            "*",
            "servers.*",
            "servers.web*.cpu.*",
            "servers.{web1,db1}.*",
            "special.z*",
            "odd.*",
            "odd.*.*",
            "no.*",
            "servers.web1",
            "servers..cpu",
            "servers.**",
            "servers.**.user",
            "**.cpu",
            "servers.**.web1.**.idle",
        ];
        let mut params = BTreeMap::from([("query".to_owned(), self.pick(&queries).to_owned())]);
        for (name, values) in [
            ("format", &["treejson", "completer", "json", "nodelist"][..]),
            ("wildcards", &["0", "1"]),
            ("position", &["0", "1", "-1"]),
            ("leavesOnly", &["0", "1"]),
        ] {
            params.insert(name.to_owned(), self.pick(values).to_owned());
        }
        Request { path: "/metrics/find", targets: Vec::new(), params, functions: vec!["find".to_owned()] }
    }

    fn range(&self, params: &mut BTreeMap<String, String>) {
        let end = START + LENGTH;
        params.insert("now".to_owned(), end.to_string());
        let minutes = [5, 10, 13, 30, 60, 61].get(self.below(6)).copied().unwrap_or(10);
        let until = START + 3600 + i64::try_from(self.below(7200)).unwrap_or(0);
        match self.below(11) {
            // Over now, which whisper does not go beyond.
            10 => {
                params.insert("from".to_owned(), (end - minutes * 60).to_string());
                params.insert("until".to_owned(), (end + minutes * 30).to_string());
            }
            0 => {
                let forms = [
                    "-1h",
                    "-30min",
                    "-90min",
                    "-1h30min",
                    "-10min",
                    "-3600s",
                    "1700000000",
                    "-1m",
                    "5min",
                    "-1",
                    "noon",
                    "6am_today",
                ];
                params.insert("from".to_owned(), self.pick(&forms).to_owned());
            }
            1 => {
                let forms = [
                    "now-2h",
                    "midnight+25h",
                    "23:10_20231114",
                    "11/14/23",
                    "noon_yesterday",
                    "23:00_yesterday",
                    "tuesday",
                    "00:30",
                    "nov14",
                    "12am",
                    "teatime",
                    "10:30pm",
                    "20231114",
                    "monday+1d",
                ];
                params.insert("from".to_owned(), self.pick(&forms).to_owned());
                let forms = [
                    "now",
                    "-1h",
                    "now-10min",
                    "now+10min",
                    "23:50_20231114",
                    "12:10am",
                    "00:40_20231115",
                    "today",
                ];
                params.insert("until".to_owned(), self.pick(&forms).to_owned());
            }
            2 => {
                params.insert("from".to_owned(), until.to_string());
                params.insert("until".to_owned(), (until - minutes * 60).to_string());
            }
            _ => {
                params.insert("from".to_owned(), (until - minutes * 60).to_string());
                params.insert("until".to_owned(), until.to_string());
            }
        }
    }

    fn target(&mut self, only: Option<&str>) -> String {
        if only.is_none() && self.one_in(30) {
            return self.odd_target();
        }
        let idx = match only {
            Some(name) => SIGNATURES.iter().position(|(known, _)| *known == name).unwrap_or(0),
            None => self.below(SIGNATURES.len()),
        };
        self.call(idx, 2)
    }

    fn odd_target(&self) -> String {
        let targets = [
            "scale(servers.web1.cpu.user",
            "scale(servers.web1.cpu.user,2))",
            "servers.web1.cpu.user)",
            "sumSeries( servers.web1.cpu.user , servers.db1.cpu.user )",
            "servers.web1.cpu.user|scale(2)|alias('x')",
            "SumSeries(servers.*.cpu.user)",
            "scale(servers.web1.cpu.user,factor=3)",
            "scale(servers.web1.cpu.user,)",
            "odd.123.45",
            "alias(odd.k\\=v.x,'e')",
            "odd.k=v.x",
            "sumSeries(odd.true.none)",
            "limit(servers.*.cpu.user,TRUE)",
            "''",
            "5",
            "  servers.web1.cpu.user  ",
            "servers.{web1,web2.cpu.user",
            "servers.web1.cpu.user extra",
            "group(none)",
            "sumSeries()",
            "offsetToZero(areaBetween(servers.web1.cpu.{user,idle}))",
            "aliasSub(verticalLine('1700008000'),'a','b')",
            "alias(servers.web1.cpu.user,\"a\\\"b\")",
            "scale(servers.web1.cpu.user,inf)",
            "legendValue(servers.web1.cpu.user,'avg','si')",
            "summarize(servers.web1.cpu.user,'1min','foo')",
            "movingAverage(servers.web1.cpu.user,-5)",
            "offset(servers.web1.cpu.user,none)",
            "servers.web1.cpu.user | offset(1)",
            "seriesByTag('name=')",
            "seriesByTag('name')",
            "seriesByTag('dc=ams','dc!=~x')",
            "sortByName(servers.*.cpu.user,reverse=true)",
        ];
        self.pick(&targets).to_owned()
    }

    fn call(&mut self, idx: usize, depth: usize) -> String {
        let Some((name, signature)) = SIGNATURES.get(idx) else { return String::new() };
        self.functions.push((*name).to_owned());
        let mut args = Vec::new();
        for parameter in signature.split_whitespace() {
            let (required, kind) = match parameter.strip_prefix('?') {
                Some(kind) => (false, kind),
                None => (true, parameter),
            };
            if !required && self.one_in(2) {
                break;
            }
            let (kind, count) = match kind.strip_suffix('*') {
                Some(kind) => (kind, 1 + self.below(3)),
                None => (kind, 1),
            };
            for _ in 0..count {
                args.push(self.argument(kind, depth));
            }
        }
        format!("{name}({})", args.join(","))
    }

    fn argument(&mut self, kind: &str, depth: usize) -> String {
        let quoted =
            |text: &str| if text.contains('\'') { format!("\"{text}\"") } else { format!("'{text}'") };
        match kind {
            "L" if depth > 0 && self.one_in(3) => {
                let idx = self.below(SIGNATURES.len());
                self.call(idx, depth - 1)
            }
            "L" => self.pick(LEAVES).to_owned(),
            "N" => self.pick(NUMBERS).to_owned(),
            "I" => self.pick(WHOLES).to_owned(),
            "P" => quoted(self.pick(INTERVALS)),
            "H" => quoted(self.pick(&["1min", "-10min", "+5min", "1h", "90s"])),
            "W" if self.one_in(2) => quoted(self.pick(&["1min", "5min", "30s", "100s"])),
            "W" => self.pick(&["1", "2", "5", "10", "30"]).to_owned(),
            "A" => quoted(self.pick(AGGREGATIONS)),
            "C" if self.one_in(3) => quoted(self.pick(&[
                "sumSeries",
                "averageSeries",
                "maxSeries",
                "sum",
                "avg",
                "minSeries",
                "multiplySeries",
                "rangeOfSeries",
            ])),
            "C" => quoted(self.pick(AGGREGATIONS)),
            "B" => self.pick(&["true", "false", "0", "1", "'true'"]).to_owned(),
            "T" => quoted(self.pick(TEXTS)),
            "K" => quoted(self.pick(&["dc", "host", "name", "nokey"])),
            "D" if self.one_in(3) => quoted(self.pick(&["dc", "name", "host"])),
            "D" => self.pick(&["0", "1", "2", "-1", "3", "9"]).to_owned(),
            "R" => {
                let (search, replace) = REGEXES.get(self.below(REGEXES.len())).copied().unwrap_or(("a", "b"));
                format!("{},{}", quoted(search), quoted(replace))
            }
            "G" => quoted(self.pick(PATTERNS)),
            "F" => self.pick(&["0", "0.5", "1", "0.3"]).to_owned(),
            "O" => quoted(self.pick(&[">", "<", ">=", "<=", "=", "!="])),
            "Z" => quoted(self.pick(&["sum", "average", "min", "max", "first", "last", "avg_zero", "avg"])),
            "E" if !self.one_in(8) => {
                quoted(&(START + 3600 + i64::try_from(self.below(7200)).unwrap_or(0)).to_string())
            }
            "E" => (START + 3600 + i64::try_from(self.below(7200)).unwrap_or(0)).to_string(),
            "U" => quoted(
                self.pick(&["days", "hours", "minutes", "seconds", "weeks3", "months", "years", "weeks"]),
            ),
            "S" => quoted(self.pick(&["10min", "30min", "1h"])),
            "V" => quoted(self.pick(&["si", "binary", "avg", "max", "last", "count"])),
            "M" => "'sumSeries(%.cpu.*)','% total'".to_owned(),
            "Q" => "'%d of %%','x'".to_owned(),
            literal => literal.to_owned(),
        }
    }
}
