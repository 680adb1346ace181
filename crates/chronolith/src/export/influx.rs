//! `chronolith export influx`: writes the databases of InfluxDB clients in the format of
//! `influx_inspect export`, which `influx -import` and `chronolith import influx --path` read.
//!
//! Invariants: one line per point and field, with the exact value; a part of one series is in memory at a
//! time; the data directory keeps its content.
//! Not here: escapes and numbers (`influx::line`).

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use chronolith_base::{DiskFile, Env};
use chronolith_model::databases::{Database, RetentionPolicy};
use chronolith_model::query::{TypedColumns, TypedValues};
use chronolith_model::{
    FIELD_LABEL, KIND_LABEL, Labels, METRIC_NAME, ReadContext, SampleSource, Selector, TenantId, TimeRange,
};
use chronolith_tsdb::Tsdb;
use clap::{Arg, ArgAction, ArgMatches, Command};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::args::value;
use crate::import::{data_dir_arg, place, tenant_arg};
use crate::influx::line;
use crate::influx::statement::{PolicyDefinition, create_database};
use crate::influx::time::{Period, parse_time, rfc3339};
use crate::locked_dir;
use crate::query::print;

/// Points of a series that are read at a time, about.
const PART_POINTS: usize = 100_000;
/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 1 << 20;

