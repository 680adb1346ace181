//! Changes of the configuration and of the files that it names.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_wait_over_a_reload_that_keeps_their_url() {
    let fake = Fake::start(Answer::Status("503 Service Unavailable", "")).await;
    let fixture = Fixture::start(&config(&[(&fake, "")]));
    fixture.send(&["a"]);
    fixture.wait_counts(&fake, |_, errors, _| errors >= 1).await;
    assert_eq!(fixture.read(), Ok(false), "nothing has changed");
    fake.set_answer(OK);
    fixture.put("alerting.yml", &config(&[(&fake, "bearer_token: t")]));
    assert_eq!(fixture.read(), Ok(true));
    fixture.wait_counts(&fake, |sent, errors, dropped| sent == 1 && errors >= 1 && dropped == 0).await;
    let last = fake.received().pop().expect("a request");
    assert!(last.head.contains("Bearer t"), "{}", last.head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_used_leaves_the_one_in_use() {
    let fake = Fake::start(OK).await;
    let fixture = Fixture::start(&config(&[(&fake, "")]));
    for (text, want) in [
        ("alerting: {alertmanager: []}", "1:12: unknown field `alertmanager` in `alerting`"),
        ("alerting: {alertmanagers: [{bearer_token_file: missing}]}", "No such file"),
        (
            "alerting: {alertmanagers: [{tls_config: {ca: nonsense}}]}",
            "`ca`: the PEM text has no certificate",
        ),
        ("alerting: {alertmanagers: [{http_headers: {'a b': {values: [x]}}}]}", "is no name of a header"),
        ("alerting: {alertmanagers: [{tls_config: {server_name: 'a b'}}]}", "`server_name` is no host name"),
    ] {
        fixture.put("alerting.yml", text);
        let error = fixture.read().expect_err("refused");
        assert!(error.contains("alerting.yml: ") && error.contains(want), "{error}");
        assert_eq!(fixture.read(), Ok(false), "an error is returned once");
        assert!(!fixture.notifier.is_read());
    }
    fixture.send(&["a"]);
    fake.wait_for(1).await;
    fixture.put("alerting.yml", &config(&[(&fake, "timeout: 1s")]));
    assert_eq!(fixture.read(), Ok(true));
    assert!(fixture.notifier.is_read());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alertmanager_that_is_removed_gets_what_waits_and_nothing_more() {
    let fake = Fake::start(OK).await;
    let other = Fake::start(OK).await;
    let fixture = Fixture::start(&config(&[(&fake, "")]));
    fixture.send(&["a"]);
    fixture.put("alerting.yml", &config(&[(&other, "")]));
    assert_eq!(fixture.read(), Ok(true));
    fixture.send(&["b"]);
    other.wait_for(1).await;
    assert_eq!(fake.wait_for(1).await.len(), 1);
    assert!(fake.received()[0].body.contains("\"a\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_of_files_are_found_without_a_restart() {
    let fake = Fake::start(OK).await;
    let text = "alerting: {alertmanagers: [{file_sd_configs: [{files: ['am-*.json', other.yml]}]}]}";
    let fixture = Fixture::start(text);
    assert_eq!(fixture.notifier.urls().0.len(), 0);
    fixture.put("am-1.json", &format!("[{{\"targets\": [\"{}\"]}}]", fake.address));
    fixture.put("unrelated.json", "nonsense");
    assert_eq!(fixture.read(), Ok(true));
    let url = format!("http://{}/api/v2/alerts", fake.address);
    assert_eq!(fixture.notifier.urls().0, std::slice::from_ref(&url));
    fixture.send(&["a"]);
    fake.wait_for(1).await;
    // A file that is damaged keeps its targets.
    fixture.put("am-1.json", "[");
    fixture.put("other.yml", "- targets: [b]\n");
    assert_eq!(fixture.read(), Ok(true));
    assert_eq!(fixture.notifier.urls().0, [url.as_str(), "http://b/api/v2/alerts"]);
    assert_eq!(fixture.notifier.failed_file_count(), 1);
    std::fs::remove_file(fixture.dir.path().join("am-1.json")).expect("removed");
    assert_eq!(fixture.read(), Ok(true));
    assert_eq!(fixture.notifier.urls().0, ["http://b/api/v2/alerts"]);
    assert_eq!(fixture.notifier.failed_file_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_reports_the_first_fault_of_all_files() {
    let fixture = Fixture::stopped("alerting: {alertmanagers: [{file_sd_configs: [{files: [t.yml]}]}]}");
    let path = fixture.dir.path().join("alerting.yml");
    let check = || check_alerting_config(&path, &*fixture.env.disk);
    assert_eq!(check(), Ok(()));
    fixture.put("t.yml", "- targets: ['a/b']\n");
    assert!(check().expect_err("refused").contains("\"a/b\" is not a valid hostname"));
    fixture.put("t.yml", "- target: []\n");
    let error = check().expect_err("refused");
    assert!(error.contains("t.yml: 1:3: unknown field `target`"), "{error}");
    let many: Vec<String> = (0..257).map(|number| format!("a{number}")).collect();
    fixture.put("t.yml", &format!("- targets: [{}]\n", many.join(", ")));
    assert!(check().expect_err("refused").ends_with("257 Alertmanagers, at most 256 are allowed"));
    fixture.put("alerting.yml", "alerting: []");
    assert!(check().expect_err("refused").ends_with("alerting.yml: 1:11: `alerting` is no mapping"));
}
