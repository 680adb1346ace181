//! The server on real sockets and as a program of its parts: Alertmanagers, documents, answers of InfluxDB,
//! keys of a provider, restarts, the scheduler, TLS.
//!
//! Tests that write run on each [`topology`]: a server with its WAL, and processes over a log. These run on
//! a server alone:
//!
//! | tests | reason |
//! |---|---|
//! | `scheduler`, `alertmanager` | rules and continuous queries are no work of a gateway or an owner |
//! | `life_of_a_sample` | is about the WAL, blocks and power cuts of one machine |
//! | `influx::access`, `influx::lists_after_a_deletion` | a cluster has neither users nor deletions |
//! | `tls`, `issuer_keys` | write a point at most, and test listeners |

mod alertmanager;
mod documents;
mod influx;
mod issuer_keys;
mod life_of_a_sample;
mod restart;
mod scheduler;
mod tls;
mod topology;
