//! Opening of the log that the settings name.
//!
//! Not here: the settings (`options`), the log itself (`replicated_log`).

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_replicated_log::dir::{DirLog, DirOptions};
use chronolith_replicated_log::{LogError, ReplicatedLog};
use tokio::runtime::Handle;

use crate::options::{LogAddress, LogOptions};

/// Creation of a log in a directory.
const CREATE_DIR: &str = "start with --log.create-topic PARTITIONS";

/// Opens the log; connections of Kafka's client run on the runtime of `handle`. Blocks at most 15 seconds;
/// must not be called from a task of the runtime.
///
/// # Errors
/// [`LogError`]: the log cannot be reached, is missing and not to be created, or refuses access.
pub fn open_log(
    env: &Env,
    handle: &Handle,
    options: &LogOptions,
) -> Result<Arc<dyn ReplicatedLog>, LogError> {
    match &options.address {
        LogAddress::Dir(dir) => {
            let found = DirLog::partition_count_of(env, dir)?;
            let new_count = options.new_topic.map(|topic| topic.partition_count);
            let partition_count = found.or(new_count).ok_or_else(|| LogError::TopicMissing {
                topic: dir.display().to_string(),
                command: CREATE_DIR.to_owned(),
            })?;
            let ack_timeout = options.ack_timeout;
            let dir_options = DirOptions { ack_timeout, ..DirOptions::new(dir, partition_count) };
            let log = DirLog::open(env, dir_options)?;
            tracing::warn!(
                dir = %dir.display(),
                partition_count,
                "the log is a directory of this machine, without a second copy: for tests"
            );
            Ok(Arc::new(log))
        }
        #[cfg(any(feature = "kafka", feature = "kafka-librdkafka"))]
        LogAddress::Kafka(address) => {
            let settings = kafka_settings(address, options);
            Ok(Arc::new(chronolith_replicated_log::kafka::KafkaLog::open(env, handle, settings)?))
        }
        #[cfg(not(any(feature = "kafka", feature = "kafka-librdkafka")))]
        LogAddress::Kafka(absent) => {
            // The handle is used by Kafka's client alone.
            let _ = handle;
            match *absent {}
        }
    }
}

/// Returns the number of partitions of the log, for a tool next to the processes that use it: a directory is
/// read without its lock. Blocks as [`open_log`].
///
/// # Errors
/// As [`open_log`]; a directory without a log is [`LogError::TopicMissing`].
pub fn log_partition_count(env: &Env, handle: &Handle, options: &LogOptions) -> Result<u32, LogError> {
    match &options.address {
        LogAddress::Dir(dir) => {
            let found = DirLog::partition_count_of(env, dir)?;
            found.ok_or_else(|| LogError::TopicMissing {
                topic: dir.display().to_string(),
                command: CREATE_DIR.to_owned(),
            })
        }
        LogAddress::Kafka(_) => open_log(env, handle, options)?.partition_count(),
    }
}

#[cfg(any(feature = "kafka", feature = "kafka-librdkafka"))]
fn kafka_settings(
    address: &chronolith_replicated_log::kafka::KafkaAddress,
    options: &LogOptions,
) -> chronolith_replicated_log::kafka::KafkaSettings {
    use chronolith_replicated_log::kafka::{Compression as Codec, KafkaSettings, NewTopic, Security};

    use crate::options::Compression;

    KafkaSettings {
        new_topic: options.new_topic.map(|topic| NewTopic {
            partition_count: topic.partition_count,
            replication_factor: topic.replication_factor,
        }),
        ack_timeout: options.ack_timeout,
        linger: options.linger,
        compression: match options.compression {
            // Records are packed before they are appended.
            Compression::None | Compression::Lz4 => Codec::None,
            Compression::Zstd => Codec::Zstd,
        },
        security: Security {
            tls: options.security.tls.as_ref().map(kafka_tls),
            login: options.security.login.as_ref().map(kafka_login),
        },
        ..KafkaSettings::new(address.clone())
    }
}

#[cfg(any(feature = "kafka", feature = "kafka-librdkafka"))]
fn kafka_tls(tls: &crate::options::LogTls) -> chronolith_replicated_log::kafka::TlsFiles {
    chronolith_replicated_log::kafka::TlsFiles {
        ca_file: tls.ca_file.clone(),
        cert_file: tls.cert_file.clone(),
        key_file: tls.key_file.clone(),
        server_name: tls.server_name.clone(),
    }
}

#[cfg(any(feature = "kafka", feature = "kafka-librdkafka"))]
fn kafka_login(login: &crate::options::LogLogin) -> chronolith_replicated_log::kafka::Login {
    use chronolith_replicated_log::kafka::Login;

    use crate::options::SaslMechanism;

    let user = login.user.clone();
    let password_file = login.secret_file.clone();
    match login.mechanism {
        SaslMechanism::Plain => Login::Plain { user, password_file },
        SaslMechanism::ScramSha256 => Login::ScramSha256 { user, password_file },
        SaslMechanism::ScramSha512 => Login::ScramSha512 { user, password_file },
        SaslMechanism::OAuthBearer => Login::OAuthBearer { token_file: password_file },
    }
}
