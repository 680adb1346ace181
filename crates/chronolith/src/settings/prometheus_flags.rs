//! Flags of Prometheus and InfluxDB, and the settings that do the same here: suggested for unknown flags.
//!
//! Not here: flags that have the same name (`query.timeout`, `log.level`), suggestions by spelling (clap).

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::influx_names::{missing_listener, own_name};

/// Names in Prometheus, with those here.
const PROMETHEUS_FLAGS: [(&str, &str); 12] = [
    ("config.file", "config"),
    ("query.lookback-delta", "query.lookback"),
    ("query.max-concurrency", "query.concurrency"),
    ("storage.exemplars.exemplars-limit", "exemplar-limit"),
    ("storage.remote.read-max-concurrent", "storage.remote.read-concurrent-limit"),
    ("storage.tsdb.max-block-chunk-segment-size", "compaction-size"),
    ("storage.tsdb.out-of-order-time-window", "out-of-order-window"),
    ("storage.tsdb.path", "data-dir"),
    ("storage.tsdb.retention", "retention"),
    ("storage.tsdb.retention.size", "retention-size"),
    ("storage.tsdb.retention.time", "retention"),
    ("web.listen-address", "http"),
];

/// Returns `error`, which suggests the name that a flag of Prometheus or InfluxDB has here.
pub(crate) fn suggest(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return error };
    let name = flag.trim_start_matches('-').split('=').next().unwrap_or_default();
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    if let Some(answer) = missing_listener(name) {
        return clap::Error::raw(ErrorKind::UnknownArgument, format!("--{name}: {answer}\n"));
    }
    let found = PROMETHEUS_FLAGS.iter().find(|(prometheus, _)| *prometheus == name);
    if let Some(own) = found.map(|(_, own)| *own).or_else(|| own_name(name)) {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{own}")));
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;
    use crate::settings::add_flags;
    use crate::settings::table::all_settings;

    /// `--storage.tsdb.path` suggested `--storage.remote.read-sample-limit`.
    #[test]
    fn flags_of_prometheus_are_suggested_by_their_names_here() {
        for (prometheus, own) in PROMETHEUS_FLAGS {
            assert!(own == "config" || all_settings().any(|setting| setting.name == own), "{own}");
            for flag in [vec![format!("--{prometheus}=x")], vec![format!("--{prometheus}"), "x".to_owned()]] {
                let arguments = std::iter::once("serve".to_owned()).chain(flag);
                let error = add_flags(Command::new("serve")).try_get_matches_from(arguments);
                let text = suggest(error.expect_err(prometheus)).to_string();
                assert!(text.contains(&format!("exists: '--{own}'")), "{prometheus}: {text}");
            }
        }
    }

    #[test]
    fn flags_of_influxdb_are_answered() {
        let answer = |flag: &str| {
            let error = add_flags(Command::new("serve")).try_get_matches_from(["serve", flag]);
            suggest(error.expect_err(flag)).to_string()
        };
        let text = answer("--coordinator.max-select-point=1");
        assert!(text.contains("exists: '--influx.max-select-point'"), "{text}");
        let text = answer("--collectd.bind-address=:25826");
        assert!(text.contains("there is no collectd listener: receive it with Telegraf"), "{text}");
    }

    #[test]
    fn other_suggestions_stay() {
        let error = add_flags(Command::new("serve")).try_get_matches_from(["serve", "--retension", "1d"]);
        let text = suggest(error.expect_err("unknown")).to_string();
        assert!(text.contains("exists: '--retention'"), "{text}");
    }
}
