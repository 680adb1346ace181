//! Gateway, owners and query node on ports of their own: a deletion that all of them see, restarts of owners
//! with and without their directories.

use std::collections::BTreeMap;

use super::*;

/// Time after which a request of these tests is given up: the clock jumps with each pause.
const TIMEOUT_MS: u64 = 1000 * 3_600_000;
const PARTITIONS: u32 = 2;
const JOBS: usize = 24;
const LOOKS_MAX: usize = 10_000;
const OWNERS_FILE: &str = "/owners";

/// A process that listens.
struct Listening {
    process: Process,
    address: String,
    stop: tokio::sync::oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Listening {
    async fn start(process: Process) -> Listening {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let router = router(process.server.web.clone());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        // The listener is of the runtime of the test.
        let task = tokio::spawn(async move {
            let ended = axum::serve(listener, router).with_graceful_shutdown(async move {
                let _ = stopped.await;
            });
            ended.await.expect("serves");
        });
        Listening { process, address, stop, task }
    }

    /// Stops the process, and returns once nothing of it is left.
    async fn end(self) {
        self.stop.send(()).expect("it listens");
        self.task.await.expect("no panic");
        tokio::task::spawn_blocking(move || drop(self.process)).await.expect("no panic");
    }
}

struct Cluster {
    site: Site,
    gateway: Process,
    owners: Vec<Listening>,
    query: Process,
}

fn options_of(options: &mut ServerOptions) {
    options.service.query.timeout_ms = TIMEOUT_MS;
    options.service.cluster.gateway.tenant_partitions_min = PARTITIONS as usize;
}

async fn start_owner(site: &Site, partition: u32, data_dir: &str) -> Listening {
    let mut owner = Process::on(site, "owner", |options| {
        options_of(options);
        options.service.cluster.owner.partition = Some(PartitionChoice::Number(partition));
        options.service.tsdb.data_dir = data_dir.into();
        options.nodes.token_file = Some(write_token(&site.env));
    });
    owner.start_owner().await;
    Listening::start(owner).await
}

impl Cluster {
    async fn start() -> Cluster {
        let site = Site::new(PARTITIONS, "file:///bucket");
        site.env.disk.create_dir_all(Path::new("/bucket")).expect("a directory");
        let gateway = Process::on(&site, "gateway", options_of);
        gateway.round().await;
        let mut owners = Vec::new();
        for partition in 0..PARTITIONS {
            owners.push(start_owner(&site, partition, &format!("/owner-{partition}")).await);
        }
        let query = Process::on(&site, "query", |options| {
            options_of(options);
            options.nodes.owners = Some(format!("file://{OWNERS_FILE}").parse().expect("a file"));
        });
        let cluster = Cluster { site, gateway, owners, query };
        cluster.find_owners().await;
        cluster
    }

    /// Waits until the query node knows a ready owner of each partition.
    async fn find_owners(&self) {
        let addresses: Vec<&str> = self.owners.iter().map(|owner| &*owner.address).collect();
        let written =
            self.site.env.disk.write_atomic(Path::new(OWNERS_FILE), addresses.join("\n").as_bytes());
        written.expect("written");
        for _ in 0..LOOKS_MAX {
            let web = self.query.server.web.clone();
            let look = tokio::task::spawn_blocking(move || {
                let node = web.query_node().expect("a query node");
                node.refresh();
                node.partitions()
            });
            let (partitions, unavailable) = look.await.expect("no panic");
            if partitions.len() == PARTITIONS as usize && unavailable.is_empty() {
                return;
            }
        }
        let status = self.query.server.get("/api/v1/status/cluster").await.text;
        panic!("not all partitions have a ready owner: {status}");
    }

    /// Ends an owner, and starts it over `data_dir`.
    async fn restart_owner(&mut self, idx: usize, data_dir: &str) {
        let owner = self.owners.remove(idx);
        owner.end().await;
        self.owners.insert(idx, start_owner(&self.site, idx as u32, data_dir).await);
        self.find_owners().await;
    }

