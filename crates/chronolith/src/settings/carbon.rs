//! Settings of carbon input, of Graphite's rules and limits. Invariant: an error names the listener.
//! Not here: the protocols and the files (`ingest`).

use std::path::PathBuf;

use chronolith_ingest::carbon::PREFIX_BYTES_MAX;
use chronolith_model::TenantId;
use chronolith_model::tenant::{ANNOTATION_FRAME_BYTES_MAX, META_TAG_RULES_MAX};
use chronolith_server::{AddressRanges, CarbonListener, CarbonOptions, CarbonProtocol};

use super::declaration::{Form, Setting, Settings};
use super::value;

pub(super) const LISTEN: Setting = Setting::server(
    "carbon.listen",
    "",
    Form::Text("LIST"),
    "Listeners of carbon's plaintext protocol on TCP and UDP: host:port[/TENANT[/PREFIX]], separated by commas",
    |s, v| set_listeners(&mut s.server.service.write.carbon, CarbonProtocol::Plaintext, v),
);

pub(super) const PICKLE_LISTEN: Setting = Setting::server(
    "carbon.pickle-listen",
    "",
    Form::Text("LIST"),
    "Listeners of carbon's pickle protocol on TCP: host:port[/TENANT[/PREFIX]], separated by commas",
    |s, v| set_listeners(&mut s.server.service.write.carbon, CarbonProtocol::Pickle, v),
);

pub(super) const TLS: Setting = Setting::server(
    "carbon.tls",
    "",
    Form::Text("FILE"),
    "File whose tls_server_config carbon uses over TCP, and then not over UDP; read again when it or a certificate changes",
    |s, v| set_file(&mut s.server.service.write.carbon.tls_file, v),
);

pub(super) const ALLOW: Setting = Setting::server(
    "carbon.allow",
    "",
    Form::Text("LIST"),
    "Addresses and ranges (192.0.2.1, 10.0.0.0/8, 2001:db8::/32) that may send to carbon's listeners, TCP and UDP; empty = all",
    |s, v| {
        let allowed = if v.is_empty() { None } else { Some(AddressRanges::parse(v)?) };
        s.server.service.write.carbon.allowed = allowed;
        Ok(())
    },
);

pub(super) const SYNC_INTERVAL: Setting = Setting::server(
    "carbon.sync-interval",
    "100ms",
    Form::Duration,
    "Longest time between reading points of a carbon connection and their being durable",
    |s, v| {
        s.server.service.write.carbon.sync_ms = value::duration(v)?.unsigned_abs();
        Ok(())
    },
);

pub(super) const SCHEMAS: Setting = Setting::server(
    "graphite.schemas",
    "",
    Form::Text("FILE"),
    "storage-schemas.conf: archives and reorder buffers of paths; read again by a reload",
    |s, v| set_file(&mut s.server.service.write.carbon.rules.schemas, v),
);

pub(super) const AGGREGATION: Setting = Setting::server(
    "graphite.aggregation",
    "",
    Form::Text("FILE"),
    "storage-aggregation.conf: methods and xFilesFactor of paths; read again by a reload",
    |s, v| set_file(&mut s.server.service.write.carbon.rules.aggregation, v),
);

pub(super) const REWRITES: Setting = Setting::server(
    "graphite.rewrites",
    "",
    Form::Text("FILE"),
    "Rewrite rules: other names and labels for paths of carbon points; read again by a reload",
    |s, v| set_file(&mut s.server.service.write.carbon.rules.rewrites, v),
);

pub(super) const MAX_SERIES: Setting = Setting::tenant(
    "graphite.max-series",
    &[],
    "250000",
    Form::Count,
    "Series that one request of Graphite's API fetches, 403 beyond it",
    |l, v| set_count(&mut l.queries.graphite.series_max, v),
);

pub(super) const MAX_POINTS: Setting = Setting::tenant(
    "graphite.max-points",
    &[],
    "200000000",
    Form::Count,
    "Points that one request of Graphite's API fetches or computes, 413 beyond it",
    |l, v| set_count(&mut l.queries.graphite.points_max, v),
);

pub(super) const MAX_POINTS_SOFT: Setting = Setting::tenant(
    "graphite.max-points-soft",
    &[],
    "20000000",
    Form::Count,
    "Points of one request of Graphite's API above which coarser archives are read, where paths have some",
    |l, v| set_count(&mut l.queries.graphite.points_soft, v),
);

pub(super) const MAX_TARGETS: Setting = Setting::tenant(
    "graphite.max-targets",
    &[],
    "20000",
    Form::Count,
    "Targets of one request of Graphite's API, 422 beyond it",
    |l, v| set_count(&mut l.queries.graphite.targets_max, v),
);

pub(super) const MAX_NODES: Setting = Setting::tenant(
    "graphite.max-nodes",
    &[],
    "250000",
    Form::Count,
    "Nodes that one search of Graphite's API returns, 422 beyond it",
    |l, v| set_count(&mut l.queries.graphite.nodes_max, v),
)
.hidden();

pub(super) const MAX_TAG_RESULTS: Setting = Setting::tenant(
    "graphite.max-tag-results",
    &[],
    "250000",
    Form::Count,
    "Series, keys or values that one request for tags of Graphite's API returns, 422 beyond it",
    |l, v| set_count(&mut l.queries.graphite.tag_results_max, v),
)
.hidden();

pub(super) const MAX_EVENT_SIZE: Setting = Setting::tenant(
    "graphite.max-event-size",
    &[],
    "64KiB",
    Form::Size,
    "Texts of one event, 422 beyond it; at most 8MiB",
    |l, v| set_frame_size(&mut l.annotations.event_bytes_max, v),
)
.hidden();

