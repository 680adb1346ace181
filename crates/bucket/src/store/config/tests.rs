//! URLs and settings: accepted forms, messages of refused ones.

use super::*;

#[track_caller]
fn check(url: &str, want: Location, want_prefix: &str) {
    assert_eq!(parse_url(url), Ok((want, want_prefix.to_owned())));
}

#[test]
fn urls_name_store_bucket_and_prefix() {
    let s3 = || Location::S3 { bucket: "metrics".to_owned() };
    check("s3://metrics", s3(), "");
    check("s3://metrics/", s3(), "");
    check("s3://metrics/a/b c/", s3(), "a/b c");
    check("gs://metrics/p", Location::Gcs { bucket: "metrics".to_owned() }, "p");
    check("az://box", Location::Azure { container: "box".to_owned() }, "");
    check("file:///var/lib/x y", Location::File { dir: PathBuf::from("/var/lib/x y") }, "");
    check("memory://", Location::Memory, "");
    check("memory:///p", Location::Memory, "p");
}

#[test]
fn other_urls_are_refused() {
    let urls = [
        "",
        "s3",
        "s3:/x",
        "s3://",
        "s3:///x",
        "http://x/y",
        "file://x",
        "file://",
        "s3://b//x",
        "s3://b/../x",
        "s3://b/./x",
        "s3://user:word@b",
        "memory://x",
        "gs://?",
        "s3://b/\u{1}",
    ];
    for url in urls {
        let error = parse_url(url).unwrap_err();
        assert!(error.to_string().starts_with("bucket: expected s3://BUCKET"), "{url}: {error}");
        assert!(!error.to_string().contains("word"), "{error}");
    }
}

#[track_caller]
fn check_refused(change: impl FnOnce(&mut StoreConfig), want: &str) {
    let (env, _, _) = Env::fake(0, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut config = StoreConfig::new("s3://metrics");
    config.access_key_id = Some("id".to_owned());
    config.secret_access_key = Some("hidden".to_owned());
    change(&mut config);
    let refused = config.open(&env, runtime.handle()).err().map(|error| error.to_string());
    assert_eq!(refused.as_deref(), Some(want));
    assert!(!format!("{config:?}").contains("hidden"));
}

#[test]
fn messages_name_setting_and_expectation() {
    check_refused(|c| c.requests_max = 0, "bucket.requests-max: expected 1 to 65536, found 0");
    check_refused(
        |c| c.request_timeout = Duration::ZERO,
        "bucket.request-timeout: expected 100ms to 1h, found 0ns",
    );
    check_refused(
        |c| c.endpoint = Some("http://127.0.0.1:1".to_owned()),
        "bucket.endpoint: expected https:// unless bucket.allow-http is set, found http://127.0.0.1:1",
    );
    check_refused(
        |c| c.endpoint = Some("localhost".to_owned()),
        "bucket.endpoint: expected an http:// or https:// URL, found localhost",
    );
    check_refused(
        |c| c.access_key_id = None,
        "bucket.access-key-id: expected both access key id and secret access key, or neither, found one of them",
    );
    check_refused(
        |c| c.url = "file:///absent".to_owned(),
        "bucket: expected an existing directory, found /absent: entity not found",
    );
}

/// Runs without the features in the step `features` of `cargo xtask ci --all`.
#[test]
fn stores_that_are_not_built_are_refused_by_the_name_of_their_feature() {
    let (env, _, _) = Env::fake(0, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (scheme, feature, is_built) in
        [("gs", "gcs", cfg!(feature = "gcs")), ("az", "azure", cfg!(feature = "azure"))]
    {
        for rest in ["b", "b/", "b/p", "b/p/q", "a-b.c/p"] {
            let url = format!("{scheme}://{rest}");
            let mut config = StoreConfig::new(&url);
            config.access_key_id = Some("account".to_owned());
            let refused = config.open(&env, runtime.handle()).err().map(|error| error.to_string());
            let want = not_built(feature, &url).to_string();
            assert_eq!(refused, (!is_built).then_some(want), "{url}");
        }
    }
    assert_eq!(
        not_built("azure", "az://b").to_string(),
        "bucket: expected a store of this build, which lacks the feature `azure`, found az://b"
    );
}

#[test]
fn clients_of_all_stores_are_made() {
    let (env, _, _) = Env::fake(0, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let gs = cfg!(feature = "gcs").then_some("gs://b/p");
    let az = cfg!(feature = "azure").then_some("az://b/p");
    for url in ["s3://b/p", "memory:///p"].into_iter().chain(gs).chain(az) {
        let mut config = StoreConfig::new(url);
        config.access_key_id = Some("account".to_owned());
        config.secret_access_key = Some("c2VjcmV0".to_owned());
        let opened = config.open(&env, runtime.handle()).map(|opened| opened.prefix);
        assert_eq!(opened, Ok("p".to_owned()), "{url}");
    }
}
