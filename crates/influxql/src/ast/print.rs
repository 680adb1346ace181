//! Statements and expressions as text, in the form that SHOW CONTINUOUS QUERIES, EXPLAIN and errors print.
//!
//! Invariants: the text parses to an equal tree, except that an operand that would be read differently gets
//! parentheses. Passwords are never printed. Floats have three decimals, or more if they need them.
//! Not here: quotes and durations (`literal`).

use std::fmt::{self, Display, Formatter, Write};

use super::expr::{BinaryOp, Call, Chain, DataType, Expr, VarRef};
use super::literal::{format_duration, format_duration_go, quote_ident, quote_text};
use super::schema::{
    AlterRetentionPolicy, CreateContinuousQuery, CreateDatabase, CreateRetentionPolicy, CreateSubscription,
    CreateUser, PolicyOptions, SubscriptionMode,
};
use super::select::{Dimension, Field, Fill, FillNumber, OrderBy, Select, SortField};
use super::select::{Measurement, MeasurementName, Source, Target, TargetName};
use super::show::{Cardinality, CardinalityOf, KeyMatch, Page, ShowSeries, ShowTagValues};
use super::statement::Statement;

const REDACTED: &str = "[REDACTED]";

/// Items with `, ` between them.
fn write_list<T: Display>(f: &mut Formatter<'_>, items: &[T]) -> fmt::Result {
    for (idx, item) in items.iter().enumerate() {
        if idx > 0 {
            f.write_str(", ")?;
        }
        item.fmt(f)?;
    }
    Ok(())
}

fn write_clause<T: Display>(f: &mut Formatter<'_>, word: &str, items: &[T]) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    write!(f, " {word} ")?;
    write_list(f, items)
}

fn write_where(f: &mut Formatter<'_>, condition: Option<&Expr>) -> fmt::Result {
    condition.map_or(Ok(()), |condition| write!(f, " WHERE {condition}"))
}

fn write_on(f: &mut Formatter<'_>, database: &str) -> fmt::Result {
    if database.is_empty() { Ok(()) } else { write!(f, " ON {}", quote_ident(database)) }
}

fn write_page(f: &mut Formatter<'_>, words: [&str; 2], page: Page) -> fmt::Result {
    for (word, count) in words.into_iter().zip([page.limit, page.offset]) {
        if count > 0 {
            write!(f, " {word} {count}")?;
        }
    }
    Ok(())
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Chain(chain) => chain.fmt(f),
            Expr::Paren(inner) => write_in_parens(f, inner),
            Expr::Call(call) => call.fmt(f),
            Expr::Ref(var) => var.fmt(f),
            Expr::Distinct(name) => write!(f, "DISTINCT {}", quote_ident(name)),
            Expr::Wildcard(DataType::Unknown) => f.write_char('*'),
            Expr::Wildcard(kind) => write!(f, "*::{kind}"),
            Expr::Regex(regex) => regex.fmt(f),
            Expr::Number(number) => f.write_str(&number_text(*number)),
            Expr::Integer(integer) => integer.fmt(f),
            Expr::Unsigned(unsigned) => unsigned.fmt(f),
            Expr::Text(text) => f.write_str(&quote_text(text)),
            Expr::Boolean(value) => value.fmt(f),
            Expr::Duration(ns) => f.write_str(&format_duration(*ns)),
            Expr::Time(time) => write!(f, "'{time}'"),
            Expr::Nil => f.write_str("nil"),
        }
    }
}

/// A float without exponent, with at least three decimals.
fn number_text(number: f64) -> String {
    let rounded = format!("{number:.3}");
    if rounded.parse() == Ok(number) || !number.is_finite() { rounded } else { number.to_string() }
}

/// Writes an expression in parentheses, in the form that `f` asks for.
fn write_in_parens(f: &mut Formatter<'_>, inner: &Expr) -> fmt::Result {
    f.write_char('(')?;
    inner.fmt(f)?;
    f.write_char(')')
}

