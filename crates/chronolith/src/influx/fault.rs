//! Reason why a line cannot be stored, by the parser that the server has.
//! Not here: refusals of points that can be parsed, which the server reports.

use chronolith_ingest::line_protocol::{self, DecodeOptions, Precision};

/// Returns the reason why a line, or one of several, cannot be stored; `None` for good ones.
pub(super) fn fault_of(line: &[u8]) -> Option<String> {
    let options = DecodeOptions::new(Precision::Nano, 0);
    let refused = line_protocol::decode(line.to_vec(), &options, &mut line_protocol::new_batch());
    refused.answer(0, &line_protocol::StoreRefused::default())
}
