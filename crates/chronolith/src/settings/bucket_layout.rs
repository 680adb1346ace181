//! Layout of the bucket: settings that are valid only together.
//! Invariant: an error names the setting that is missing.

use chronolith_bucket::{BucketLayout, ExternalLabels};
use chronolith_model::{BlockEncoding, TenantId};

use super::declaration::Settings;
use super::value;

pub(super) fn set_layout(settings: &mut Settings, text: &str) -> Result<(), String> {
    match (value::bucket_layout(text)?, &mut settings.server.bucket) {
        (BucketLayout::Mimir, None) => {}
        (BucketLayout::Thanos { .. }, None) => {
            return Err("expected the URL of a bucket (bucket) as well".to_owned());
        }
        (layout, Some(bucket)) => bucket.store.layout = layout,
    }
    Ok(())
}

pub(super) fn set_external_labels(settings: &mut Settings, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let labels = ExternalLabels::parse(text)?;
    let bucket = settings.server.bucket.as_mut();
    match bucket.map(|bucket| (&mut bucket.store.layout, bucket.is_read_only)) {
        Some((BucketLayout::Thanos { writer }, false)) => {
            *writer = Some(labels);
            Ok(())
        }
        Some((BucketLayout::Thanos { .. }, true)) => {
            Err("expected none with read-only: it reads the blocks of all external labels".to_owned())
        }
        Some((BucketLayout::Mimir, _)) | None => {
            Err("expected the layout thanos (bucket.layout) as well".to_owned())
        }
    }
}

/// Checks the settings of a server whose bucket has Thanos's layout.
pub(super) fn check(settings: &Settings) -> Result<(), String> {
    if settings.server.service.multitenancy && !has_tenants(settings) {
        return Err(
            "multitenancy: expected false: the layout thanos (bucket.layout) has no tenants".to_owned()
        );
    }
    let Some(bucket) = settings.server.bucket.as_ref().filter(|bucket| !bucket.is_read_only) else {
        return Ok(());
    };
    match &bucket.store.layout {
        BucketLayout::Mimir => Ok(()),
        BucketLayout::Thanos { writer: None } => Err("bucket.external-labels: expected at least one label, \
            for example cluster=\"eu\", to upload in the layout thanos, or read-only"
            .to_owned()),
        BucketLayout::Thanos { writer: Some(_) } => {
            match settings.server.service.tsdb.limits.of(&TenantId::anonymous()).block_encoding {
                BlockEncoding::Prometheus => Ok(()),
                BlockEncoding::Dense => Err("block-encoding: expected prometheus to upload in the layout \
                    thanos: Thanos does not read dense chunks"
                    .to_owned()),
            }
        }
    }
}

/// Returns true if the bucket has folders of tenants.
fn has_tenants(settings: &Settings) -> bool {
    settings.server.bucket.as_ref().is_none_or(|bucket| bucket.store.layout == BucketLayout::Mimir)
}