/// The text parses to the same chain. The alternate form (`{:#}`) has the parentheses of the query alone, as
/// InfluxDB words errors: it writes `v % -i` as `v % -1 * i`, which is another expression.
impl Display for Chain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            self.first.fmt(f)?;
            return self.rest.iter().try_for_each(|(op, operand)| {
                write!(f, " {} ", op.text())?;
                operand.fmt(f)
            });
        }
        // The first operand and the operators up to here are one operand of the next operator.
        let mut left_precedence = u8::MAX;
        let mut needed_parens = 0;
        for (op, _) in &self.rest {
            needed_parens += usize::from(op.precedence() > left_precedence);
            left_precedence = op.precedence();
        }
        f.write_str(&"(".repeat(needed_parens))?;
        write_operand(f, &self.first, u8::MAX)?;
        left_precedence = u8::MAX;
        for (op, operand) in &self.rest {
            if op.precedence() > left_precedence {
                f.write_char(')')?;
            }
            left_precedence = op.precedence();
            write!(f, " {} ", op.text())?;
            write_operand(f, operand, op.precedence())?;
        }
        Ok(())
    }
}

/// Writes the right operand of an operator, in parentheses if it has one that binds less tightly.
fn write_operand(f: &mut Formatter<'_>, operand: &Expr, precedence: u8) -> fmt::Result {
    let is_loose = |chain: &Chain| chain.rest.iter().any(|(op, _)| op.precedence() <= precedence);
    match operand {
        Expr::Chain(chain) if is_loose(chain) => write_in_parens(f, operand),
        _ => operand.fmt(f),
    }
}

impl Display for Call {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // DISTINCT is the one keyword that is a function.
        match self.name.as_str() {
            "distinct" => f.write_str("distinct(")?,
            name => write!(f, "{}(", quote_ident(name))?,
        }
        write_list(f, &self.args)?;
        f.write_char(')')
    }
}

impl Display for VarRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&quote_ident(&self.name))?;
        if self.kind == DataType::Unknown { Ok(()) } else { write!(f, "::{}", self.kind) }
    }
}

impl Display for BinaryOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

fn write_prefix(f: &mut Formatter<'_>, database: &str, policy: &str) -> fmt::Result {
    if !database.is_empty() {
        write!(f, "{}.", quote_ident(database))?;
    }
    if !policy.is_empty() {
        f.write_str(&quote_ident(policy))?;
    }
    if database.is_empty() && policy.is_empty() { Ok(()) } else { f.write_char('.') }
}

impl Display for Measurement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_prefix(f, &self.database, &self.policy)?;
        match &self.name {
            MeasurementName::Name(name) => f.write_str(&quote_ident(name)),
            MeasurementName::Regex(regex) => regex.fmt(f),
        }
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Source::Measurement(measurement) => measurement.fmt(f),
            Source::Select(select) => write!(f, "({select})"),
        }
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_prefix(f, &self.database, &self.policy)?;
        match &self.name {
            TargetName::Name(name) => f.write_str(&quote_ident(name)),
            TargetName::SameAsSource => f.write_str(":MEASUREMENT"),
        }
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.expr.fmt(f)?;
        self.alias.as_ref().map_or(Ok(()), |alias| write!(f, " AS {}", quote_ident(alias)))
    }
}

impl Display for Dimension {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.expr.fmt(f)
    }
}

impl Display for SortField {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{} ", quote_ident(name))?;
        }
        f.write_str(if self.order == OrderBy::Ascending { "ASC" } else { "DESC" })
    }
}

