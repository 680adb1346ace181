//! Advice for operators about refused samples, by reason: a sentence, and the setting that refuses.
//!
//! Invariant: every reason of writes has an entry; a reason without one has the text of its message alone.

/// Advice for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// Name of the setting that refuses, if one does.
    pub setting: Option<&'static str>,
    /// Instructions for the operator, in one or two sentences.
    pub text: &'static str,
}

const fn of(setting: &'static str, text: &'static str) -> Advice {
    Advice { setting: Some(setting), text }
}

const fn without_setting(text: &'static str) -> Advice {
    Advice { setting: None, text }
}

/// Returns the advice for a reason.
pub fn advice_of(reason: &str) -> Advice {
    of_store(reason)
        .or_else(|| of_request(reason))
        .or_else(|| of_line(reason))
        .unwrap_or(without_setting("The error text says what is wrong; correct the request at its sender."))
}

/// Reasons of the store.
fn of_store(reason: &str) -> Option<Advice> {
    of_sample(reason).or_else(|| of_cardinality(reason))
}

/// Reasons of the store that follow from one sample or its labels.
fn of_sample(reason: &str) -> Option<Advice> {
    Some(match reason {
        "too_old" => of(
            "retention",
            "The sample is older than the retention. Check the clock of the sender, or raise the retention.",
        ),
        "out_of_bounds" => of(
            "future-limit",
            "The sample is too far in the future. Check clock and time unit of the sender.",
        ),
        "duplicate_timestamp" => of(
            "duplicates",
            "Two senders write different values of one series at one time. Give each a label of its own, or \
             let the last value win.",
        ),
        "no_metric_name" => without_setting("The series has no label __name__. Correct its sender."),
        "duplicate_label" => without_setting("A label occurs twice. Check relabelling at the sender."),
        "empty_label_name" => without_setting("A label has an empty name. Check relabelling at the sender."),
        "invalid_utf8" => {
            without_setting("Names and values must be UTF-8. Correct the encoding at the sender.")
        }
        "too_many_labels" => of(
            "label-count-limit",
            "The series has too many labels. Drop some at the sender, or raise the limit.",
        ),
        "label_name_too_long" => of(
            "label-name-length-limit",
            "A label name is too long. Shorten it at the sender, or raise the limit.",
        ),
        "label_value_too_long" => of(
            "label-value-length-limit",
            "A label value is too long. Drop or shorten it at the sender, or raise the limit.",
        ),
        "out_of_order" => of(
            "out-of-order-window",
            "The sample is older than the newest one of its tenant by more than the window. Check for a sender \
             that lags behind, or widen the window.",
        ),
        "bad_reference" => without_setting("The request is not valid remote write. Update its sender."),
        "histogram_invalid" => {
            without_setting("Buckets and counts of a histogram contradict each other. Update its sender.")
        }
        "reserved_label" => without_setting("Rename the labels __kind__ and __field__ at the sender."),
        "field_type_conflict" => without_setting(
            "The field has another type in this shard group. Make all senders write one type.",
        ),
        _ => return None,
    })
}

/// Reasons of the store that follow from too many series, values or texts.
fn of_cardinality(reason: &str) -> Option<Advice> {
    Some(match reason {
        "series_limit" => of(
            "series-limit",
            "The tenant has too many series. Find labels with many values in the cardinality page, or raise \
             the limit.",
        ),
        "metric_series_limit" => of(
            "series-per-metric-limit",
            "A metric has too many series. Find its labels with many values in the cardinality page, or raise the \
             limit.",
        ),
        "label_value_limit" => of(
            "values-per-label-limit",
            "A label has too many values. Drop it at the sender, or raise the limit.",
        ),
        "tag_value_limit" => of(
            "influx.max-values-per-tag",
            "A tag has too many values. Make it a field at the sender, or raise the limit.",
        ),
        "text_limit" => of(
            "text-bytes-limit",
            "Texts of the head use up their memory. Write fewer different texts, or raise the limit.",
        ),
        "series_ids_exhausted" => without_setting(
            "Series ids come back when idle series leave the head. Reduce the churn of series.",
        ),
        _ => return None,
    })
}

