//! Configuration files: storage-schemas.conf, storage-aggregation.conf, rewrite rules.
//!
//! Properties: rules that are written as a file and read again are the same rules; paths are matched within
//! the time of an input, whatever the patterns are. Not here: INI files of Python (`carbon::ini`).

use chronolith_base::Rng;
use chronolith_ingest::carbon::{AggregationRules, RewriteRules, Schemas, explain};

use super::mutate::{insert, offset, token};
use super::reader::{Reader, check_equal, owned};

const SEEDS: &[&[u8]] = &[
    b"[carbon]\npattern = ^carbon\\.\nretentions = 60:90d\n\n[default]\npattern = .*\nretentions = 10s:6h,1min:7d,10m:5y\n",
    b"[a]\npattern = ^a\\.(?P<n>b+){2}$\nretentions = 10s:1d:2h:2,1m:30d:6h:2:true\nreorderBuffer = 20\nreorderBufferAllowUpdate = true\n",
    b"[DEFAULT]\nxFilesFactor = 0.1\n[min]\npattern = \\.min$\naggregationMethod = min\n[all]\npattern = .*\naggregationMethod = avg,max , sum\n",
    b"# c\n; d\n[a] x\npattern : (?<!b)a(?=c)|[^.]+\\Z\nretentions =\n  1s:1d,\n  1m:30d\npriority = 5\n",
    b"[r]\npattern = ^servers\\.(?P<dc>[^.]+)\\.(web\\d+)\\.(.+)$\nname = \\3.${dc}\nlabels =\n  dc: ${dc}\n  host= \\2\n[d]\npattern=tmp\naction=drop\n",
    "\u{feff}[caf\u{e9}]\r\npattern = \u{e9}%%\\w\\b\r\nretentions=7s:1m\r\n\r\n[b]\r\n  pattern=(a*)*b\r\n  retentions=60:5\r\n".as_bytes(),
    b"[a]\npattern = ((a|b)+)\\1(?i:c)(?#x)[]a-]{2,}?\nretentions = 1:1\nx = 1\n y\n\n z\n",
    b"[a]\npattern = ^(?:a|b|c){1,100}(?P<x>d)(?P=x)$\nname = ${x}$$\\g<x>\nxFilesFactor = 1\naggregationMethod = last\nretentions = 1m:1y\n",
];

const TOKENS: &[&[u8]] = &[
    b"\n[a]\n",
    b"[DEFAULT]\n",
    b"\n[",
    b"]",
    b" = ",
    b": ",
    b"\npattern = ",
    b"\nretentions = ",
    b"\nxFilesFactor = ",
    b"\naggregationMethod = ",
    b"\nreorderBuffer = ",
    b"\nreorderBufferAllowUpdate = t",
    b"\nname = ",
    b"\nlabels = ",
    b"\naction = drop",
    b"\n  ",
    b"\n\t",
    b"\n# ",
    b"\n; ",
    b"%%",
    b"%",
    b"%(x)s",
    b"\r\n",
    b"\xe2\x80\xa8",
    b"\xc2\x85",
    b"10s:1d",
    b",1m:30d",
    b"60:5",
    b"1y",
    b"0",
    b"1.5",
    b"nan",
    b"max,",
    b"avg",
    b".*",
    b"(.+)+",
    b"(a|a)*",
    b"(?P<n>",
    b"(?=",
    b"(?!",
    b"(?<=",
    b"(?i)",
    b"(?x)",
    b"(",
    b")",
    b"[^",
    b"]",
    b"[[:alpha:]]",
    b"{2,3}",
    b"{1000}",
    b"*",
    b"+?",
    b"|",
    b"^",
    b"$",
    b"\\Z",
    b"\\b",
    b"\\d",
    b"\\1",
    b"\\g<n>",
    b"${n}",
    b"$1",
    b"\\",
    b"\\x41",
    b"\\u00e9",
    b"\xc3\xa9",
];

/// Paths that patterns are searched in.
const PATHS: [&str; 6] = [
    "carbon.agents.a.cpu",
    "a.bb;dc=x;host=y",
    "servers.eu.web01.load.min",
    "caf\u{e9}.%x",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac",
    "b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.tmp",
];
/// Copies of a line at most.
const COPIES_MAX: u64 = 300;

/// The readers of the three files.
pub(super) struct IniReader;

impl Reader for IniReader {
    fn seeds(&self) -> Vec<Vec<u8>> {
        owned(SEEDS)
    }