pub(super) fn command() -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new("influx")
        .about("Write InfluxDB databases as line protocol, as influx_inspect export does")
        .arg(option("out", "FILE", "Output file").required(true))
        .arg(data_dir_arg())
        .arg(tenant_arg())
        .arg(option("database", "NAME", "Export this database alone"))
        .arg(option("policy", "NAME", "Export this retention policy alone"))
        .arg(option("start", "TIME", "First time: RFC 3339 or nanoseconds").allow_hyphen_values(true))
        .arg(option("end", "TIME", "Last time: RFC 3339 or nanoseconds").allow_hyphen_values(true))
        .arg(
            Arg::new("gzip")
                .long("gzip")
                .action(ArgAction::SetTrue)
                .help("Compress the output file with gzip"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (data_dir, tenant) = place(matches)?;
    let time = |name: &str, default_ns: i64| {
        value(matches, name).map_or(Ok(default_ns), parse_time).with_context(|| format!("--{name}"))
    };
    let period =
        Period { first_ns: time("start", Period::ALL.first_ns)?, last_ns: time("end", Period::ALL.last_ns)? };
    let env = Env::real();
    anyhow::ensure!(env.disk.exists(&data_dir), "no data directory at {}", data_dir.display());
    let tsdb = locked_dir::open_to_read(&env, data_dir)?;
    let out_path = PathBuf::from(value(matches, "out").unwrap_or_default());
    let export = Export {
        env: env.clone(),
        databases: selected(&tsdb, &tenant, value(matches, "database"), value(matches, "policy"))?,
        tsdb,
        period,
    };
    let context = || format!("writing {}", out_path.display());
    let file = env.disk.create(&out_path).with_context(context)?;
    let output = FileWriter { file, offset: 0 };
    let buffered = io::BufWriter::with_capacity(BUFFER_BYTES, output);
    let (counts, buffered) = if matches.get_flag("gzip") {
        let mut out = GzEncoder::new(buffered, Compression::default());
        let counts = export.write(&mut out).with_context(context)?;
        (counts, out.finish().with_context(context)?)
    } else {
        let mut out = buffered;
        (export.write(&mut out).with_context(context)?, out)
    };
    let output = buffered.into_inner().map_err(|error| error.into_error()).with_context(context)?;
    output.file.sync_data().with_context(context)?;
    print(&format!(
        "exported {} values of {} series in {} databases to {}\n",
        counts.values,
        counts.series,
        export.databases.len(),
        out_path.display()
    ));
    if counts.not_finite > 0 {
        print(&format!("left out: {} floats that are not finite: InfluxDB has none\n", counts.not_finite));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the databases to export, with the policies to export.
fn selected(
    tsdb: &Tsdb,
    tenant: &TenantId,
    database: Option<&str>,
    policy: Option<&str>,
) -> anyhow::Result<Vec<Database>> {
    let catalog = tsdb.databases().catalog();
    let all = catalog.of(tenant).map(|own| own.databases.clone()).unwrap_or_default();
    let mut databases: Vec<Database> =
        all.into_iter().filter(|one| database.is_none_or(|name| one.name == name)).collect();
    if let Some(name) = database {
        anyhow::ensure!(!databases.is_empty(), "database not found: {name:?}");
    }
    if let Some(name) = policy {
        databases.iter_mut().for_each(|one| one.policies.retain(|policy| policy.name == name));
        databases.retain(|one| !one.policies.is_empty());
        anyhow::ensure!(!databases.is_empty(), "retention policy not found: {name:?}");
    }
    Ok(databases)
}

#[derive(Default)]
struct Counts {
    series: u64,
    values: u64,
    /// Floats that line protocol has no text for.
    not_finite: u64,
}

struct Export {
    env: Env,
    tsdb: Arc<Tsdb>,
    databases: Vec<Database>,
    period: Period,
}

impl Export {
    fn write(&self, out: &mut dyn Write) -> anyhow::Result<Counts> {
        let Period { first_ns, last_ns } = self.period;
        writeln!(out, "# INFLUXDB EXPORT: {} - {}", rfc3339(first_ns), rfc3339(last_ns))?;
        writeln!(out, "# DDL")?;
        for database in &self.databases {
            let policies: Vec<PolicyDefinition> = database.policies.iter().map(definition).collect();
            for statement in create_database(&database.name, &database.default_policy, &policies) {
                writeln!(out, "{statement}")?;
            }
        }
        for query in self.databases.iter().flat_map(|database| &database.continuous_queries) {
            writeln!(out, "{}", query.text.replace('\n', " "))?;
        }
        writeln!(out, "# DML")?;
        let mut counts = Counts::default();
        for database in &self.databases {
            for policy in in_order(database) {
                writeln!(out, "# CONTEXT-DATABASE:{}", database.name)?;
                writeln!(out, "# CONTEXT-RETENTION-POLICY:{}", policy.name)?;
                self.write_policy(policy, out, &mut counts)?;
            }
        }
        Ok(counts)
    }

    fn write_policy(
        &self,
        policy: &RetentionPolicy,
        out: &mut dyn Write,
        counts: &mut Counts,
    ) -> anyhow::Result<()> {
        let range = TimeRange::inclusive(self.period.first_ns, self.period.last_ns);
        let ctx = ReadContext::unlimited(self.env.clock.clone());
        let source = self.tsdb.reader().typed_queryable(&policy.store);
        let mut batches = source.select(&Selector { matchers: &[], range }, &ctx)?;
        let mut batch = Vec::new();
        let mut has_more = true;
        while has_more {
            has_more = batches.next_batch(&mut batch)?;
            for series in batch.drain(..) {
                let values_before = counts.values;
                write_series(&series.labels, &*series.samples, range, out, counts)?;
                counts.series += u64::from(counts.values > values_before);
            }
        }
        Ok(())
    }
}

fn definition(policy: &RetentionPolicy) -> PolicyDefinition {
    PolicyDefinition {
        name: policy.name.clone(),
        duration_ns: policy.duration_ns,
        shard_group_ns: policy.shard_group_ns,
        replica_count: policy.replica_count.into(),
    }
}

/// Returns the policies in the order of the statements that create them.
fn in_order(database: &Database) -> impl Iterator<Item = &RetentionPolicy> {
    let is_default = |policy: &&RetentionPolicy| policy.name == database.default_policy;
    let others = database.policies.iter().filter(move |policy| !is_default(policy));
    database.policies.iter().filter(is_default).chain(others)
}

/// Writes the points of a series, part after part.
fn write_series(
    labels: &Labels,
    samples: &dyn SampleSource,
    range: TimeRange,
    out: &mut dyn Write,
    counts: &mut Counts,
) -> anyhow::Result<()> {
    let mut prefix = Vec::new();
    line::put_measurement(labels.metric_name().unwrap_or("").as_bytes(), &mut prefix);
    let is_tag = |name: &str| !matches!(name, METRIC_NAME | FIELD_LABEL | KIND_LABEL);
    for (name, value) in labels.iter().filter(|(name, _)| is_tag(name)) {
        line::put_tag(name.as_bytes(), value.as_bytes(), &mut prefix);
    }
    prefix.push(b' ');
    line::put_field_key(labels.get(FIELD_LABEL).unwrap_or("").as_bytes(), &mut prefix);
    prefix.push(b'=');
    let mut bytes = Vec::new();
    for part in parts(samples, range) {
        let mut columns = TypedColumns::new(samples.column_type());
        samples.read_typed(part, &mut columns)?;
        for (idx, &time_ns) in columns.times.iter().enumerate() {
            bytes.clear();
            bytes.extend_from_slice(&prefix);
            if put_value(&columns.values, idx, &mut bytes) {
                line::put_time(time_ns, &mut bytes);
                out.write_all(&bytes)?;
                counts.values += 1;
            } else {
                counts.not_finite += 1;
            }
        }
    }
    Ok(())
}

/// Splits a range so that each part has about [`PART_POINTS`] points, if they are spread evenly.
fn parts(samples: &dyn SampleSource, range: TimeRange) -> impl Iterator<Item = TimeRange> {
    let (first, last) = samples.time_bounds().unwrap_or((range.start, range.end));
    let start = i128::from(first.max(range.start));
    let end = i128::from(last.saturating_add(1).min(range.end)).max(start);
    let count = (samples.sample_count_hint() / PART_POINTS + 1) as i128;
    let border = move |idx: i128| i64::try_from(start + (end - start) * idx / count).unwrap_or(i64::MAX);
    (0..count).map(move |idx| TimeRange::new(border(idx), border(idx + 1)))
}

/// Appends a value; returns false for one that line protocol has no text for.
fn put_value(values: &TypedValues, idx: usize, out: &mut Vec<u8>) -> bool {
    match values {
        TypedValues::Floats(values) if !values[idx].is_finite() => return false,
        TypedValues::Floats(values) => line::put_float(values[idx], out),
        TypedValues::Integers(values) => line::put_integer(values[idx], out),
        TypedValues::Unsigned(values) => line::put_unsigned(values[idx], out),
        TypedValues::Booleans(values) => line::put_boolean(values[idx], out),
        TypedValues::Texts(values) => line::put_text(&values[idx], out),
        TypedValues::Histograms(_) => return false,
    }
    true
}

/// A file that is written from its start to its end.
struct FileWriter {
    file: Box<dyn DiskFile>,
    offset: u64,
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