impl Display for Fill {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Fill::Null => f.write_str("fill(null)"),
            Fill::None => f.write_str("fill(none)"),
            Fill::Number(FillNumber::Integer(integer)) => write!(f, "fill({integer})"),
            Fill::Number(FillNumber::Float(float)) => write!(f, "fill({float:?})"),
            Fill::Previous => f.write_str("fill(previous)"),
            Fill::Linear => f.write_str("fill(linear)"),
        }
    }
}

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("SELECT ")?;
        write_list(f, &self.fields)?;
        if let Some(target) = &self.target {
            write!(f, " INTO {target}")?;
        }
        write_clause(f, "FROM", &self.sources)?;
        write_where(f, self.condition.as_ref())?;
        write_clause(f, "GROUP BY", &self.dimensions)?;
        if self.fill != Fill::Null {
            write!(f, " {}", self.fill)?;
        }
        write_clause(f, "ORDER BY", &self.sort)?;
        write_page(f, ["LIMIT", "OFFSET"], Page { limit: self.limit, offset: self.offset })?;
        write_page(f, ["SLIMIT", "SOFFSET"], Page { limit: self.series_limit, offset: self.series_offset })?;
        self.zone.as_ref().map_or(Ok(()), |zone| write!(f, " TZ({})", quote_text(zone)))
    }
}

impl Display for ShowSeries {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_on(f, &self.database)?;
        write_clause(f, "FROM", &self.sources)?;
        write_tail(f, self)
    }
}

fn write_tail(f: &mut Formatter<'_>, show: &ShowSeries) -> fmt::Result {
    write_where(f, show.condition.as_ref())?;
    write_clause(f, "ORDER BY", &show.sort)?;
    write_page(f, ["LIMIT", "OFFSET"], show.page)?;
    write_page(f, ["SLIMIT", "SOFFSET"], show.series_page)
}

fn write_measurements(f: &mut Formatter<'_>, show: &ShowSeries) -> fmt::Result {
    f.write_str("SHOW MEASUREMENTS")?;
    write_on(f, &show.database)?;
    if let Some(source) = show.sources.first() {
        let is_regex =
            matches!(source, Source::Measurement(Measurement { name: MeasurementName::Regex(_), .. }));
        write!(f, " WITH MEASUREMENT {} {source}", if is_regex { "=~" } else { "=" })?;
    }
    write_tail(f, show)
}

impl Display for KeyMatch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(" WITH KEY ")?;
        match self {
            KeyMatch::Equal(key) => write!(f, "= {}", quote_ident(key)),
            KeyMatch::NotEqual(key) => write!(f, "!= {}", quote_ident(key)),
            KeyMatch::Matches(regex) => write!(f, "=~ {regex}"),
            KeyMatch::NotMatches(regex) => write!(f, "!~ {regex}"),
            KeyMatch::In(keys) => {
                let keys: Vec<String> = keys.iter().map(|key| quote_ident(key)).collect();
                write!(f, "IN ({})", keys.join(", "))
            }
        }
    }
}

impl Display for ShowTagValues {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("SHOW TAG VALUES")?;
        write_on(f, &self.clauses.database)?;
        write_clause(f, "FROM", &self.clauses.sources)?;
        self.keys.fmt(f)?;
        write_tail(f, &self.clauses)
    }
}

impl Display for Cardinality {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.of {
            CardinalityOf::Measurements => "SHOW MEASUREMENT",
            CardinalityOf::Series => "SHOW SERIES",
            CardinalityOf::FieldKeys => "SHOW FIELD KEY",
            CardinalityOf::TagKeys => "SHOW TAG KEY",
            CardinalityOf::TagValues(_) => "SHOW TAG VALUES",
        })?;
        f.write_str(if self.is_exact { " EXACT CARDINALITY" } else { " CARDINALITY" })?;
        write_on(f, &self.database)?;
        write_clause(f, "FROM", &self.sources)?;
        if let CardinalityOf::TagValues(keys) = &self.of {
            keys.fmt(f)?;
        }
        write_where(f, self.condition.as_ref())?;
        write_clause(f, "GROUP BY", &self.dimensions)?;
        write_page(f, ["LIMIT", "OFFSET"], self.page)
    }
}

