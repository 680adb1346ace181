//! Metrics of the TLS of carbon listeners; there are none without it.

use chronolith_service::metrics::definition::Metric;

use crate::web::CarbonTls;

pub(super) static CARBON_TLS: &[Metric<CarbonTls>] = &[
    Metric::gauge(
        "chronolith_carbon_tls_last_read_successful",
        "1 if the file of carbon.tls and its certificates could be used when they were last read, 0 if those before them stay.",
        |tls| f64::from(u8::from(tls.file().is_read())),
    ),
    Metric::gauge(
        "chronolith_carbon_tls_last_read_success_timestamp_seconds",
        "When the file of carbon.tls in use was read, since 1970.",
        |tls| tls.file().read_ms() as f64 / 1000.0,
    ),
    Metric::gauge(
        "chronolith_carbon_tls_certificate_expiry_timestamp_seconds",
        "When the certificate that carbon listeners present expires, since 1970.",
        |tls| tls.current().tls().map_or(0.0, |in_use| in_use.expires_s() as f64),
    ),
    Metric::gauge(
        "chronolith_carbon_tls_handshakes_running",
        "Connections of carbon listeners in their TLS handshake.",
        |tls| tls.handshake_count() as f64,
    ),
    Metric::counter(
        "chronolith_carbon_tls_handshakes_total",
        "TLS handshakes of carbon connections that succeeded.",
        |tls| tls.file().handshakes().done_count(),
    ),
    Metric::counters(
        "chronolith_carbon_tls_handshake_failures_total",
        &["reason"],
        "TLS handshakes of carbon connections that failed, by reason.",
        |tls, samples| {
            tls.file()
                .handshakes()
                .failed_counts()
                .for_each(|(reason, count)| samples.push(&[reason], count));
        },
    ),
];
