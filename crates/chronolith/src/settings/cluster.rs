//! Settings of roles, of the replicated log and of the partition of an owner.
//!
//! Invariants: an error names the setting and the expected value, and never repeats an address of the log,
//! which may have a password; after [`check`] an owner has the number of its partition.
//! Not here: opening of the log (`chronolith-cluster`).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chronolith_base::Disk;
use chronolith_bucket::BucketLayout;
use chronolith_cluster::options::{
    ClusterOptions, Compression, LogAddress, LogLogin, LogOptions, LogTls, NewTopic, PartitionChoice, Role,
    SaslMechanism,
};
use chronolith_model::partition::PARTITIONS_MAX;

use super::declaration::{Form, Setting, Settings};
use super::nodes;
use super::value::{self, set};

/// Copies of each partition of a topic whose setting names no number.
const REPLICATION_FACTOR: u16 = 3;
/// File of Linux with the name of the machine.
const HOST_NAME_FILE: &str = "/proc/sys/kernel/hostname";

pub(super) static SETTINGS: &[Setting] = &[
    Setting::server(
        "role",
        "all",
        Form::List("ROLE"),
        "The process works as all (a server of its own), with --log as gateway (takes writes), owner (stores a partition of the log) or both, with --owners as query (answers over owners and the bucket), also next to gateway, as store (maintains the bucket), also next to gateway or owner",
        |s, v| set(&mut s.server.service.cluster.roles, v.parse()),
    ),
    Setting::server(
        "log",
        "",
        Form::Text("URL"),
        "Replicated log: kafka://HOST:PORT,HOST:PORT/TOPIC, or dir:///PATH for one process in tests; empty = none",
        |s, v| {
            s.server.service.cluster.log =
                if v.is_empty() { None } else { Some(LogOptions::new(v.parse()?)) };
            Ok(())
        },
    ),
    Setting::server(
        "log.ack-timeout",
        "10s",
        Form::Duration,
        "Longest wait for the acknowledgement of the log; a gateway then answers 503",
        |s, v| set_log(s, |log| &mut log.ack_timeout, value::duration_at_least(v, Duration::from_secs(1))),
    ),
    Setting::server(
        "log.linger",
        "5ms",
        Form::Duration,
        "Longest wait for more records of a batch, of kafka:// alone",
        |s, v| {
            let linger = value::duration(v).map(|ms| Duration::from_millis(ms.unsigned_abs()));
            set_log(s, |log| &mut log.linger, linger)
        },
    ),
    Setting::server(
        "log.compression",
        "lz4",
        Form::Choice("none|lz4|zstd"),
        "Compression: none, of each record by lz4, or of the batches of kafka:// by zstd",
        |s, v| set_log(s, |log| &mut log.compression, compression(v)),
    ),
    Setting::server(
        "log.create-topic",
        "",
        Form::Text("PARTITIONS[:COPIES]"),
        "Create the log if it is missing, with 3 copies unless COPIES says otherwise; a directory has one copy; empty = end with an error",
        |s, v| set_log(s, |log| &mut log.new_topic, new_topic(v)),
    ),
    Setting::server(
        "log.tenant-partitions",
        "1",
        Form::Count,
        "Partitions of a tenant at least; one more for each 10 million series of its series-limit",
        |s, v| set(&mut s.server.service.cluster.gateway.tenant_partitions_min, value::count(v)),
    ),
    Setting::server("log.tls", "false", Form::Switch, "Encrypt connections to the log", |s, v| {
        let tls = value::switch(v).map(|is_on| is_on.then(LogTls::default));
        set_log(s, |log| &mut log.security.tls, tls)
    }),
    Setting::server(
        "log.tls-ca-file",
        "",
        Form::Text("FILE"),
        "Certificates of the authorities that brokers are checked with, PEM; empty = those of the system",
        |s, v| set_tls(s, v, |tls, text| tls.ca_file = Some(PathBuf::from(text))),
    ),
    Setting::server(
        "log.tls-cert-file",
        "",
        Form::Text("FILE"),
        "Certificate chain of this client for brokers that ask for one, PEM",
        |s, v| set_tls(s, v, |tls, text| tls.cert_file = Some(PathBuf::from(text))),
    ),
    Setting::server("log.tls-key-file", "", Form::Text("FILE"), "Key of log.tls-cert-file, PEM", |s, v| {
        set_tls(s, v, |tls, text| tls.key_file = Some(PathBuf::from(text)))
    }),
    Setting::server(
        "log.tls-server-name",
        "",
        Form::Text("NAME"),
        "Name in the certificates of brokers; empty = their host",
        |s, v| set_tls(s, v, |tls, text| tls.server_name = Some(text.to_owned())),
    ),
    Setting::server(
        "log.sasl-mechanism",
        "",
        Form::Choice("plain|scram-sha-256|scram-sha-512|oauthbearer"),
        "Login to the log: plain, scram-sha-256, scram-sha-512 or oauthbearer; empty = none",
        |s, v| set_log(s, |log| &mut log.security.login, login(v)),
    ),
    Setting::server(
        "log.sasl-user",
        "",
        Form::Text("NAME"),
        "User of the login, none for oauthbearer",
        |s, v| set_login(s, v, |login, text| login.user = text.to_owned()),
    ),
    Setting::server(
        "log.sasl-secret-file",
        "",
        Form::Text("FILE"),
        "File with the password, or with the token of oauthbearer",
        |s, v| set_login(s, v, |login, text| login.secret_file = PathBuf::from(text)),
    ),
    Setting::server(
        "owner.partition",
        "",
        Form::Text("N|auto"),
        "Partition that the owner stores; auto = the number at the end of the host name, as in a StatefulSet",
        |s, v| set(&mut s.server.service.cluster.owner.partition, partition(v)),
    ),
    Setting::server(
        "owner.ready-lag",
        "2s",
        Form::Duration,
        "Age of the last applied record up to which an owner is ready for queries",
        |s, v| {
            let lag = value::duration_positive(v).map(Duration::from_millis);
            set(&mut s.server.service.cluster.owner.ready_lag, lag)
        },
    ),
    Setting::server(
        "store.compaction-delay",
        "3h",
        Form::Duration,
        "Age of the newest sample of a block from which the role store compacts it; by then all owners have published its window",
        |s, v| {
            let delay = value::duration_positive(v).map(Duration::from_millis);
            set(&mut s.server.service.cluster.maintenance.compaction_delay, delay)
        },
    ),
    Setting::server(
        "owner.accept-gap",
        "",
        Form::Text("FROM-TO"),
        "Offsets (TO exclusive) of lost records without which the owner may go on; its error names them",
        |s, v| set(&mut s.server.service.cluster.owner.accepted_gap, gap(v)),
    ),
];