impl Display for CreateDatabase {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE DATABASE {}", quote_ident(&self.name))?;
        let Some(policy) = &self.policy else { return Ok(()) };
        f.write_str(" WITH")?;
        write_options(f, policy, format_duration_go)?;
        policy.name.as_ref().map_or(Ok(()), |name| write!(f, " NAME {}", quote_ident(name)))
    }
}

fn write_options(f: &mut Formatter<'_>, options: &PolicyOptions, format: fn(i64) -> String) -> fmt::Result {
    if let Some(ns) = options.duration_ns {
        write!(f, " DURATION {}", format(ns))?;
    }
    if let Some(replication) = options.replication {
        write!(f, " REPLICATION {replication}")?;
    }
    options.shard_duration_ns.map_or(Ok(()), |ns| write!(f, " SHARD DURATION {}", format(ns)))
}

impl Display for CreateRetentionPolicy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [name, database] = [quote_ident(&self.name), quote_ident(&self.database)];
        let duration = format_duration(self.duration_ns);
        write!(f, "CREATE RETENTION POLICY {name} ON {database} DURATION {duration}")?;
        write!(f, " REPLICATION {}", self.replication)?;
        if self.shard_duration_ns > 0 {
            write!(f, " SHARD DURATION {}", format_duration(self.shard_duration_ns))?;
        }
        f.write_str(if self.is_default { " DEFAULT" } else { "" })
    }
}

impl Display for AlterRetentionPolicy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [name, database] = [quote_ident(&self.name), quote_ident(&self.database)];
        write!(f, "ALTER RETENTION POLICY {name} ON {database}")?;
        write_options(f, &self.options, format_duration)?;
        f.write_str(if self.is_default { " DEFAULT" } else { "" })
    }
}

impl Display for CreateUser {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE USER {} WITH PASSWORD {REDACTED}", quote_ident(&self.name))?;
        f.write_str(if self.is_admin { " WITH ALL PRIVILEGES" } else { "" })
    }
}

impl Display for CreateContinuousQuery {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [name, database] = [quote_ident(&self.name), quote_ident(&self.database)];
        write!(f, "CREATE CONTINUOUS QUERY {name} ON {database} ")?;
        let resample = self.resample;
        if resample.every_ns.is_some() || resample.for_ns.is_some() {
            f.write_str("RESAMPLE ")?;
        }
        for (word, ns) in [("EVERY", resample.every_ns), ("FOR", resample.for_ns)] {
            if let Some(ns) = ns {
                write!(f, "{word} {} ", format_duration(ns))?;
            }
        }
        write!(f, "BEGIN {} END", self.select)
    }
}

impl Display for CreateSubscription {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [name, database, policy] =
            [&self.name, &self.database, &self.policy].map(|part| quote_ident(part));
        let mode = if self.mode == SubscriptionMode::All { "ALL" } else { "ANY" };
        write!(f, "CREATE SUBSCRIPTION {name} ON {database}.{policy} DESTINATIONS {mode} ")?;
        let destinations: Vec<String> = self.destinations.iter().map(|url| quote_text(url)).collect();
        write_list(f, &destinations)
    }
}

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        use Statement as S;
        match self {
            S::Select(select) => select.fmt(f),
            S::Explain { select, is_analyzed: false } => write!(f, "EXPLAIN {select}"),
            S::Explain { select, is_analyzed: true } => write!(f, "EXPLAIN ANALYZE {select}"),
            S::Delete { sources, condition } => write_erase(f, "DELETE", sources, condition.as_ref()),
            S::DropSeries { sources, condition } => {
                write_erase(f, "DROP SERIES", sources, condition.as_ref())
            }
            S::CreateDatabase(create) => create.fmt(f),
            S::CreateRetentionPolicy(create) => create.fmt(f),
            S::AlterRetentionPolicy(alter) => alter.fmt(f),
            S::CreateUser(create) => create.fmt(f),
            S::CreateContinuousQuery(create) => create.fmt(f),
            S::CreateSubscription(create) => create.fmt(f),
            S::ShowMeasurements(show) => write_measurements(f, show),
            S::ShowSeries(show) => write!(f, "SHOW SERIES{show}"),
            S::ShowTagKeys(show) => write!(f, "SHOW TAG KEYS{show}"),
            S::ShowTagValues(show) => show.fmt(f),
            S::ShowFieldKeys(show) => write!(f, "SHOW FIELD KEYS{show}"),
            S::ShowCardinality(show) => show.fmt(f),
            _ => write_short(f, self),
        }
    }
}

