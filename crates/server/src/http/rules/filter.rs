//! Parameters of `/api/v1/rules`: which groups and rules are listed, and in which pages.
//!
//! Invariants: parameters are checked in Prometheus's order, with its texts; a page ends before a group,
//! never within one.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use chronolith_model::Matcher;
use chronolith_rules::group::Origin;
use chronolith_rules::rule::Rule;
use chronolith_rules::status::GroupStatus;
use ring::digest;

use crate::http::error::ApiError;
use crate::http::params::{Params, int_fault};
use crate::http::series;

/// Filters of a request.
pub(super) struct RuleFilter {
    /// Only alerting rules if true, only recording rules if false.
    only_alerting: Option<bool>,
    rule_names: HashSet<String>,
    group_names: HashSet<String>,
    files: HashSet<String>,
    /// A rule is listed if all matchers of one selector match its labels.
    selectors: Vec<Vec<Matcher>>,
    excludes_alerts: bool,
    is_extended: bool,
    group_limit: Option<usize>,
    /// Token of the first group.
    first_token: Option<String>,
}

/// Parts of the listed rules that are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) alerts: bool,
    /// Counts of rounds and samples, which Prometheus does not show.
    pub(super) counts: bool,
}

/// A group with the indices of its listed rules.
pub(super) struct ListedGroup<'a> {
    pub(super) status: &'a GroupStatus,
    /// Not empty, ascending.
    pub(super) rules: Vec<usize>,
}

/// Groups of one answer.
pub(super) struct Page<'a> {
    pub(super) groups: Vec<ListedGroup<'a>>,
    /// Token of the first group of the next page.
    pub(super) next_token: Option<String>,
}

impl RuleFilter {
    /// Reads and checks the parameters.
    pub(super) fn parse(params: &Params) -> Result<RuleFilter, ApiError> {
        params.well_formed()?;
        let set = |name: &str| params.all(name).map(str::to_owned).collect();
        let selectors = series::selectors(params)?;
        let only_alerting = only_alerting(params)?;
        let excludes_alerts = excludes_alerts(params)?;
        let group_limit = group_limit(params)?;
        Ok(RuleFilter {
            only_alerting,
            rule_names: set("rule_name[]"),
            group_names: set("rule_group[]"),
            files: set("file[]"),
            selectors,
            excludes_alerts,
            is_extended: params.get("extended") == Some("1"),
            group_limit,
            first_token: params.get("group_next_token").map(str::to_owned),
        })
    }

    pub(super) fn shown(&self) -> Shown {
        Shown { alerts: !self.excludes_alerts, counts: self.is_extended }
    }

    /// Returns the listed groups of one page of `groups`.
    pub(super) fn page_of<'a>(&self, groups: &'a [Arc<GroupStatus>]) -> Result<Page<'a>, ApiError> {
        let groups = groups.get(self.first_idx(groups)?..).unwrap_or_default();
        let group_limit = self.group_limit.unwrap_or(usize::MAX);
        let mut page = Page { groups: Vec::new(), next_token: None };
        for status in groups.iter().filter(|status| self.lists_group(status)) {
            let all = status.group.rules().iter().enumerate();
            let rules: Vec<usize> =
                all.filter(|(_, rule)| self.lists_rule(rule)).map(|(idx, _)| idx).collect();
            if rules.is_empty() {
                continue;
            }
            if page.groups.len() == group_limit {
                page.next_token = Some(token_of(status));
                break;
            }
            page.groups.push(ListedGroup { status, rules });
        }
        Ok(page)
    }

    /// Index of the group with the token of the request.
    fn first_idx(&self, groups: &[Arc<GroupStatus>]) -> Result<usize, ApiError> {
        let Some(token) = &self.first_token else { return Ok(0) };
        groups.iter().position(|status| token_of(status) == *token).ok_or_else(|| {
            let why = format_args!("invalid group_next_token '{token}'. were rule groups changed?");
            ApiError::parameter("group_next_token", why)
        })
    }

    fn lists_group(&self, status: &GroupStatus) -> bool {
        let key = &status.group.key;
        is_wanted(&self.group_names, &key.name) && is_wanted(&self.files, &key.file)
    }

    fn lists_rule(&self, rule: &Rule) -> bool {
        let matches =
            |matcher: &Matcher| matcher.matches(rule.labels.get(&*matcher.name).map_or("", |value| value));
        self.only_alerting.is_none_or(|only_alerting| rule.alerting().is_some() == only_alerting)
            && is_wanted(&self.rule_names, &rule.name)
            && (self.selectors.is_empty()
                || self.selectors.iter().any(|selector| selector.iter().all(matches)))
    }
}

/// Returns true if a set of names has `name`, or no names at all.
fn is_wanted(names: &HashSet<String>, name: &str) -> bool {
    names.is_empty() || names.contains(name)
}

/// Token of a group. A group of a file has the token of Prometheus 3.16; earlier releases have another
/// hash. A group of another origin may have the same file and name, and has another token.
fn token_of(status: &GroupStatus) -> String {
    let key = &status.group.key;
    let origin = match status.origin {
        Origin::Files => "",
        Origin::Configured => ";configured",
    };
    let hash = digest::digest(&digest::SHA256, format!("{};{}{origin}", key.file, key.name).as_bytes());
    let mut token = String::with_capacity(64);
    for byte in hash.as_ref() {
        // Writing to a String cannot fail.
        let _ = write!(token, "{byte:02x}");
    }
    token
}

/// `type`: `alert` or `record`, in any case.
fn only_alerting(params: &Params) -> Result<Option<bool>, ApiError> {
    match params.get("type").map(str::to_lowercase).as_deref() {
        None => Ok(None),
        Some("alert") => Ok(Some(true)),
        Some("record") => Ok(Some(false)),
        Some(other) => Err(ApiError::parameter("type", format_args!("not supported value {other:?}"))),
    }
}

/// `exclude_alerts`: a bool of Go's `ParseBool`, of the text in lower case.
fn excludes_alerts(params: &Params) -> Result<bool, ApiError> {
    match params.get("exclude_alerts").map(str::to_lowercase).as_deref() {
        None | Some("0" | "f" | "false") => Ok(false),
        Some("1" | "t" | "true") => Ok(true),
        Some(other) => {
            let why = format_args!(
                "error converting exclude_alerts: strconv.ParseBool: parsing {other:?}: invalid syntax"
            );
            Err(ApiError::parameter("exclude_alerts", why))
        }
    }
}

/// `group_limit`: groups of a page; needed with `group_next_token`.
fn group_limit(params: &Params) -> Result<Option<usize>, ApiError> {
    let Some(text) = params.get("group_limit") else {
        return match params.get("group_next_token") {
            None => Ok(None),
            Some(_) => {
                let why = "group_limit needs to be present in order to paginate over the groups";
                Err(ApiError::parameter("group_next_token", why))
            }
        };
    };
    match text.parse::<i32>().map(usize::try_from) {
        Ok(Ok(limit @ 1..)) => Ok(Some(limit)),
        Ok(_) => Err(ApiError::parameter("group_limit", "group_limit needs to be greater than 0")),
        Err(error) => {
            let why = int_fault(text, &error, "ParseInt");
            Err(ApiError::parameter(
                "group_limit",
                format_args!("group_limit needs to be a valid number: {why}"),
            ))
        }
    }
}
