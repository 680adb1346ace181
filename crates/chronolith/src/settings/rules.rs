//! Settings of rules and alerts.

use super::declaration::{Form, Setting};
use super::value::{self, set};

pub(super) static SETTINGS: &[Setting] = &[
    Setting::server(
        "rules.alerting-config",
        "",
        Form::Text("FILE"),
        "File with Prometheus's alerting: block (Alertmanagers, relabelling), read again when it or a file it names changes; empty = none",
        |s, v| set(&mut s.server.notifier.config_file, value::file_or_none(v)),
    ),
    Setting::server(
        "rules.configuration-api",
        "true",
        Form::Switch,
        "Enable Mimir's API that changes rules, /config/v1/rules; rules that are stored stay in either case",
        |s, v| set(&mut s.server.web.rules_api, value::switch(v)),
    ),
];
