//! Body of a request to Alertmanager's API v2, byte for byte as Prometheus writes it.

use std::sync::Arc;

use chronolith_base::utc::rfc3339_ms;
use chronolith_model::Labels;

use super::alert::Alert;

/// Returns the JSON of a list of alerts.
#[must_use]
pub fn body(alerts: &[Arc<Alert>]) -> String {
    let mut out = String::with_capacity(alerts.len() * 512);
    out.push('[');
    for (idx, alert) in alerts.iter().enumerate() {
        if idx > 0 {
            out.push(',');
        }
        write_alert(alert, &mut out);
    }
    out.push(']');
    out
}

fn write_alert(alert: &Alert, out: &mut String) {
    out.push('{');
    if !alert.annotations.is_empty() {
        out.push_str("\"annotations\":");
        write_labels(&alert.annotations, out);
        out.push(',');
    }
    out.push_str("\"endsAt\":");
    write_time(alert.end.ms(), out);
    out.push_str(",\"startsAt\":");
    write_time(alert.starts_at_ms, out);
    if !alert.generator_url.is_empty() {
        out.push_str(",\"generatorURL\":");
        write_string(&alert.generator_url, out);
    }
    out.push_str(",\"labels\":");
    write_labels(&alert.labels, out);
    out.push('}');
}

fn write_labels(labels: &Labels, out: &mut String) {
    out.push('{');
    for (idx, (name, value)) in labels.iter().enumerate() {
        if idx > 0 {
            out.push(',');
        }
        write_string(name, out);
        out.push(':');
        write_string(value, out);
    }
    out.push('}');
}

fn write_time(ms: i64, out: &mut String) {
    out.push('"');
    out.push_str(&rfc3339_ms(ms));
    out.push('"');
}

/// Writes a string as Go's `encoding/json` does, with its escapes for HTML.
fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}
