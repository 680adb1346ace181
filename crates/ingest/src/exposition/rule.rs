//! Rules of the OpenMetrics specification that a body may break, and their texts.

/// Rule beyond the grammar of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    MetadataAfterSamples,
    RepeatedMetadata,
    RepeatedLabel,
    ClashingName,
    UnitOfType,
    NoState,
    Quantile,
    Bound,
    CountInteger,
    CounterNan,
    CounterNegative,
    StateValue,
    InfoValue,
    QuantileNegative,
    ExemplarOfType,
    ExemplarTooLong,
    Interleaved,
    MixedTimestamps,
    TimestampsBackwards,
    BucketOrder,
    BucketValues,
    NoInfinity,
    CountMismatch,
    SumAndCount,
    SumOfNegative,
    NegativeSum,
}

impl Rule {
    pub(super) fn text(self) -> &'static str {
        match self {
            Rule::MetadataAfterSamples => "metadata after samples of its family",
            Rule::RepeatedMetadata => "type, help or unit of a family declared twice",
            Rule::RepeatedLabel => "label name is not unique",
            Rule::ClashingName => "name of a family or of its samples is in use by another family",
            Rule::UnitOfType => "info and stateset cannot have a unit",
            Rule::NoState => "sample of a stateset has no label with the name of the family",
            Rule::Quantile => "quantile of a summary is not between 0 and 1",
            Rule::Bound => "bucket has no valid le label",
            Rule::CountInteger => "count is not an integer",
            Rule::CounterNan => "cumulative value is NaN",
            Rule::CounterNegative => "cumulative value is negative",
            Rule::StateValue => "value of a stateset is neither 0 nor 1",
            Rule::InfoValue => "value of an info is not 1",
            Rule::QuantileNegative => "quantile value is negative",
            Rule::ExemplarOfType => {
                "exemplar of a sample that is neither a bucket nor the total of a counter"
            }
            Rule::ExemplarTooLong => "labels of an exemplar have more than 128 characters",
            Rule::Interleaved => "samples of a group do not follow each other",
            Rule::MixedTimestamps => "samples with and without timestamps in a group",
            Rule::TimestampsBackwards => "timestamps of a group go backwards",
            Rule::BucketOrder => "bounds of buckets do not ascend",
            Rule::BucketValues => "cumulative values of buckets descend",
            Rule::NoInfinity => "histogram has no bucket +Inf, or it is not the last one",
            Rule::CountMismatch => "count differs from the bucket +Inf",
            Rule::SumAndCount => "histogram has one of sum and count alone",
            Rule::SumOfNegative => "histogram with negative bounds has a sum",
            Rule::NegativeSum => "sum is negative, and no bound is",
        }
    }
}
