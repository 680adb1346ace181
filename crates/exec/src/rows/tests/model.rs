//! Windowed aggregations of random points against a naive model, whatever the slices, morsels and threads.
