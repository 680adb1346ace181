//! A row of the table of routes: paths, operations by method, and texts for the OpenAPI description and
//! docs/reference/api.md.
//!
//! Invariants: rows are constants, and [`Section::new`] checks them when they are compiled. A row has at
//! least one operation, an operation has one scope and says which series it shows, and no method has two
//! operations.
//! Not here: rows (`routes`), and anything that knows a handler.

pub(super) mod table;

use std::sync::Arc;

use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter};
use chronolith_service::access::Scope;

use crate::web::Web;

/// Name of the tenant among the parameters; it is a header.
pub(super) const TENANT: &str = "@tenant";

/// Methods of an operation. GET includes HEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Methods {
    Get,
    Post,
    Delete,
    GetPost,
    PostPut,
}

impl Methods {
    pub(super) const fn names(self) -> &'static [&'static str] {
        match self {
            Methods::Get => &["GET"],
            Methods::Post => &["POST"],
            Methods::Delete => &["DELETE"],
            Methods::GetPost => &["GET", "POST"],
            Methods::PostPut => &["POST", "PUT"],
        }
    }

    pub(super) fn filter(self) -> MethodFilter {
        match self {
            Methods::Get => MethodFilter::GET,
            Methods::Post => MethodFilter::POST,
            Methods::Delete => MethodFilter::DELETE,
            Methods::GetPost => MethodFilter::GET.or(MethodFilter::POST),
            Methods::PostPut => MethodFilter::POST.or(MethodFilter::PUT),
        }
    }

    pub(super) fn has(self, method: &Method) -> bool {
        let name = if *method == Method::HEAD { Method::GET.as_str() } else { method.as_str() };
        self.names().contains(&name)
    }

    /// One bit per method.
    const fn bits(self) -> u8 {
        match self {
            Methods::Get => 1,
            Methods::Post => 2,
            Methods::Delete => 4,
            Methods::GetPost => 3,
            Methods::PostPut => 10,
        }
    }

    const fn overlaps(self, other: Methods) -> bool {
        self.bits() & other.bits() != 0
    }
}

/// Result of an operation beyond its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Reads stored data or the state of the server.
    Reads,
    /// Changes stored data; a server without a store refuses it.
    Changes,
    /// Controls the running server and leaves stored data as they are.
    Controls,
    /// Depends on the request alone, or is always refused.
    Neither,
}

/// Series in the answer of an operation, and who of those that read some series alone may ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shows {
    /// Series of all named tenants, through the view of the identity.
    SeriesOfTenants,
    /// Series of one tenant, through the view of the identity.
    SeriesOfTenant,
    /// No series: the request is about one tenant, or about none.
    NoSeries,
    /// All series of one tenant, be it as counts or texts. A principal that reads some series alone may not
    /// ask.
    AllSeries,
    /// Anything of all tenants or of the server. With several tenants only a principal of all of them may
    /// ask.
    WholeServer,
}

/// Lines of an operation in the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audited {
    /// Two lines: one before the action, without which it is refused, and one after it.
    Action,
    /// One line, if queries have lines.
    Query,
    Nothing,
}

/// Makes the method router of a handler, for these methods.
pub(super) type HandlerFn = fn(MethodFilter) -> MethodRouter<Arc<Web>>;

/// The handler at a path, in the form that a constant can have.
macro_rules! handler {
    ($handler:path) => {
        |methods| axum::routing::on(methods, $handler)
    };
}
pub(super) use handler;

/// One handler of a row, with what it needs and does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub(super) methods: Methods,
    pub(super) scope: Scope,
    pub(super) shows: Shows,
    pub(super) effect: Effect,
    pub(super) handler: HandlerFn,
}

impl Operation {
    /// Returns true if the answer has to see writes before it: it shows series, be it as counts or texts.
    pub(super) fn shows_series(&self) -> bool {
        matches!(self.shows, Shows::SeriesOfTenants | Shows::SeriesOfTenant | Shows::AllSeries)
    }

