//! Parts and escapes of URLs.

/// Returns `text` with all bytes escaped that a query cannot have; spaces become plus signs.
pub(super) fn query_escape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            b' ' => out.push(b'+'),
            b'-' | b'_' | b'.' | b'~' => out.push(byte),
            byte if byte.is_ascii_alphanumeric() => out.push(byte),
            byte => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    out
}

/// Returns the path of the page that shows `expression`; tab 0 is the graph, 1 the table.
pub(super) fn expression_link(expression: &[u8], tab: u8) -> Vec<u8> {
    let mut out = b"/graph?g0.expr=".to_vec();
    out.extend(query_escape(expression));
    out.extend_from_slice(format!("&g0.tab={tab}").as_bytes());
    out
}

/// Returns the path of a URL, unescaped.
pub(super) fn path(url: &str) -> Vec<u8> {
    let url = url.split(['?', '#']).next().unwrap_or("");
    let path = match url.split_once("://") {
        Some((_, rest)) => rest.find('/').and_then(|at| rest.get(at..)).unwrap_or(""),
        None => url,
    };
    let mut out = Vec::with_capacity(path.len());
    let mut bytes = path.as_bytes();
    while let Some((&byte, rest)) = bytes.split_first() {
        let code = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| byte == b'%');
        match code {
            Some(code) => {
                out.push(code);
                bytes = rest.get(2..).unwrap_or_default();
            }
            None => {
                out.push(byte);
                bytes = rest;
            }
        }
    }
    out
}
