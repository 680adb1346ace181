//! The process's log on standard error: text, or one JSON object per line with Prometheus's field names.
//! Invariants: a closed standard error loses lines and nothing else. Not here: the messages, the query log
//! (`server`).

use std::fmt;
use std::io::{self, IsTerminal as _, Write};

use anyhow::Context as _;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::settings::{LogFormat, Settings};

/// Standard error whose failures are ignored: no reader is left for them.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A line is lost as a whole, never written again from its middle.
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().flush();
        Ok(())
    }
}

/// Starts the log of this process.
pub(crate) fn start(settings: &Settings) -> anyhow::Result<()> {
    let filter: EnvFilter = settings.log_level.parse().context("log.level")?;
    // The rasteriser warns about each letter of a name that its font does not have.
    let filter = filter.add_directive("usvg=off".parse().context("log.level")?);
    let colors = io::stderr().is_terminal();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Stderr)
        .with_ansi(colors)
        .log_internal_errors(false);
    match settings.log_format {
        LogFormat::Full => log.init(),
        LogFormat::Compact => log.compact().init(),
        LogFormat::Json => log.event_format(JsonLines).init(),
    }
    Ok(())
}

/// Prints a line to standard error, if it is open.
pub(crate) fn print(line: &str) {
    let _ = writeln!(Stderr, "{line}");
}

/// One JSON object per event: `time`, `level`, `source`, `msg` as in Prometheus, then the event's fields.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let meta = event.metadata();
        writeln!(out, "{}", json_line(&time, &meta.level().to_string(), meta.target(), fields.0))
    }
}

/// A line; the four fields that each has come first, in the order in which people read them.
fn json_line(time: &str, level: &str, source: &str, mut fields: Map<String, Value>) -> String {
    let message = fields.remove("message").unwrap_or_default();
    let message = message.as_str().unwrap_or_default();
    let text = |text: &str| Value::from(text).to_string();
    let mut line = format!(
        "{{\"time\":{},\"level\":{},\"source\":{},\"msg\":{}",
        text(time),
        text(level),
        text(source),
        text(message)
    );
    for (name, value) in fields {
        line.push_str(&format!(",{}:{value}", text(&name)));
    }
    line.push('}');
    line
}

struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_have_the_fields_of_prometheus() {
        let fields = [("message", "a \"b\"\n".into()), ("count", 3.into()), ("tenant", "x".into())];
        let fields = fields.map(|(name, value): (&str, Value)| (name.to_owned(), value));
        let line = json_line("T", "WARN", "chronolith", fields.into_iter().collect());
        let want =
            r#"{"time":"T","level":"WARN","source":"chronolith","msg":"a \"b\"\n","count":3,"tenant":"x"}"#;
        assert_eq!(line, want);
    }
}
