//! Names of settings in `influxdb.conf`, and the settings that do the same here; listeners that are missing.
//!
//! Not here: names of Prometheus (`prometheus_flags`), suggestions by spelling.

/// Section and name in `influxdb.conf`, with the names here.
pub(super) const INFLUX_NAMES: [(&str, &str); 16] = [
    ("continuous-queries.enabled", "influx.continuous-queries"),
    ("coordinator.max-concurrent-queries", "influx.max-concurrent-queries"),
    ("coordinator.max-select-buckets", "influx.max-select-buckets"),
    ("coordinator.max-select-point", "influx.max-select-point"),
    ("coordinator.max-select-series", "influx.max-select-series"),
    ("coordinator.query-timeout", "influx.query-timeout"),
    ("data.dir", "data-dir"),
    ("data.max-series-per-database", "influx.max-series-per-database"),
    ("data.max-values-per-tag", "influx.max-values-per-tag"),
    ("http.access-log-enabled", "log.access"),
    ("http.auth-enabled", "influx.auth-enabled"),
    ("http.bind-address", "http"),
    ("http.max-body-size", "influx.max-body-size"),
    ("http.max-row-limit", "influx.max-row-limit"),
    ("http.shared-secret", "influx.shared-secret"),
    ("udp.bind-address", "influx.udp"),
];

/// Listeners of InfluxDB that Telegraf has.
const TELEGRAF_LISTENERS: [(&str, &str); 2] = [
    ("collectd", "socket_listener with data_format \"collectd\""),
    ("opentsdb", "http_listener_v2 or socket_listener"),
];

/// Returns the name here of a setting of `influxdb.conf`.
pub(super) fn own_name(name: &str) -> Option<&'static str> {
    INFLUX_NAMES.iter().find(|(influx, _)| *influx == name).map(|(_, own)| *own)
}

/// Returns the answer to a setting of a listener that there is none of.
pub(super) fn missing_listener(name: &str) -> Option<String> {
    let is_of = |listener: &str| name.split(['.', '-', '_']).any(|part| part.eq_ignore_ascii_case(listener));
    let (listener, input) = TELEGRAF_LISTENERS.iter().find(|(listener, _)| is_of(listener))?;
    Some(format!(
        "there is no {listener} listener: receive it with Telegraf (inputs.{input}) and send it on with outputs.influxdb"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::table::all_settings;

    #[test]
    fn names_of_influxdb_have_settings_here() {
        for (influx, own) in INFLUX_NAMES {
            assert!(all_settings().any(|setting| setting.name == own), "{own}");
            assert!(all_settings().all(|setting| setting.name != influx), "{influx}");
            assert_eq!(own_name(influx), Some(own));
        }
        assert_eq!(own_name("data.engine"), None);
    }

    #[test]
    fn listeners_that_telegraf_has_are_named() {
        for name in ["collectd.enabled", "influx.collectd", "CHRONOLITH_INFLUX_COLLECTD"] {
            assert!(
                missing_listener(name).is_some_and(|text| text.contains("no collectd listener")),
                "{name}"
            );
        }
        assert!(missing_listener("opentsdb.bind-address").is_some_and(|text| text.contains("Telegraf")));
        assert_eq!(missing_listener("influx.udp"), None);
    }
}
