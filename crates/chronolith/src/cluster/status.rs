//! `chronolith cluster status`: processes of a cluster and owners of partitions, as servers (`--url`) or
//! owners (`--owners`) report them.
//!
//! Invariants: exit code 1 if a server or owner does not answer or is not ready, or a partition that is known
//! has no ready owner; each server is asked once.
//! Not here: rows of owners (`owners`).

use std::collections::BTreeSet;

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_cluster::PartitionId;
use chronolith_cluster::partition_changes::newest_map;
use chronolith_cluster::partition_states::recent_partitions;
use chronolith_server::{NodeOptions, ask_owners};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use super::context::{Outcome, Tool};
use super::deletions::{OpenDeletion, open_deletions};
use super::owners::{Owned, table};
use crate::settings::{ToolSettings, add_tool_flags};
use crate::table::{Column, aligned};
use crate::{client, credentials};

const STATUS_PATH: &str = "/api/v1/status/cluster";
const COLUMNS: [Column; 3] = [Column::Text("NODE"), Column::Text("ROLES"), Column::Text("STATE")];

pub(super) fn command() -> Command {
    let url = Arg::new("url")
        .long("url")
        .value_name("URL")
        .num_args(1..)
        .action(ArgAction::Append)
        .conflicts_with("owners")
        .help("Servers with any role, such as http://127.0.0.1:9595; a query node knows all owners");
    let command = Command::new("status")
        .about("Show processes, owners of partitions, lag and positions; exit code 1 if something is missing")
        .arg(url);
    credentials::add_arguments(add_tool_flags(command, ToolSettings::BucketAndOwners)).mut_arg(
        "bucket",
        |arg| {
            arg.help(
                "Bucket whose partition map names the partitions that need an owner [env: CHRONOLITH_BUCKET]",
            )
        },
    )
}

/// A process of the cluster.
struct Node {
    name: String,
    roles: String,
    /// Reason why it is not ready or did not answer.
    trouble: Option<String>,
}

#[derive(Default)]
struct Report {
    nodes: Vec<Node>,
    owned: Vec<Owned>,
    /// Partitions that queries ask or that the map has.
    known: BTreeSet<PartitionId>,
    /// True if owners are among the nodes, or are known to one.
    has_owners: bool,
    /// Reason why the owners are not known.
    lookup_fault: Option<String>,
    /// Open deletions; none without a bucket.
    deletions: Vec<OpenDeletion>,
}

pub(super) fn run(env: &Env, matches: &ArgMatches) -> anyhow::Result<Outcome> {
    let tool = Tool::open(env, matches, ToolSettings::BucketAndOwners)?;
    let mut report = Report::default();
    match (matches.get_many::<String>("url"), tool.owners()) {
        (Some(urls), _) => {
            let authorization = credentials::authorization(matches)?;
            urls.for_each(|url| report.add_server(url, authorization.as_deref()));
        }
        (None, Some(options)) => report.add_owners(&tool, options)?,
        (None, None) => anyhow::bail!(
            "expected --url with URLs of servers, or --owners with the place of the owners and \
             --cluster.node-token-file"
        ),
    }
    if let Some(bucket) = tool.bucket_if_named()? {
        let map = newest_map(&bucket, env, tool.handle()).context("reading the partition map")?;
        let now_ms = env.clock.now_ms();
        let open = open_deletions(&bucket, env, tool.handle());
        report.deletions = open.context("reading the list of deletions")?;
        report.known.extend(map.iter().flat_map(|snapshot| recent_partitions(&snapshot.map, now_ms)));
    }
    let is_sound = report.is_sound();
    let is_json = matches.get_flag("json");
    Ok(Outcome { text: if is_json { report.json() } else { report.text() }, is_sound })
}

impl Report {
    fn add_server(&mut self, url: &str, authorization: Option<&str>) {
        let headers: Vec<(&str, &str)> =
            authorization.iter().map(|value| ("Authorization", *value)).collect();
        let name = client::without_login(url);
        let asked = client::get(url, STATUS_PATH, &headers).and_then(|answer| answer.data());
        match asked {
            Ok(status) => self.add_status(&name, &status),
            Err(error) => {
                let trouble = Some(format!("{error:#}"));
                self.nodes.push(Node { name, roles: "-".to_owned(), trouble });
            }
        }
    }

