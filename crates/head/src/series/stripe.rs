//! One of sixteen stripes of series, guarded by one lock: state, appends, sealing.
//!
//! Not here: the WAL (`write`), labels of series (`index`).

mod append;
mod decoded;
mod histograms;
mod idle;
mod kind;
mod layout;
mod ooo_log;
mod record;
mod reorder_buffers;
mod reordered;
mod resolve;
mod seal;
mod starts;
mod state;

pub(crate) use histograms::HistogramBudget;
pub(crate) use layout::{NONE, PAGE_SLOTS, STRIPE_COUNT, stripe_of};
pub(crate) use ooo_log::OooSample;
pub(crate) use record::SeriesState;
pub(crate) use reordered::{append_by_rule, flush};
pub(crate) use resolve::Arrivals;
pub(crate) use state::{AppendContext, Stripe};

#[cfg(test)]
mod tests;