    fn tokens(&self) -> &'static [&'static [u8]] {
        TOKENS
    }

    /// Moves, repeats and removes lines; changes the text before or after a separator.
    fn mutate(&self, rng: &Rng, input: &mut Vec<u8>) {
        let mut lines: Vec<Vec<u8>> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let at = rng.below(lines.len() as u64) as usize;
        match rng.below(7) {
            0 => {
                lines.remove(at);
            }
            1 => {
                let line = lines.remove(at);
                let to = rng.below(lines.len() as u64 + 1) as usize;
                lines.insert(to, line);
            }
            2 => {
                let count = 1 + if rng.below(6) == 0 { rng.below(COPIES_MAX) } else { 0 };
                let section = (0..count).map(|number| format!("[s{number}]").into_bytes());
                let copies: Vec<Vec<u8>> = section.flat_map(|section| [section, lines[at].clone()]).collect();
                lines.splice(at..at, copies);
            }
            3 => insert(&mut lines[at], 0, token(rng, &[&b" "[..], b"  ", b"\t", b"#", b";", b"["])),
            4 => {
                let separator = lines[at].iter().position(|byte| matches!(byte, b'=' | b':'));
                let end = separator.map_or(0, |at| at + 1);
                lines[at].truncate(end);
                lines[at].extend_from_slice(token(rng, TOKENS));
            }
            _ => {
                let to = offset(rng, &lines[at]);
                insert(&mut lines[at], to, token(rng, TOKENS));
            }
        }
        *input = lines.join(&b'\n');
    }

    fn read(&mut self, input: &[u8]) -> Result<String, String> {
        let text = String::from_utf8_lossy(input);
        let schemas = Schemas::parse(&text);
        let aggregations = AggregationRules::parse(&text);
        let rewrites = RewriteRules::parse(&text);
        let mut outcome = Vec::new();
        outcome
            .push(schemas.as_ref().map_or_else(|error| error.what.clone(), |(_, notes)| notes_text(notes)));
        outcome.push(
            aggregations.as_ref().map_or_else(|error| error.what.clone(), |(_, notes)| notes_text(notes)),
        );
        outcome
            .push(rewrites.as_ref().map_or_else(|error| error.what.clone(), |(_, notes)| notes_text(notes)));
        let schemas = schemas.map(|found| found.0).unwrap_or_default();
        let aggregations = aggregations.map(|found| found.0).unwrap_or_default();
        let rewrites = rewrites.map(|found| found.0).unwrap_or_default();
        for path in PATHS {
            let explanation = explain(path, &rewrites, &schemas, &aggregations);
            outcome.push(format!("{}", explanation.stored_path.is_ok()));
        }
        check_schemas(&schemas)?;
        check_aggregations(&aggregations)?;
        Ok(outcome.join("/"))
    }
}

fn notes_text(notes: &[chronolith_ingest::carbon::Note]) -> String {
    notes.first().map_or("read".to_owned(), |note| note.what.clone())
}

fn check_schemas(schemas: &Schemas) -> Result<(), String> {
    let mut text = String::new();
    for rule in schemas.rules() {
        let archives: Vec<String> = rule
            .archives()
            .iter()
            .map(|archive| format!("{}:{}", archive.step_s, archive.point_count))
            .collect();
        text.push_str(&section(rule.name(), rule.pattern()));
        text.push_str(&format!("retentions = {}\n", archives.join(",")));
        if let Some(buffer) = rule.reorder_buffer() {
            let allows_update = buffer.allows_update;
            text.push_str(&format!("reorderBuffer = {}\n", buffer.point_count));
            text.push_str(&format!("reorderBufferAllowUpdate = {allows_update}\n"));
        }
    }
    let again = Schemas::parse(&text).map_err(|error| format!("schemas are refused: {error}"))?.0;
    let fields = |schemas: &Schemas| -> Vec<String> {
        let rule = |rule: &chronolith_ingest::carbon::Schema| {
            format!("{} {} {:?} {:?}", rule.name(), rule.pattern(), rule.archives(), rule.reorder_buffer())
        };
        schemas.rules().iter().map(rule).collect()
    };
    check_equal("schemas", &fields(schemas), &fields(&again))
}

fn check_aggregations(rules: &AggregationRules) -> Result<(), String> {
    let mut text = String::new();
    for rule in rules.rules() {
        let methods: Vec<&str> = rule.methods().iter().map(|method| method.name()).collect();
        text.push_str(&section(rule.name(), rule.pattern()));
        text.push_str(&format!("aggregationMethod = {}\n", methods.join(",")));
        text.push_str(&format!("xFilesFactor = {:?}\n", rule.x_files_factor()));
    }
    let again = AggregationRules::parse(&text).map_err(|error| format!("rules are refused: {error}"))?.0;
    let fields = |rules: &AggregationRules| -> Vec<String> {
        let rule = |rule: &chronolith_ingest::carbon::AggregationRule| {
            format!("{} {} {:?} {}", rule.name(), rule.pattern(), rule.methods(), rule.x_files_factor())
        };
        rules.rules().iter().map(rule).collect()
    };
    check_equal("aggregations", &fields(rules), &fields(&again))
}

/// A section with its pattern, which may have several lines.
fn section(name: &str, pattern: &str) -> String {
    let pattern = pattern.replace('%', "%%").replace('\n', "\n  ");
    format!("[{name}]\npattern = {pattern}\n")
}