    /// Lines in the audit log. All operations that change something other than samples and events are
    /// actions; whether a statement of InfluxQL does is known to its handler alone.
    pub(super) fn audited(&self) -> Audited {
        let is_series = matches!(self.shows, Shows::SeriesOfTenants | Shows::SeriesOfTenant);
        match (self.scope, self.effect) {
            (Scope::Admin | Scope::DeleteMetrics | Scope::WriteRules, _) => Audited::Action,
            (Scope::ReadMetrics | Scope::Federate, _) if is_series => Audited::Query,
            (Scope::WriteMetrics, _) => Audited::Nothing,
            (_, Effect::Changes | Effect::Controls) => Audited::Action,
            (_, Effect::Reads | Effect::Neither) => Audited::Nothing,
        }
    }
}

/// Operations of a row at most.
const OPERATIONS_MAX: usize = 3;

/// Body of requests other than GET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestBody {
    None,
    Form,
    Json,
    Protobuf,
    Text,
    Yaml,
}

/// Successful answer, or the refusal if every request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answer {
    Chunks,
    Cost,
    Exposition,
    Federation,
    File,
    Find,
    /// 403 of InfluxDB's API.
    Forbidden,
    InfluxQl,
    /// Prometheus's envelope with any data.
    Json,
    JsonLines,
    NoContent,
    /// 404 for every request.
    NotFound,
    Page,
    /// JSON without Prometheus's envelope.
    PlainJson,
    Protobuf,
    Query,
    /// 400 in Prometheus's envelope.
    Refusal,
    /// 400 as text.
    Refused,
    Render,
    Series,
    String,
    Strings,
    Text,
    Yaml,
}

/// Form of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorForm {
    /// Prometheus's envelope with `errorType`.
    Api,
    /// InfluxDB's JSON and header.
    Influx,
    Text,
}

/// Subject of rows: a tag of the OpenAPI description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Query,
    Search,
    Remote,
    Graphite,
    Influxdb,
    Status,
    Rules,
    Targets,
    Admin,
    Pages,
}

impl Tag {
    pub(super) const ALL: [Tag; 10] = [
        Tag::Query,
        Tag::Search,
        Tag::Remote,
        Tag::Graphite,
        Tag::Influxdb,
        Tag::Status,
        Tag::Rules,
        Tag::Targets,
        Tag::Admin,
        Tag::Pages,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Tag::Query => "query",
            Tag::Search => "search",
            Tag::Remote => "remote",
            Tag::Graphite => "graphite",
            Tag::Influxdb => "influxdb",
            Tag::Status => "status",
            Tag::Rules => "rules",
            Tag::Targets => "targets",
            Tag::Admin => "admin",
            Tag::Pages => "pages",
        }
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Tag::Query => "PromQL: queries, series, labels, metadata, remote read, federation",
            Tag::Search => "Search of names",
            Tag::Remote => "Remote write of Prometheus",
            Tag::Graphite => "Graphite",
            Tag::Influxdb => "InfluxDB 1.x",
            Tag::Status => "State of the server",
            Tag::Rules => "Rules and alerts",
            Tag::Targets => "Lists that are empty, for clients that expect a Prometheus",
            Tag::Admin => "Lifecycle and administration",
            Tag::Pages => "Web interface",
        }
    }

    /// Form of errors of rows that have no other.
    fn errors(self) -> ErrorForm {
        match self {
            Tag::Graphite => ErrorForm::Text,
            Tag::Influxdb => ErrorForm::Influx,
            _ => ErrorForm::Api,
        }
    }
}