/// Returns true if the setting is one of roles, the log or the owner.
pub(super) fn has(setting: &Setting) -> bool {
    SETTINGS.iter().any(|one| one.name == setting.name)
}

/// Sets an option of the log; without a log the value is only checked.
fn set_log<T>(
    settings: &mut Settings,
    option: impl FnOnce(&mut LogOptions) -> &mut T,
    value: Result<T, String>,
) -> Result<(), String> {
    let value = value?;
    if let Some(log) = &mut settings.server.service.cluster.log {
        *option(log) = value;
    }
    Ok(())
}

fn set_tls(settings: &mut Settings, text: &str, apply: impl FnOnce(&mut LogTls, &str)) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let Some(log) = &mut settings.server.service.cluster.log else { return Ok(()) };
    let tls = log.security.tls.as_mut().ok_or("expected log.tls as well")?;
    apply(tls, text);
    Ok(())
}

fn set_login(
    settings: &mut Settings,
    text: &str,
    apply: impl FnOnce(&mut LogLogin, &str),
) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let Some(log) = &mut settings.server.service.cluster.log else { return Ok(()) };
    let login = log.security.login.as_mut().ok_or("expected log.sasl-mechanism as well")?;
    apply(login, text);
    Ok(())
}

fn compression(text: &str) -> Result<Compression, String> {
    match text {
        "none" => Ok(Compression::None),
        "lz4" => Ok(Compression::Lz4),
        "zstd" => Ok(Compression::Zstd),
        _ => Err(format!("invalid value {text:?}, expected none, lz4 or zstd")),
    }
}

