//! Reads that the view of a tenant sends to the stores of its databases.

use chronolith_base::ManualClock;
use chronolith_model::TimeRange;
use parking_lot::Mutex;

use super::*;

/// A store of one measurement `m` with one field `f`, without samples, that keeps the reads that reach it.
#[derive(Default)]
struct Recorder {
    reads: Mutex<Vec<Read>>,
}

impl Source for Recorder {
    fn open(&self, read: Read, _: &ReadContext) -> Result<Opened, QueryError> {
        let opened = match &read.wanted {
            Wanted::LabelValues { name } if **name == *METRIC_NAME => Opened::listed(vec!["m".to_owned()]),
            Wanted::LabelValues { name } if **name == *FIELD_LABEL => Opened::listed(vec!["f".to_owned()]),
            wanted => Opened::nothing(wanted),
        };
        self.reads.lock().push(read);
        Ok(opened)
    }
}

/// Opens `read` and pulls its answer to the end.
fn pull(view: &WithDatabases, read: Read, ctx: &ReadContext) {
    match view.open(read, ctx).expect("opens") {
        Opened::Series(mut series) => {
            let mut batch = Vec::new();
            while series.next_batch(&mut batch).expect("no error") {}
        }
        Opened::List(list) => drop(list().expect("lists")),
        Opened::Visit(visit) => visit(&mut |_| true).expect("visits"),
        Opened::Estimate(_) | Opened::Cursor(_) => {}
    }
}

/// A read that lost the wish on its way would fail a query that allows a partial result.
#[test]
fn reads_of_databases_allow_a_partial_result_if_the_query_does() {
    let ctx = ReadContext::unlimited(Arc::new(ManualClock::new(0)));
    let of_name = Matcher::new(METRIC_NAME, MatchOp::Regex, "m.*").expect("compiles");
    let selectors =
        [vec![], vec![Matcher::equal(METRIC_NAME, "m_f")], vec![of_name], vec![Matcher::equal("db", "d")]];
    let name: Arc<str> = "x".into();
    for matchers in &selectors {
        for wanted in [
            Wanted::Series,
            Wanted::LabelNames,
            Wanted::LabelValues { name: name.clone() },
            Wanted::LabelValues { name: METRIC_NAME.into() },
            Wanted::EachLabelValue { name: name.clone(), prefix: "".into() },
        ] {
            for allows_partial in [false, true] {
                let store = Arc::new(Recorder::default());
                let policy =
                    PolicySource { database: "d".to_owned(), policy: "p".to_owned(), source: store.clone() };
                let own = Arc::new(Recorder::default());
                let view = WithDatabases::new(own.clone(), vec![policy], "_".to_owned());
                let selector = Selector { matchers, range: TimeRange { start: 1, end: 9 } };
                let request = SelectRequest { allows_partial, ..SelectRequest::new(&selector) };
                pull(&view, Read { request, wanted: wanted.clone() }, &ctx);
                let case = format!("{wanted:?} of {matchers:?}");
                assert!(!store.reads.lock().is_empty(), "{case}");
                for read in store.reads.lock().iter().chain(&*own.reads.lock()) {
                    assert_eq!(read.request.allows_partial, allows_partial, "{case}: {read:?}");
                    assert_eq!(read.request.range, selector.range, "{case}: {read:?}");
                }
            }
        }
    }
}
