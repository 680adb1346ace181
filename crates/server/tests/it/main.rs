//! The server on real sockets and as a program of its parts: documents, answers of InfluxDB, restarts,
//! TLS, keys of a provider.

mod documents;
mod influx;
mod issuer_keys;
mod life_of_a_sample;
mod restart;
mod tls;
