//! The server on real sockets and as a program of its parts: Alertmanagers, documents, answers of InfluxDB,
//! keys of a provider, restarts, the scheduler, TLS.

mod alertmanager;
mod documents;
mod influx;
mod issuer_keys;
mod life_of_a_sample;
mod restart;
mod scheduler;
mod tls;
