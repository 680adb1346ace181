//! Bodies of line protocol.
//!
//! Not here: templates that are written over (`line_protocol::body`).

use std::fmt::Write as _;

use anyhow::Result;

use crate::http::WriteConnection;

/// Bytes of a body from which on it is sent.
const BODY_BYTES: usize = 1 << 20;

/// Sends lines to one database in large requests.
pub(crate) struct LineWriter {
    connection: WriteConnection,
    body: String,
}

impl LineWriter {
    /// Connects to the server at `port`.
    pub(crate) fn open(port: u16, database: &str) -> Result<LineWriter> {
        LineWriter::open_as(port, database, "anonymous")
    }

    /// The same for a tenant.
    pub(crate) fn open_as(port: u16, database: &str, tenant: &str) -> Result<LineWriter> {
        let path = format!("/write?db={database}&precision=ns");
        let connection = WriteConnection::open_with(port, &path, &format!("X-Scope-OrgID: {tenant}\r\n"))?;
        Ok(LineWriter { connection, body: String::new() })
    }

    /// Adds a line without its newline.
    pub(crate) fn line(&mut self, line: std::fmt::Arguments<'_>) -> Result<()> {
        // Writing to a String does not fail.
        let _ = writeln!(self.body, "{line}");
        if self.body.len() >= BODY_BYTES { self.flush() } else { Ok(()) }
    }

    /// Sends the remaining lines and waits until they are acknowledged.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if !self.body.is_empty() {
            self.connection.post(self.body.as_bytes())?;
            self.body.clear();
        }
        Ok(())
    }
}