fn new_topic(text: &str) -> Result<Option<NewTopic>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let (partitions, copies) = text.split_once(':').map_or((text, None), |(left, right)| (left, Some(right)));
    let partition_count = partitions.parse().ok().filter(|count| (1..=PARTITIONS_MAX as u32).contains(count));
    let replication_factor = copies.map_or(Some(REPLICATION_FACTOR), |copies| copies.parse().ok());
    match (partition_count, replication_factor.filter(|copies| *copies > 0)) {
        (Some(partition_count), Some(replication_factor)) => {
            Ok(Some(NewTopic { partition_count, replication_factor }))
        }
        _ => Err(format!(
            "invalid value {text:?}, expected 1 to {PARTITIONS_MAX} partitions, for example 6, or 6:3 for 3 copies"
        )),
    }
}

fn login(text: &str) -> Result<Option<LogLogin>, String> {
    let mechanism = match text {
        "" => return Ok(None),
        "plain" => SaslMechanism::Plain,
        "scram-sha-256" => SaslMechanism::ScramSha256,
        "scram-sha-512" => SaslMechanism::ScramSha512,
        "oauthbearer" => SaslMechanism::OAuthBearer,
        _ => {
            return Err(format!(
                "invalid value {text:?}, expected plain, scram-sha-256, scram-sha-512 or oauthbearer"
            ));
        }
    };
    Ok(Some(LogLogin { mechanism, user: String::new(), secret_file: PathBuf::new() }))
}

fn partition(text: &str) -> Result<Option<PartitionChoice>, String> {
    match text {
        "" => Ok(None),
        "auto" => Ok(Some(PartitionChoice::Auto)),
        _ => match text.parse::<u32>() {
            Ok(number) if (number as usize) < PARTITIONS_MAX => Ok(Some(PartitionChoice::Number(number))),
            _ => Err(format!("invalid partition {text:?}, expected 0 to {}, or auto", PARTITIONS_MAX - 1)),
        },
    }
}

fn gap(text: &str) -> Result<Option<Range<u64>>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let parsed = text.split_once('-').and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    parsed.filter(|gap: &Range<u64>| !gap.is_empty()).map(Some).ok_or_else(|| {
        format!("invalid offsets {text:?}, expected FROM-TO as the error of the owner has them")
    })
}

/// Checks the settings of roles together, and finds the number of the partition of an owner.
///
/// # Errors
/// The setting and the expected value.
pub(super) fn check(settings: &mut Settings, disk: &dyn Disk) -> Result<(), String> {
    nodes::check(settings)?;
    let ClusterOptions { roles, log, .. } = &settings.server.service.cluster;
    if roles.list() == [Role::Query] {
        return Ok(());
    }
    let is_store_alone = roles.list() == [Role::Store];
    match (roles.is_all(), log) {
        (true, None) => return Ok(()),
        (false, None) if is_store_alone => {}
        (false, Some(_)) if is_store_alone => {
            return Err("log: expected none for role store, which maintains the bucket alone".to_owned());
        }
        (true, Some(_)) => {
            return Err(
                "role: expected gateway, owner or both with --log: a server with role all has no log"
                    .to_owned(),
            );
        }
        (false, None) => {
            let names: Vec<&str> = roles.list().iter().map(|role| role.name()).collect();
            return Err(format!(
                "log: expected the address of a log, kafka://HOST:PORT,HOST:PORT/TOPIC or dir:///PATH, for role {}",
                names.join(",")
            ));
        }
        (false, Some(log)) => check_log(log)?,
    }
    check_bucket(settings)?;
    check_inputs(settings)?;
    let ClusterOptions { roles, owner, .. } = &mut settings.server.service.cluster;
    if roles.has(Role::Owner) {
        let choice = owner.partition.ok_or("owner.partition: expected the number of a partition, or auto")?;
        owner.partition = Some(PartitionChoice::Number(partition_number(choice, disk)?));
    }
    Ok(())
}