    /// Writes a sample of each job; returns the offsets.
    async fn write(&self, jobs: impl Iterator<Item = usize>, value: f64) -> String {
        let jobs: Vec<String> = jobs.map(|job| job.to_string()).collect();
        let labels: Vec<[(&str, &str); 2]> =
            jobs.iter().map(|job| [("__name__", "up"), ("job", &**job)]).collect();
        let samples = [(NOW_MS, value)];
        let series: Vec<(Pairs<'_>, &[(i64, f64)])> =
            labels.iter().map(|labels| (&labels[..], &samples[..])).collect();
        let answer = self.gateway.server.write(&series).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
        offsets_of(&answer).expect("offsets")
    }

    /// Deletes the samples of the jobs that match; returns the offsets.
    async fn delete(&self, jobs: &str) -> String {
        let path = format!("/api/v1/admin/tsdb/delete_series?match[]=up%7Bjob=~%22{jobs}%22%7D");
        let request = Request::post(path).body(Body::empty()).expect("a request");
        let answer = self.gateway.server.send(request).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
        offsets_of(&answer).expect("offsets")
    }

    /// Compares the values of all jobs, as the query node shows them to a read that waits for `offsets`.
    async fn check(&self, offsets: &str, want: &[(usize, f64)], when: &str) {
        // The clock jumps while a deletion waits, and reports get old.
        self.find_owners().await;
        let request = Request::get(format!("/api/v1/query?query=up&time={NOW_S}"))
            .header("X-Chronolith-Min-Offsets", offsets)
            .body(Body::empty());
        let found = self.query.server.send(request.expect("a request")).await.json();
        let result = found["data"]["result"].as_array().unwrap_or_else(|| panic!("{when}: {found}"));
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let found: BTreeMap<String, String> =
            result.iter().map(|one| (text(&one["metric"]["job"]), text(&one["value"][1]))).collect();
        let want: BTreeMap<String, String> =
            want.iter().map(|(job, value)| (job.to_string(), value.to_string())).collect();
        assert_eq!(found, want, "{when}");
    }

    /// Lets time pass until each owner has published its windows.
    async fn publish(&self) {
        self.site.clock.advance(Duration::from_secs(4 * 3600));
        // The first round finds that records were appended since the last one.
        self.gateway.round().await;
        self.gateway.round().await;
        for owner in &self.owners {
            let owner = owner.process.server.web.service.lifecycle.roles.owner().expect("open");
            while owner.status().cuts.published_block_count == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}

#[tokio::test]
async fn a_query_node_shows_no_deleted_sample_and_all_later_ones_over_restarts_of_owners() {
    let mut cluster = Cluster::start().await;
    let offsets = cluster.write(0..JOBS, 1.0).await;
    assert_eq!(offsets.split(',').count(), PARTITIONS as usize, "both partitions have series");
    let mut want: Vec<(usize, f64)> = (0..JOBS).map(|job| (job, 1.0)).collect();
    cluster.check(&offsets, &want, "before").await;

    let offsets = cluster.delete("1.*").await;
    want.retain(|(job, _)| !job.to_string().starts_with('1'));
    cluster.check(&offsets, &want, "deleted in memory").await;
    let offsets = cluster.write(10..20, 2.0).await;
    want.extend((10..20).map(|job| (job, 2.0)));
    cluster.check(&offsets, &want, "written at the deleted time").await;
    cluster.restart_owner(0, "/owner-0").await;
    cluster.restart_owner(1, "/owner-1-without-its-directory").await;
    cluster.check(&offsets, &want, "after restarts").await;

    cluster.publish().await;
    let offsets = cluster.delete("1.%7C0").await;
    want.retain(|(job, _)| *job != 0 && !(10..20).contains(job));
    cluster.check(&offsets, &want, "deleted in blocks").await;
    let offsets = cluster.write([0, 1, 10, 11, 12, 13].into_iter(), 3.0).await;
    want.extend([0, 1, 10, 11, 12, 13].map(|job| (job, 3.0)));
    cluster.check(&offsets, &want, "written at the times of deleted blocks").await;
    cluster.restart_owner(0, "/owner-0-without-its-directory").await;
    cluster.restart_owner(1, "/owner-1-without-its-directory").await;
    cluster.check(&offsets, &want, "after further restarts").await;
    for owner in &cluster.owners {
        let status = owner.process.server.web.service.lifecycle.roles.owner().expect("open").status();
        assert_eq!((status.refused_count, status.fault, status.cuts.fault), (0, None, None));
    }
}