/// A row: paths with the same operations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Route {
    /// The path, and others that mean the same. `{name}` is a part of a path, `{*name}` the rest of it.
    pub(super) paths: &'static [&'static str],
    operations: [Option<Operation>; OPERATIONS_MAX],
    /// Names of parameters, `!` after a required one; [`TENANT`] is the header.
    parameters: &'static str,
    pub(super) body: RequestBody,
    pub(super) answer: Answer,
    errors: Option<ErrorForm>,
    /// Pages of allowed origins may read answers; paths below `/api/` have no need of it.
    pub(super) is_cors: bool,
    /// Plain text for the OpenAPI description.
    pub(super) summary: &'static str,
    /// Markdown for docs/reference/api.md; the summary if it is empty.
    pub(super) details: &'static str,
}

impl Route {
    pub(super) const fn new(paths: &'static [&'static str], summary: &'static str) -> Route {
        Route {
            paths,
            operations: [None; OPERATIONS_MAX],
            parameters: "",
            body: RequestBody::None,
            answer: Answer::Json,
            errors: None,
            is_cors: false,
            summary,
            details: "",
        }
    }

    /// Adds an operation.
    pub(super) const fn on(
        mut self,
        methods: Methods,
        scope: Scope,
        shows: Shows,
        effect: Effect,
        handler: HandlerFn,
    ) -> Route {
        let mut idx = 0;
        while self.operations[idx].is_some() {
            idx += 1;
            assert!(idx < OPERATIONS_MAX, "a row has at most three operations");
        }
        self.operations[idx] = Some(Operation { methods, scope, shows, effect, handler });
        self
    }

    pub(super) const fn takes(mut self, parameters: &'static str) -> Route {
        self.parameters = parameters;
        self
    }

    pub(super) const fn body(mut self, body: RequestBody) -> Route {
        self.body = body;
        self
    }

    pub(super) const fn answers(mut self, answer: Answer) -> Route {
        self.answer = answer;
        self
    }

    pub(super) const fn errors(mut self, errors: ErrorForm) -> Route {
        self.errors = Some(errors);
        self
    }

    pub(super) const fn cors(mut self) -> Route {
        self.is_cors = true;
        self
    }

    pub(super) const fn details(mut self, markdown: &'static str) -> Route {
        self.details = markdown;
        self
    }

    pub(super) fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.operations.iter().flatten()
    }

    /// Names of all methods, in order.
    pub(super) fn methods(&self) -> impl Iterator<Item = &'static str> {
        self.operations().flat_map(|operation| operation.methods.names().iter().copied())
    }

    pub(super) fn operation(&self, method: &Method) -> Option<&Operation> {
        self.operations().find(|operation| operation.methods.has(method))
    }

    /// Names of parameters with whether each is required; the tenant is one of them.
    pub(super) fn parameters(&self) -> impl Iterator<Item = Parameter> {
        self.parameters
            .split(' ')
            .filter(|name| !name.is_empty())
            .map(|name| Parameter { name: name.trim_end_matches('!'), is_required: name.ends_with('!') })
    }

    pub(super) fn error_form(&self, tag: Tag) -> ErrorForm {
        self.errors.unwrap_or(tag.errors())
    }

    const fn check(&self) {
        assert!(!self.paths.is_empty() && !self.summary.is_empty(), "a row has a path and a summary");
        assert!(self.operations[0].is_some(), "a row has an operation");
        let mut idx = 1;
        while idx < OPERATIONS_MAX {
            let mut before_idx = 0;
            while before_idx < idx {
                if let (Some(before), Some(operation)) = (&self.operations[before_idx], &self.operations[idx])
                {
                    assert!(
                        !before.methods.overlaps(operation.methods),
                        "a method of a row has one operation"
                    );
                }
                before_idx += 1;
            }
            idx += 1;
        }
    }
}

/// A parameter of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) is_required: bool,
}

/// Rows with the same tag, in the order of the documentation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section {
    pub(super) tag: Tag,
    pub(super) routes: &'static [Route],
}

impl Section {
    /// Checks the rows; in a constant a failed check is an error of the compiler.
    pub(super) const fn new(tag: Tag, routes: &'static [Route]) -> Section {
        let mut idx = 0;
        while idx < routes.len() {
            routes[idx].check();
            idx += 1;
        }
        Section { tag, routes }
    }
}
