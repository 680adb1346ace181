//! Health and readiness probes of load balancers and orchestrators.

use super::*;

/// Covers a regression: after a failed sync nothing is written until a restart, and both probes kept
/// answering 200: no orchestrator restarted it.
#[tokio::test]
async fn a_poisoned_log_is_neither_healthy_nor_ready() {
    let (env, _clock, disk) = Env::fake(NOW_MS, 1);
    let web = Arc::new(Web::new(env, ServerOptions::new("/data".into()), None));
    let server = Fixture::new(web).open();
    for path in ["/-/healthy", "/-/ready"] {
        assert_eq!(server.get(path).await.status, StatusCode::OK, "{path}");
    }
    disk.fail_after(0);
    let labels = [("__name__", "m")];
    let refused = server.write(&[(&labels, &[(NOW_MS, 1.0)])]).await;
    assert_eq!(refused.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", refused.text);
    disk.heal();
    for path in ["/-/healthy", "/-/ready"] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(answer.text.contains("WAL write failed"), "{path}: {}", answer.text);
    }
    assert_eq!(server.get("/api/v1/query?query=1").await.status, StatusCode::OK, "queries go on");
}

#[tokio::test]
async fn a_stop_withdraws_readiness_while_requests_are_still_answered() {
    let server = Fixture::ready();
    server.web.service.lifecycle.begin_drain();
    let ready = server.get("/-/ready").await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(ready.text.contains("server is shutting down"), "{}", ready.text);
    assert_eq!(server.get("/-/healthy").await.status, StatusCode::OK);
    assert_eq!(server.get("/api/v1/query?query=1").await.status, StatusCode::OK);
    let labels = [("__name__", "m")];
    assert_eq!(server.write(&[(&labels, &[(NOW_MS, 1.0)])]).await.status, StatusCode::NO_CONTENT);
}

/// Covers a regression: after a panic of the replay both probes and the start page went on saying that the
/// log is replayed.
#[tokio::test]
async fn a_failed_start_is_neither_healthy_nor_ready() {
    let (env, _clock, disk) = Env::fake(NOW_MS, 1);
    let new = || Fixture::new(Arc::new(Web::new(env.clone(), ServerOptions::new("/data".into()), None)));
    let (panicked, refused) = (new(), new());
    crate::serve::open_store(&panicked.web, |_| panic!("a bug in the replay"));
    disk.fail_after(0);
    crate::serve::open_store(&refused.web, |web| {
        chronolith_tsdb::Tsdb::open(
            web.service.env.clone(),
            web.service.options.tsdb_options(),
            web.service.lifecycle.replay_progress(),
        )
    });
    for (server, why) in [(panicked, "the replay panicked"), (refused, "start failed: ")] {
        for path in ["/-/healthy", "/-/ready"] {
            let answer = server.get(path).await;
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
            assert!(answer.text.contains(why), "{path}: {}", answer.text);
        }
    }
}
