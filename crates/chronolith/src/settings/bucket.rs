//! Settings of the bucket: address, access, retention.
//! Not here: settings that are valid only together (`bucket_layout`).

use std::path::PathBuf;
use std::time::Duration;

use chronolith_tsdb::BucketOptions;

use super::bucket_layout;
use super::declaration::{Form, Setting, Settings};
use super::value::{self, set};

pub(super) static SETTINGS: &[Setting] = &[
    Setting::server(
        "bucket",
        "",
        Form::Text("URL"),
        "Bucket to which blocks are uploaded and from which they are read: s3://BUCKET[/PREFIX], gs://..., az://..., file:///DIR",
        |s, v| {
            s.server.bucket = Some(v).filter(|v| !v.is_empty()).map(BucketOptions::new);
            Ok(())
        },
    ),
    Setting::server(
        "read-only",
        "false",
        Form::Switch,
        "Refuse writes and other changes; with --bucket answer over the bucket alone, without a data directory",
        |s, v| {
            let is_read_only = value::switch(v)?;
            match &mut s.server.bucket {
                Some(bucket) => bucket.is_read_only = is_read_only,
                None => s.server.service.is_read_only = is_read_only,
            }
            Ok(())
        },
    ),
    Setting::server(
        "bucket.layout",
        "mimir",
        Form::Choice("mimir|thanos"),
        "Folders of the blocks: TENANT/ULID (mimir), or ULID with external labels, without tenants (thanos)",
        bucket_layout::set_layout,
    ),
    Setting::server(
        "bucket.external-labels",
        "",
        Form::Text("LABELS"),
        "Labels of this server in a bucket in the layout thanos, at least one to upload, as cluster=\"eu\",replica=\"a\"",
        bucket_layout::set_external_labels,
    ),
    Setting::server(
        "bucket.poll",
        "30s",
        Form::Duration,
        "Age from which the list of a tenant's blocks in the bucket is refreshed",
        |s, v| {
            set_bucket(
                s,
                |bucket| &mut bucket.catalog.poll,
                value::duration_positive(v).map(Duration::from_millis),
            )
        },
    ),
    Setting::server(
        "bucket.local-retention",
        "7d",
        Form::Duration,
        "Age from which blocks that are in the bucket are removed locally",
        |s, v| {
            set_bucket(
                s,
                |bucket| &mut bucket.local_retention,
                value::duration_positive(v).map(Duration::from_millis),
            )
        },
    ),
    Setting::tenant(
        "bucket.retention",
        &[],
        "0",
        Form::Duration,
        "Age from which blocks without a local copy are removed from the bucket; 0 keeps all",
        |l, v| set(&mut l.bucket_retention_ms, value::duration(v)),
    ),
    Setting::server(
        "bucket.delete-delay",
        "12h",
        Form::Duration,
        "Time between the replacement or expiry of a block in the bucket and its removal; queries that began before need it",
        |s, v| {
            set_bucket(
                s,
                |bucket| &mut bucket.delete_delay,
                value::duration_at_least(v, Duration::from_secs(2 * 3600)),
            )
        },
    ),
    Setting::server(
        "bucket.compaction",
        "true",
        Form::Switch,
        "Compact blocks in the bucket that have no local copy any more, by way of the data directory",
        |s, v| set_bucket(s, |bucket| &mut bucket.compacts, value::switch(v)),
    ),
    Setting::server(
        "bucket.memory",
        "256MiB",
        Form::Size,
        "Memory of index headers and fetched ranges of blocks in the bucket; those not used recently are dropped",
        |s, v| set_bucket(s, |bucket| &mut bucket.catalog.memory_bytes_max, value::size_at_least(v, 1 << 20)),
    ),
    Setting::server(
        "bucket.cache-dir",
        "",
        Form::Text("DIR"),
        "Directory of the cache on local disk for blocks in the bucket, of this process alone; empty = memory only",
        |s, v| set_bucket(s, |bucket| &mut bucket.cache_dir, Ok(value::text_or_none(v).map(PathBuf::from))),
    ),
    Setting::server(
        "bucket.cache-dir-size",
        "10GiB",
        Form::Size,
        "Bytes of the files in bucket.cache-dir at most",
        |s, v| set_bucket(s, |bucket| &mut bucket.cache_dir_bytes_max, value::size_at_least(v, 16 << 20)),
    ),
    Setting::server(
        "bucket.endpoint",
        "",
        Form::Text("URL"),
        "URL of the server of the bucket, for stores compatible with S3, Azure or GCS; empty = the provider's",
        |s, v| set_bucket(s, |bucket| &mut bucket.store.endpoint, Ok(value::text_or_none(v))),
    ),
    Setting::server("bucket.region", "", Form::Text("NAME"), "Region of the S3 bucket", |s, v| {
        set_bucket(s, |bucket| &mut bucket.store.region, Ok(value::text_or_none(v)))
    }),
    Setting::server(
        "bucket.virtual-hosted",
        "false",
        Form::Switch,
        "Address the S3 bucket as https://BUCKET.HOST/ instead of https://HOST/BUCKET/",
        |s, v| set_bucket(s, |bucket| &mut bucket.store.is_virtual_hosted, value::switch(v)),
    ),
    Setting::server(
        "bucket.allow-http",
        "false",
        Form::Switch,
        "Allow a bucket.endpoint without TLS",
        |s, v| set_bucket(s, |bucket| &mut bucket.store.allow_http, value::switch(v)),
    ),
    Setting::server(
        "bucket.access-key-id",
        "",
        Form::Text("ID"),
        "Access key id of S3, account of Azure; empty = from the provider's environment variables or the instance",
        |s, v| set_bucket(s, |bucket| &mut bucket.store.access_key_id, Ok(value::text_or_none(v))),
    ),
    Setting::server(
        "bucket.secret-access-key",
        "",
        Form::Secret,
        "Secret access key of S3, access key of Azure. Better given as a variable or in the file",
        |s, v| set_bucket(s, |bucket| &mut bucket.store.secret_access_key, Ok(value::text_or_none(v))),
    ),
    Setting::server(
        "bucket.credentials-file",
        "",
        Form::Text("FILE"),
        "Service account file of Google Cloud Storage",
        |s, v| set_bucket(s, |bucket| &mut bucket.store.credentials_file, Ok(value::text_or_none(v))),
    ),
    Setting::server(
        "bucket.request-timeout",
        "30s",
        Form::Duration,
        "Time of one request to the bucket, to the end of its answer",
        |s, v| {
            set_bucket(
                s,
                |bucket| &mut bucket.store.request_timeout,
                value::duration_positive(v).map(Duration::from_millis),
            )
        },
    ),
    Setting::server("bucket.max-requests", "128", Form::Count, "Requests to the bucket at once", |s, v| {
        set_bucket(s, |bucket| &mut bucket.store.requests_max, value::permits(v))
    }),
    Setting::server(
        "bucket.max-requests-per-tenant",
        "64",
        Form::Count,
        "Requests to the bucket at once on behalf of one tenant",
        |s, v| set_bucket(s, |bucket| &mut bucket.store.tenant_requests_max, value::permits(v)),
    ),
];

/// Sets an option of the bucket; without a bucket the value is only checked.
fn set_bucket<T>(
    settings: &mut Settings,
    option: impl FnOnce(&mut BucketOptions) -> &mut T,
    value: Result<T, String>,
) -> Result<(), String> {
    let value = value?;
    if let Some(bucket) = &mut settings.server.bucket {
        *option(bucket) = value;
    }
    Ok(())
}