/// Checks the settings of the log together.
///
/// # Errors
/// The setting and the expected value.
pub(super) fn check_log(log: &LogOptions) -> Result<(), String> {
    let security = &log.security;
    if matches!(log.address, LogAddress::Dir(_)) && (security.tls.is_some() || security.login.is_some()) {
        return Err("log.tls, log.sasl-mechanism: expected none for a directory (dir://)".to_owned());
    }
    if log.linger >= log.ack_timeout {
        return Err("log.linger: expected less than log.ack-timeout".to_owned());
    }
    if let Some(tls) = &security.tls {
        match (&tls.cert_file, &tls.key_file) {
            (Some(_), None) => {
                return Err("log.tls-key-file: expected the key of log.tls-cert-file".to_owned());
            }
            (None, Some(_)) => {
                return Err("log.tls-cert-file: expected the certificate of log.tls-key-file".to_owned());
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    let Some(login) = &security.login else { return Ok(()) };
    if login.secret_file.as_os_str().is_empty() {
        return Err("log.sasl-secret-file: expected a file for the login of log.sasl-mechanism".to_owned());
    }
    match (login.mechanism, login.user.is_empty()) {
        (SaslMechanism::OAuthBearer, false) => {
            Err("log.sasl-user: expected none for oauthbearer, whose token names the user".to_owned())
        }
        (SaslMechanism::Plain | SaslMechanism::ScramSha256 | SaslMechanism::ScramSha512, true) => {
            Err("log.sasl-user: expected a user for the login of log.sasl-mechanism".to_owned())
        }
        _ => Ok(()),
    }
}

/// Checks the bucket, which has partition map, databases and refused records of a cluster.
fn check_bucket(settings: &Settings) -> Result<(), String> {
    let Some(bucket) = &settings.server.bucket else {
        return Err(
            "bucket: expected the URL of the bucket that all roles share, such as s3://BUCKET".to_owned()
        );
    };
    if bucket.is_read_only {
        return Err("read-only: expected false for the roles gateway, owner and store".to_owned());
    }
    if bucket.store.layout != BucketLayout::Mimir {
        return Err("bucket.layout: expected mimir, the layout thanos has no place for a cluster".to_owned());
    }
    Ok(())
}

/// Checks the parts of a server that write to a store of its own.
fn check_inputs(settings: &Settings) -> Result<(), String> {
    let service = &settings.server.service;
    nodes::check_rules(settings)?;
    let is_gateway = service.cluster.roles.has(Role::Gateway);
    if !is_gateway && !service.influx.udp.is_empty() {
        return Err("influx.udp: expected none without the role gateway".to_owned());
    }
    if !is_gateway && !service.write.carbon.listeners.is_empty() {
        return Err("carbon.listen, carbon.pickle-listen: expected none without the role gateway".to_owned());
    }
    Ok(())
}

fn partition_number(choice: PartitionChoice, disk: &dyn Disk) -> Result<u32, String> {
    let host_name = match choice {
        PartitionChoice::Number(_) => String::new(),
        PartitionChoice::Auto => {
            let read = disk.read(Path::new(HOST_NAME_FILE));
            let bytes = read.map_err(|error| {
                format!("owner.partition: expected a number, the host name for auto is not known: {HOST_NAME_FILE}: {error}")
            })?;
            String::from_utf8_lossy(&bytes).trim().to_owned()
        }
    };
    choice.number(&host_name).ok_or_else(|| {
        format!(
            "owner.partition: expected for auto a host name with a number from 0 to {} at its end, such as \
             owner-0, found {host_name:?}",
            PARTITIONS_MAX - 1
        )
    })
}