    fn add_status(&mut self, name: &str, status: &Value) {
        if status.is_null() {
            self.nodes.push(Node { name: name.to_owned(), roles: "all".to_owned(), trouble: None });
            return;
        }
        let roles: Vec<&str> =
            status["roles"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let trouble = status["unready"].as_str().map(str::to_owned);
        self.nodes.push(Node { name: name.to_owned(), roles: roles.join(","), trouble });
        self.owned.extend(Owned::of_status(name, &status["owner"]));
        let query = &status["query"];
        self.has_owners |= roles.contains(&"owner") || query.is_object();
        let asked = query["askedPartitions"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        self.known.extend(asked.filter_map(|number| u32::try_from(number).ok()).map(PartitionId));
        for owner in query["owners"].as_array().into_iter().flatten() {
            let address = owner["address"].as_str().unwrap_or("");
            let trouble = owner["fault"].as_str().map(str::to_owned);
            self.nodes.push(Node { name: address.to_owned(), roles: "owner".to_owned(), trouble });
            let partitions = owner["partitions"].as_array().into_iter().flatten();
            self.owned.extend(partitions.filter_map(|one| Owned::of_status(address, one)));
        }
    }

    fn add_owners(&mut self, tool: &Tool, options: &NodeOptions) -> anyhow::Result<()> {
        let directory = ask_owners(&tool.env, tool.handle(), options).map_err(anyhow::Error::msg)?;
        self.has_owners = true;
        self.lookup_fault = directory.lookup_fault();
        for node in directory.nodes() {
            self.owned.extend(Owned::of_node(&node));
            self.nodes.push(Node { name: node.address, roles: "owner".to_owned(), trouble: node.fault });
        }
        if let [first, second, ..] = directory.topics()[..] {
            self.lookup_fault = Some(format!("owners report topics {first} and {second}, expected one"));
        }
        Ok(())
    }

    /// Partitions that are known and have no ready owner; none if no owner was asked for.
    fn unavailable(&self) -> Vec<PartitionId> {
        let is_ready = |partition: &PartitionId| {
            self.owned.iter().any(|one| one.partition == *partition && one.not_ready.is_none())
        };
        let known = self.known.iter().copied().chain(self.owned.iter().map(|one| one.partition));
        let known: BTreeSet<PartitionId> = known.filter(|_| self.has_owners).collect();
        known.into_iter().filter(|partition| !is_ready(partition)).collect()
    }

    fn is_sound(&self) -> bool {
        let has_trouble = self.nodes.iter().any(|node| node.trouble.is_some());
        !has_trouble && self.lookup_fault.is_none() && self.unavailable().is_empty()
    }

    fn text(&self) -> String {
        let row = |node: &Node| {
            let state = node.trouble.as_ref().map_or_else(|| "ready".to_owned(), Clone::clone);
            [node.name.clone(), node.roles.clone(), state]
        };
        let rows: Vec<[String; COLUMNS.len()]> = self.nodes.iter().map(row).collect();
        let mut text = aligned(COLUMNS, &rows);
        if let Some(why) = &self.lookup_fault {
            text.push_str(&format!("owners: {why}\n"));
        }
        if self.has_owners {
            let unavailable = self.unavailable();
            let without_owner: Vec<PartitionId> = unavailable
                .iter()
                .copied()
                .filter(|partition| !self.owned.iter().any(|one| one.partition == *partition))
                .collect();
            text.push('\n');
            text.push_str(&table(&self.owned, &without_owner));
            text.push_str(&format!("{} partitions without a ready owner\n", unavailable.len()));
        }
        self.deletions.iter().for_each(|deletion| text.push_str(&deletion.line()));
        text
    }

    fn json(&self) -> String {
        let nodes = self.nodes.iter();
        let nodes =
            nodes.map(|node| json!({ "node": node.name, "roles": node.roles, "trouble": node.trouble }));
        let unavailable = self.unavailable();
        let value = json!({
            "nodes": nodes.collect::<Vec<_>>(),
            "partitions": self.owned.iter().map(Owned::json).collect::<Vec<_>>(),
            "unavailablePartitions": unavailable.iter().map(|partition| partition.0).collect::<Vec<_>>(),
            "lookupFault": self.lookup_fault,
            "openDeletions": self.deletions.iter().map(OpenDeletion::json).collect::<Vec<_>>(),
        });
        format!("{value}\n")
    }
}