/// Reasons for which whole requests are refused: their counts are requests.
fn of_request(reason: &str) -> Option<Advice> {
    Some(match reason {
        "head_memory" | "head_memory_never_fits" => of(
            "head-memory-limit",
            "The head is at its memory limit. Reduce series, or raise the limit; senders that retry lose nothing.",
        ),
        "head_memory_tenant_share" => of(
            "head-memory-tenant-share",
            "The tenant is at its share of the head's memory. Reduce its series, or raise the share.",
        ),
        "ingestion_rate" => of(
            "ingestion-rate",
            "The tenant writes more samples per second than it may. Send less, or raise the rate.",
        ),
        "ingestion_burst" => of(
            "ingestion-burst",
            "A request has more samples than a burst may have. Send smaller requests, or raise the burst.",
        ),
        "ingestion_bytes_rate" => of(
            "ingestion-bytes-rate",
            "The tenant writes more bytes per second than it may. Send less, or raise the rate.",
        ),
        "ingestion_bytes_burst" => of(
            "ingestion-bytes-burst",
            "A request has more bytes than a burst may have. Send smaller requests, or raise the burst.",
        ),
        "malformed" | "bad_data" => {
            without_setting("The request cannot be read. The text says where; correct or update its sender.")
        }
        "metadata_invalid_utf8" => without_setting(
            "A name, help text or unit is not UTF-8 and was dropped; the samples are stored. Exporters that write \
             Latin-1 need the text in UTF-8.",
        ),
        "exemplar_invalid" => without_setting(
            "An exemplar has labels that are not UTF-8, empty names or a name twice. It was dropped; the samples are \
             stored.",
        ),
        "unavailable" => without_setting(
            "The server had no permit or no memory for the request. Senders retry; if it lasts, look at \
             write.concurrency and write.memory.",
        ),
        "timeout" => without_setting("The sender was too slow with its body. Check the network between."),
        "too_many_requests" => without_setting("A limit has room again later. Senders retry."),
        _ => return None,
    })
}

/// Reasons of lines, pickles and metrics 2.0.
fn of_line(reason: &str) -> Option<Advice> {
    Some(match reason {
        "missing_value" | "too_many_fields" | "bad_value" | "bad_time" => {
            without_setting("A line is `path value time`. Correct the format at the sender.")
        }
        "nan" => without_setting("Graphite stores no NaN. Leave such points out at the sender."),
        "time_range" => {
            without_setting("Times are seconds, or milliseconds of 13 digits. Check the time unit.")
        }
        "line_too_long" | "node_too_long" => without_setting("Shorten the path at the sender."),
        "empty_path" | "control_byte" => without_setting("The path is not valid. Correct it at the sender."),
        "dropped_by_rule" => {
            of("graphite.rewrites", "A rewrite rule drops the path. Change the rule if that is not intended.")
        }
        "bad_tuple" | "bad_pickle" => without_setting(
            "The bytes are no pickle of points. Check that the sender uses the pickle protocol.",
        ),
        "bad_gzip" => without_setting(
            "The connection began as gzip and its bytes are damaged. Check the network and the sender's \
             compression.",
        ),
        "bad_metric" => {
            without_setting("A field of the metric is missing or wrong. Correct it at the sender.")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronolith_ingest::carbon::RefusedReason;
    use chronolith_model::Reject;

    #[test]
    fn every_reason_has_advice() {
        for reason in Reject::ALL.map(Reject::reason) {
            assert!(of_store(reason).is_some(), "{reason}");
        }
        for reason in RefusedReason::ALL.map(RefusedReason::label) {
            assert!(of_store(reason).or_else(|| of_line(reason)).is_some(), "{reason}");
        }
        assert_eq!(advice_of("out_of_order").setting, Some("out-of-order-window"));
        assert_eq!(advice_of("unknown").setting, None);
    }
}
