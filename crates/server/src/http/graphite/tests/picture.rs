//! Pictures: the default format, their size, their memory.

use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::*;
use crate::http::router;

/// Width and height of the PNG that answers a request.
async fn size_of(server: &Fixture, path: &str) -> (u32, u32) {
    let request = Request::get(path).body(Body::empty()).expect("valid");
    let response = router(server.web.clone()).oneshot(request).await.expect("an answer");
    assert_eq!(response.status().as_u16(), 200, "{path}");
    assert_eq!(response.headers()["content-type"], "image/png", "{path}");
    let bytes = response.into_body().collect().await.expect("memory").to_bytes();
    assert_eq!(&bytes[..16], b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", "{path}");
    let side = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    (side(16), side(20))
}

#[tokio::test]
async fn a_request_without_a_format_is_answered_with_a_picture() {
    let server = with_points().await;
    let range = "from=60&until=600";
    for (query, size) in [
        (format!("target=dc.*.cpu&{range}"), (330, 250)),
        (format!("target=dc.*.cpu&{range}&format="), (330, 250)),
        (format!("target=dc.*.cpu&{range}&format=png&width=600&height=300"), (600, 300)),
        (format!("target=no.such&{range}&format=png&width=100&height=80"), (100, 80)),
    ] {
        assert_eq!(size_of(&server, &format!("/render?{query}")).await, size, "{query}");
    }
    let raw = server.get(&format!("/render?target=dc.a.cpu&{range}&rawData=true")).await;
    assert!(raw.text.starts_with("dc.a.cpu,"), "{}", raw.text);
}

/// Checks that the pixels count in the memory of the request.
#[tokio::test]
async fn a_picture_that_does_not_fit_into_the_memory_of_a_query_is_refused() {
    let server = Fixture::with(|options| options.service.query.memory_bytes_max = 2 << 20).open();
    assert_eq!(size_of(&server, "/render?target=a&width=600&height=600").await, (600, 600));
    let large = server.get("/render?target=a&width=2000&height=600").await;
    assert!(large.text.contains("memory"), "{} {}", large.status, large.text);
    assert_eq!(large.status.as_u16(), 422);
}

#[tokio::test]
async fn a_picture_with_more_pixels_than_a_side_may_have_is_refused() {
    let server = with_points().await;
    for (query, side) in [("format=png&width=5000", "width: 5000"), ("height=4097", "height: 4097")] {
        let answer = server.get(&format!("/render?target=a&{query}")).await;
        assert_eq!(answer.status.as_u16(), 400, "{query}");
        let text = format!("pixels of {side} exceed the limit of 4096");
        assert!(answer.text.contains(&text), "{query}: {}", answer.text);
    }
}
