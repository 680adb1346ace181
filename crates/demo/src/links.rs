//! Addresses of pages of the web interface that show the events of the world.

use chronolith_base::utc;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::request::DATABASE;
use crate::tenant::Tenant;
use crate::timeline::{Event, Timeline};

/// Time before and after an event in a link.
const MARGIN_MS: i64 = 20 * 60_000;

/// Titles, each with the addresses of its pages below it.
pub(crate) fn text(url: &str, timeline: &Timeline) -> String {
    let incident = timeline.incident;
    let title = format!("Tenant shop, the incident of inventory, {} UTC:", clock_range(incident));
    let errors = r#"sum by (service) (rate(http_requests_total{code="500"}[1m]))"#;
    let latency = r#"sum(rate(http_request_duration_seconds{service="inventory"}[1m]))"#;
    let mut of_incident = Query::new(Tenant::Shop);
    of_incident.add(&[("expr", errors), ("show_exemplars", "1")], incident);
    of_incident.add(&[("expr", latency), ("display_mode", "heatmap")], incident);
    of_incident.add(&[("expr", r#"queue_length{service="inventory"}"#)], incident);
    let mut carts = Query::new(Tenant::Shop);
    carts.add(&[("expr", "count(checkout_cart_items)")], timeline.burst);
    let mut languages = Query::new(Tenant::Shop);
    let select = "SELECT mean(speed) FROM conveyor WHERE $timeFilter GROUP BY time($__interval), line";
    languages.add(&[("lang", "influxql"), ("db", DATABASE), ("expr", select)], incident);
    languages.add(&[("lang", "graphite"), ("expr", "warehouse.north.*.battery")], incident);
    let mut billing = Query::new(Tenant::Billing);
    let slowest = "histogram_quantile(0.99, sum by (service) (rate(http_request_duration_seconds[5m])))";
    billing.add(&[("expr", slowest)], incident);
    [
        format!("Start page, with the tenants {} and {}:", Tenant::Shop.name(), Tenant::Billing.name()),
        format!("  {url}/"),
        title,
        format!("  {url}/?{}", of_incident.params),
        "Tenant shop, a label with ids, and InfluxQL and Graphite:".to_owned(),
        format!("  {url}/?{}", carts.params),
        format!("  {url}/?{}", languages.params),
        "Tenant billing:".to_owned(),
        format!("  {url}/?{}", billing.params),
    ]
    .join("\n")
}

fn clock_range(event: Event) -> String {
    let clock = |ms: i64| utc::rfc3339_seconds(ms)[11..16].to_owned();
    format!("{} to {}", clock(event.start_ms), clock(event.end_ms))
}

/// Parameters of the query page.
struct Query {
    params: String,
    panel_count: usize,
}

impl Query {
    fn new(tenant: Tenant) -> Query {
        Query { params: format!("tenant={}&tz=utc", tenant.name()), panel_count: 0 }
    }

    /// Adds a panel with these fields over the time around `event`.
    fn add(&mut self, fields: &[(&str, &str)], event: Event) {
        let end_ms = event.end_ms + MARGIN_MS;
        let end = utc::rfc3339_seconds(end_ms).replace('T', " ").replace('Z', "");
        let range = format!("{}m", (end_ms - event.start_ms + MARGIN_MS) / 60_000);
        for (name, value) in
            fields.iter().chain(&[("range_input", range.as_str()), ("end_input", end.as_str())])
        {
            let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
            self.params += &format!("&g{}.{name}={value}", self.panel_count);
        }
        self.panel_count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::text;
    use crate::timeline::Timeline;

    #[test]
    fn links_have_the_tenant_and_the_range_of_the_incident() {
        let line = Timeline::new(1_763_640_000_000, 24);
        let found = text("http://h:1", &line);
        // 2025-11-20 12:00 is the end, the incident begins three hours before.
        assert!(found.contains("inventory, 09:00 to 09:40 UTC"), "{found}");
        assert!(found.contains("http://h:1/?tenant=shop&tz=utc&g0.expr=sum%20by"), "{found}");
        assert!(
            found.contains("&g0.range_input=80m&g0.end_input=2025%2D11%2D20%2010%3A00%3A00&g1."),
            "{found}"
        );
        assert!(found.contains("/?tenant=billing"), "{found}");
        assert!(
            found.starts_with("Start page, with the tenants shop and billing:\n  http://h:1/\n"),
            "{found}"
        );
    }
}