fn write_erase(
    f: &mut Formatter<'_>,
    word: &str,
    sources: &[Source],
    condition: Option<&Expr>,
) -> fmt::Result {
    f.write_str(word)?;
    write_clause(f, "FROM", sources)?;
    write_where(f, condition)
}

/// Statements without clauses.
fn write_short(f: &mut Formatter<'_>, statement: &Statement) -> fmt::Result {
    use Statement as S;
    let module =
        |module: &str| if module.is_empty() { String::new() } else { format!(" FOR {}", quote_text(module)) };
    match statement {
        S::DropMeasurement(name) => write!(f, "DROP MEASUREMENT {}", quote_ident(name)),
        S::DropShard(id) => write!(f, "DROP SHARD {id}"),
        S::DropDatabase(name) => write!(f, "DROP DATABASE {}", quote_ident(name)),
        S::DropRetentionPolicy { name, database } => {
            write!(f, "DROP RETENTION POLICY {} ON {}", quote_ident(name), quote_ident(database))
        }
        S::DropUser(name) => write!(f, "DROP USER {}", quote_ident(name)),
        S::SetPassword { user, .. } => write!(f, "SET PASSWORD FOR {} = {REDACTED}", quote_ident(user)),
        S::Grant(grant) => {
            let [database, user] = [quote_ident(&grant.database), quote_ident(&grant.user)];
            write!(f, "GRANT {} ON {database} TO {user}", grant.privilege.text())
        }
        S::GrantAdmin(user) => write!(f, "GRANT ALL PRIVILEGES TO {}", quote_ident(user)),
        S::Revoke(grant) => {
            let [database, user] = [quote_ident(&grant.database), quote_ident(&grant.user)];
            write!(f, "REVOKE {} ON {database} FROM {user}", grant.privilege.text())
        }
        S::RevokeAdmin(user) => write!(f, "REVOKE ALL PRIVILEGES FROM {}", quote_ident(user)),
        S::DropContinuousQuery { name, database } => {
            write!(f, "DROP CONTINUOUS QUERY {} ON {}", quote_ident(name), quote_ident(database))
        }
        S::DropSubscription { name, database, policy } => {
            let [name, database, policy] = [name, database, policy].map(|part| quote_ident(part));
            write!(f, "DROP SUBSCRIPTION {name} ON {database}.{policy}")
        }
        S::KillQuery { id, host } => {
            write!(f, "KILL QUERY {id}")?;
            write_on(f, host)
        }
        S::ShowRetentionPolicies(database) => {
            f.write_str("SHOW RETENTION POLICIES")?;
            write_on(f, database)
        }
        S::ShowStats(name) => write!(f, "SHOW STATS{}", module(name)),
        S::ShowDiagnostics(name) => write!(f, "SHOW DIAGNOSTICS{}", module(name)),
        S::ShowGrants(user) => write!(f, "SHOW GRANTS FOR {}", quote_ident(user)),
        S::ShowDatabases => f.write_str("SHOW DATABASES"),
        S::ShowShards => f.write_str("SHOW SHARDS"),
        S::ShowShardGroups => f.write_str("SHOW SHARD GROUPS"),
        S::ShowQueries => f.write_str("SHOW QUERIES"),
        S::ShowUsers => f.write_str("SHOW USERS"),
        S::ShowContinuousQueries => f.write_str("SHOW CONTINUOUS QUERIES"),
        _ => f.write_str("SHOW SUBSCRIPTIONS"),
    }
}
