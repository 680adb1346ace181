//! Directories round-trip inline and paged, with names that come back later; damaged ones are refused.

use super::*;

/// Directory of series with these names, and its name pages.
fn directory(names: &[String]) -> (Directory, Vec<Vec<u8>>) {
    let mut builder = NamesBuilder::default();
    for (ordinal, name) in (0u32..).zip(names) {
        builder.push(name, ordinal);
    }
    let mut head = Vec::new();
    let mut pages = Vec::new();
    let mut end = 100;
    builder.finish(&mut head, &mut |page| {
        pages.push(page.to_vec());
        end += page.len() as u64;
        end - page.len() as u64
    });
    let mut reader = ByteReader::new(&head);
    let found = read_directory(&mut reader, u32::try_from(names.len()).unwrap()).expect("decodes");
    assert!(reader.is_empty());
    (found, pages)
}

fn runs_of(directory: &Directory, pages: &[Vec<u8>], name: &str, series_count: u32) -> Vec<SeriesRun> {
    match directory {
        Directory::Inline(list) => list.runs(name).to_vec(),
        Directory::Paged(rows) => {
            let row = directory.page_of(name).expect("the first page has the least names");
            let idx = rows.iter().position(|other| other == row).unwrap();
            assert_eq!(row.len as usize, pages[idx].len());
            let list = row.decode(&pages[idx], series_count, &mut Unpacker::default()).expect("decodes");
            list.runs(name).to_vec()
        }
    }
}

#[test]
fn names_that_come_back_have_several_runs() {
    let names = ["", "b", "b", "a", "b", ""].map(str::to_owned);
    let (directory, pages) = directory(&names);
    let run = |first, count| SeriesRun { first, count };
    assert!(pages.is_empty());
    assert_eq!(runs_of(&directory, &pages, "", 6), [run(0, 1), run(5, 1)]);
    assert_eq!(runs_of(&directory, &pages, "a", 6), [run(3, 1)]);
    assert_eq!(runs_of(&directory, &pages, "b", 6), [run(1, 2), run(4, 1)]);
    assert_eq!(runs_of(&directory, &pages, "c", 6), []);
}

#[test]
fn a_large_directory_is_paged_and_its_head_small() {
    let names: Vec<String> = (0..100_000).map(|n| format!("größe_of_metric_{n:06}")).collect();
    let (directory, pages) = directory(&names);
    let Directory::Paged(rows) = &directory else { panic!("{} names inline", names.len()) };
    assert_eq!(rows.len(), pages.len());
    assert!(rows.len() > 5 && rows.len() < 100, "{}", rows.len());
    for ordinal in [0u32, 1, 4321, 77_777, 99_999] {
        let name = &names[ordinal as usize];
        assert_eq!(runs_of(&directory, &pages, name, 100_000), [SeriesRun { first: ordinal, count: 1 }]);
    }
    assert_eq!(runs_of(&directory, &pages, "absent", 100_000), []);
    assert_eq!(runs_of(&directory, &pages, "größe_of_metric_0", 100_000), []);
    assert_eq!(runs_of(&directory, &pages, "zzz", 100_000), []);
    let mut all = Vec::new();
    for (row, page) in rows.iter().zip(&pages) {
        let list = row.decode(page, 100_000, &mut Unpacker::default()).expect("decodes");
        all.extend(list.iter().map(|(name, _)| name.to_owned()));
    }
    assert_eq!(all, names);
}

#[test]
fn a_page_is_not_taken_for_another_one() {
    let names: Vec<String> = (0..20_000).map(|n| format!("m{n:06}")).collect();
    let (directory, pages) = directory(&names);
    let Directory::Paged(rows) = &directory else { panic!("inline") };
    assert!(rows[1].decode(&pages[0], 20_000, &mut Unpacker::default()).is_err());
    // Fewer series than the runs of the page name.
    assert!(rows[1].decode(&pages[1], 100, &mut Unpacker::default()).is_err());
}

#[test]
fn runs_beyond_the_block_and_names_out_of_order_are_refused() {
    let list = |names: &[&str], runs: &[u8]| {
        let mut bytes = Vec::new();
        put_uvarint(&mut bytes, names.len() as u64);
        put_texts(names.iter().copied(), &mut bytes);
        put_column(runs, &mut bytes);
        NameList::decode(&mut ByteReader::new(&bytes), 10)
    };
    // Number of runs, then zig-zag distance and count of each.
    assert!(list(&["a", "b"], &[1, 0, 5, 1, 0, 5]).is_ok());
    assert!(list(&["a", "b"], &[1, 0, 5, 1, 0, 6]).is_err());
    assert!(list(&["a", "b"], &[1, 0, 0, 1, 0, 5]).is_err());
    assert!(list(&["a"], &[1, 1, 1]).is_err(), "before the first series");
    assert!(list(&["a"], &[2, 0, 5, 1, 1]).is_err(), "runs overlap");
    assert!(list(&["b", "a"], &[1, 0, 5, 1, 0, 5]).is_err());
    assert!(list(&["a"], &[1, 0, 5, 0]).is_err(), "bytes are left");
}
