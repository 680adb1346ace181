//! Exports by the command line return the imported points.

use chronolith_import::whisper::{FileBuilder, FilePoints, TimeSelection};

use chronolith_ingest::carbon::{AggregationMethod, Archive};

use super::*;

fn code(args: &[&str]) -> ExitCode {
    run(&command().try_get_matches_from(args).unwrap()).unwrap()
}

#[test]
fn imported_files_are_exported_with_their_points() {
    let dir = tempfile::tempdir().unwrap();
    let env = Env::real();
    let now_s = u32::try_from(env.clock.now_ms() / 1000).unwrap();
    let archives = [Archive { step_s: 60, point_count: 60 }, Archive { step_s: 300, point_count: 600 }];
    let mut builder = FileBuilder::new(AggregationMethod::Average, 0.5, &archives).unwrap();
    // From the start of an interval of the coarse archive on: otherwise the export has an older point,
    // made of the part of an interval that has points.
    let first_s = (now_s - 1800).next_multiple_of(300);
    builder.put_points(0, (0..25).map(|step| (first_s + step * 60, f64::from(step))));
    builder.put_points(1, (0..9).map(|back| (now_s - 9000 + back * 300, -f64::from(back))));
    let bytes = builder.into_bytes();
    let mut wanted = FilePoints::default();
    wanted.read(&bytes, i64::from(now_s), TimeSelection::ALL).unwrap();
    let names = ["a/b.wsp", "_tagged/000/000/m;host=x.wsp"];
    for name in names {
        let path = dir.path().join("whisper").join(name);
        env.disk.create_dir_all(path.parent().unwrap()).unwrap();
        env.disk.create(&path).unwrap().write_at(&bytes, 0).unwrap();
    }
    let texts = ["whisper", "data", "out"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
    let import = crate::import::command();
    let matches =
        import.try_get_matches_from(["import", "whisper", &texts[0], "--data-dir", &texts[1]]).unwrap();
    assert_eq!(crate::import::run(&matches).unwrap(), ExitCode::SUCCESS);
    let export = ["whisper", &texts[2], "--data-dir", &texts[1], "--retentions", "1m:1h,5m:50h"];
    assert_eq!(code(&export), ExitCode::SUCCESS);
    let mut found = FilePoints::default();
    for relative in [path::file_of("a.b").unwrap(), path::file_of("m;host=x").unwrap()] {
        let bytes = env.disk.read(&dir.path().join("out").join(relative)).unwrap();
        found.read(&bytes, i64::from(now_s), TimeSelection::ALL).unwrap();
        assert_eq!((&found.times, &found.values), (&wanted.times, &wanted.values));
    }
    // Files that exist are not replaced.
    assert_eq!(code(&export), ExitCode::FAILURE);
}
