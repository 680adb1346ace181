//! Calls between services, as a gauge per edge of the call graph.

use crate::catalog::Service;
use crate::column::{Column, Source};
use crate::metric;
use crate::tenant::Tenant;
use crate::timeline::Step;

/// Edges that start at services of one tenant.
pub(crate) struct Topology {
    tenant: Tenant,
    columns: Vec<Column>,
}

impl Topology {
    pub(crate) fn new<'a>(tenant: Tenant, services: impl Iterator<Item = &'a Service>) -> Topology {
        let mut columns = Vec::new();
        for service in services.filter(|service| service.tenant == tenant) {
            for callee in &service.callees {
                columns
                    .push(Column::new(&metric::DEPENDENCY, &[("service", service.name), ("callee", callee)]));
            }
        }
        Topology { tenant, columns }
    }
}

impl Source for Topology {
    fn tenant(&self) -> Tenant {
        self.tenant
    }

    fn advance(&mut self, step: &Step) {
        if step.is_slow {
            self.columns.iter_mut().for_each(|column| column.push(step.time_ms, 1.0));
        }
    }

    fn columns(&mut self) -> &mut [Column] {
        &mut self.columns
    }
}
