//! Functions that only PromQL has, as operators and computations on series.
//! Not here: functions of one number and of range vectors, which are operators of every language (`exec`);
//! which function a name means (`plan`).

pub(crate) mod absent;
pub(crate) mod buckets;
pub(crate) mod calendar;
pub(crate) mod count_values;
pub(crate) mod counter_check;
pub(crate) mod label;
pub(crate) mod math;
pub(crate) mod order;
pub(crate) mod stats;
pub(crate) mod target_info;
