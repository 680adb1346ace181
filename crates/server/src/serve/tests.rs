//! Servers on real sockets that work together.

mod query_node;