pub(super) const MAX_EVENTS: Setting = Setting::tenant(
    "graphite.max-events",
    &[],
    "100000",
    Form::Count,
    "Events of one tenant; beyond it those with the earliest times are removed",
    |l, v| {
        l.annotations.event_count_max = value::count(v)?;
        Ok(())
    },
);

pub(super) const MAX_EVENTS_SIZE: Setting = Setting::tenant(
    "graphite.max-events-size",
    &[],
    "64MiB",
    Form::Size,
    "Texts of all events of one tenant; beyond it those with the earliest times are removed",
    |l, v| {
        l.annotations.all_events_bytes_max = value::size_in_memory(v)?;
        Ok(())
    },
)
.hidden();

pub(super) const MAX_META_TAGS: Setting = Setting::tenant(
    "graphite.max-meta-tags",
    &[],
    "1000",
    Form::Count,
    "Meta tag rules of one tenant, 422 beyond it; at most 100000",
    |l, v| {
        let count = value::count(v)?;
        if count > META_TAG_RULES_MAX {
            return Err(format!("must be at most {META_TAG_RULES_MAX}"));
        }
        l.annotations.rule_count_max = count;
        Ok(())
    },
)
.hidden();

pub(super) const MAX_META_TAGS_SIZE: Setting = Setting::tenant(
    "graphite.max-meta-tags-size",
    &[],
    "1MiB",
    Form::Size,
    "Texts of all meta tag rules of one tenant, 422 beyond it; at most 8MiB",
    |l, v| set_frame_size(&mut l.annotations.all_rules_bytes_max, v),
)
.hidden();

pub(super) const EVENTS_MEMORY: Setting = Setting::server(
    "graphite.events-memory",
    "256MiB",
    Form::Size,
    "Texts of events and meta tag rules of all tenants; further ones are refused",
    |s, v| {
        let bytes = value::size_at_least(v, 1 << 20)?;
        s.server.service.tsdb.texts.annotation_bytes_max = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(())
    },
)
.hidden();

/// Sets the limit of texts that one frame of the file contains.
fn set_frame_size(limit: &mut usize, text: &str) -> Result<(), String> {
    let bytes = value::size_in_memory(text)?;
    if bytes > ANNOTATION_FRAME_BYTES_MAX {
        return Err("must be at most 8MiB".to_owned());
    }
    *limit = bytes;
    Ok(())
}

const _: () = assert!(ANNOTATION_FRAME_BYTES_MAX == 8 << 20, "errors and help name it");

fn set_count(limit: &mut u64, text: &str) -> Result<(), String> {
    *limit = value::count(text)? as u64;
    Ok(())
}

fn set_file(file: &mut Option<PathBuf>, text: &str) -> Result<(), String> {
    *file = (!text.is_empty()).then(|| PathBuf::from(text));
    Ok(())
}

/// Checks that a server with listeners can store their points, and that settings of listeners have some.
pub(super) fn check(settings: &Settings) -> Result<(), String> {
    let carbon = &settings.server.service.write.carbon;
    match carbon.listeners.first() {
        Some(listener) if is_read_only(settings) => {
            let setting = match listener.protocol {
                CarbonProtocol::Plaintext => "carbon.listen",
                CarbonProtocol::Pickle => "carbon.pickle-listen",
            };
            Err(without_points(setting))
        }
        _ if is_read_only(settings) && !settings.server.service.influx.udp.is_empty() => {
            Err(without_points("influx.udp"))
        }
        None if carbon.tls_file.is_some() => Err(without_listener("carbon.tls")),
        None if carbon.allowed.is_some() => Err(without_listener("carbon.allow")),
        _ => Ok(()),
    }
}

/// Returns true if the server refuses changes, with a data directory or over a bucket.
fn is_read_only(settings: &Settings) -> bool {
    let bucket = settings.server.bucket.as_ref();
    settings.server.service.is_read_only || bucket.is_some_and(|bucket| bucket.is_read_only)
}

fn without_points(setting: &str) -> String {
    format!("{setting}: expected none with read-only, which stores no points")
}

fn without_listener(setting: &str) -> String {
    format!("{setting}: expected a listener as well (carbon.listen or carbon.pickle-listen)")
}

/// Replaces the listeners of one protocol: `host:port[/TENANT[/PREFIX]]`, separated by commas.
fn set_listeners(options: &mut CarbonOptions, protocol: CarbonProtocol, text: &str) -> Result<(), String> {
    let texts = text.split(',').map(str::trim).filter(|one| !one.is_empty());
    let listeners: Vec<CarbonListener> =
        texts.map(|one| listener(protocol, one)).collect::<Result<_, _>>()?;
    options.listeners.retain(|listener| listener.protocol != protocol);
    options.listeners.extend(listeners);
    Ok(())
}

fn listener(protocol: CarbonProtocol, text: &str) -> Result<CarbonListener, String> {
    let mut parts = text.splitn(3, '/');
    let listen = value::host_and_port(parts.next().unwrap_or(""))?;
    let tenant = match parts.next().unwrap_or("") {
        "" => TenantId::anonymous(),
        name => TenantId::new(name).map_err(|error| format!("invalid listener {text:?}: {error}"))?,
    };
    let prefix = parts.next().unwrap_or("").to_owned();
    if prefix.len() > PREFIX_BYTES_MAX {
        return Err(format!("invalid listener {text:?}: the prefix is longer than {PREFIX_BYTES_MAX} bytes"));
    }
    Ok(CarbonListener { listen, protocol, tenant, prefix })
}
