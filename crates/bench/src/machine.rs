//! Machine on which the figures were measured.

use std::process::Command;

use serde_json::{Value, json};

/// CPU, memory, kernel, commit and command line, for the head of a report.
pub(crate) fn describe() -> Value {
    let cpu = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned());
    let memory_kib: u64 = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    let command: Vec<String> = std::env::args().skip(1).collect();
    json!({
        "cpu": cpu,
        "core_count": chronolith_base::thread::core_count(),
        "memory_mib": memory_kib / 1024,
        "kernel": first_line("uname", &["-sr"]),
        "commit": first_line("git", &["describe", "--always", "--dirty"]),
        "command": format!("cargo xtask bench {}", command.join(" ")),
    })
}

/// Today's date, `YYYY-MM-DD`, UTC.
pub(crate) fn date() -> String {
    first_line("date", &["-u", "+%Y-%m-%d"])
}

/// First line that a command prints; `unknown` when it cannot be run.
pub(crate) fn first_line(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().ok();
    let text = out.map(|out| String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned());
    let line = text.as_deref().and_then(|text| text.lines().next()).map(str::trim);
    line.filter(|line| !line.is_empty()).unwrap_or("unknown").to_owned()
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
