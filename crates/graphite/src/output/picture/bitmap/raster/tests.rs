//! Pictures decoded again: sizes, colours, refused pictures.

use jiff::tz::TimeZone;

use super::super::super::{PictureOptions, render_svg};
use super::*;
use crate::series::{Grid, Series};

type Given<'a> = &'a [(&'a str, &'a str)];

fn get<'a>(given: Given<'a>) -> impl Fn(&str) -> Option<&'a str> {
    move |name| given.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
}

fn svg(values: &[f64], given: Given<'_>) -> String {
    let grid = Grid { start: 0, end: 60 * values.len() as i64, step: 60 };
    let list = [Series::new("a".to_owned(), grid, values.to_vec(), 0.0)];
    let mut out = String::new();
    let options = PictureOptions::new(get(given));
    render_svg(&list, (0, 60 * values.len().max(5) as i64), &TimeZone::UTC, &options, &|| false, &mut out)
        .expect("within the limits");
    out
}

/// A decoded picture.
struct Decoded {
    width: u32,
    height: u32,
    pixels: Vec<[u8; 3]>,
}

impl Decoded {
    fn of(values: &[f64], given: Given<'_>) -> Decoded {
        let size = BitmapSize::new(get(given)).expect("small");
        let mut out = Vec::new();
        render_png(&svg(values, given), size, &|| false, &mut out).expect("drawn");
        let mut reader = png::Decoder::new(std::io::Cursor::new(out)).read_info().expect("a PNG");
        let mut bytes = vec![0; reader.output_buffer_size().expect("small")];
        let frame = reader.next_frame(&mut bytes).expect("a picture");
        assert_eq!((frame.color_type, frame.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
        let pixels = bytes.chunks(3).map(|rgb| rgb.try_into().expect("whole pixels")).collect();
        Decoded { width: frame.width, height: frame.height, pixels }
    }

    fn count(&self, color: [u8; 3]) -> usize {
        self.pixels.iter().filter(|pixel| **pixel == color).count()
    }
}

const BLACK: [u8; 3] = [0, 0, 0];

#[test]
fn a_picture_has_its_size_and_the_colours_of_background_and_lines() {
    let given = [
        ("width", "600"),
        ("height", "300"),
        ("bgcolor", "102030"),
        ("colorList", "ff8800"),
        ("lineWidth", "4"),
    ];
    let picture = Decoded::of(&[1.0, 5.0, 2.0, 3.0, 4.0], &given);
    assert_eq!((picture.width, picture.height, picture.pixels.len()), (600, 300, 180_000));
    assert_eq!(picture.pixels[0], [0x10, 0x20, 0x30]);
    assert!(picture.count([0x10, 0x20, 0x30]) > 150_000);
    assert!(picture.count([0xff, 0x88, 0]) > 1000, "{}", picture.count([0xff, 0x88, 0]));
    let bare = [
        ("graphOnly", "true"),
        ("colorList", "ff8800"),
        ("lineMode", "staircase"),
        ("lineWidth", "2"),
        ("yMin", "0"),
        ("yMax", "2"),
    ];
    let line = Decoded::of(&[1.0; 5], &bare);
    assert_eq!((line.width, line.height), (330, 250));
    // A constant is one line over the whole width, and nothing else.
    assert_eq!((line.count([0xff, 0x88, 0]), line.count(BLACK)), (660, 330 * 248));
}

#[test]
fn texts_are_drawn_with_the_embedded_font() {
    let picture = Decoded::of(&[], &[("fontSize", "40")]);
    assert!(picture.count([0xc8, 0, 0x32]) > 500, "{}", picture.count([0xc8, 0, 0x32]));
    let bare = |given| Decoded::of(&[1.0, 2.0], given);
    let axes = [("hideAxes", "true"), ("hideGrid", "true"), ("hideLegend", "true")];
    let without = bare(&axes);
    let mut with = axes.to_vec();
    // Letters without a shape in the font cost nothing but a box.
    with.push(("vtitle", "CPU Ω ж 漢"));
    let titled = bare(&with);
    let left_part = |picture: &Decoded| {
        let rows = picture.pixels.chunks(picture.width as usize);
        rows.flat_map(|row| &row[..22]).filter(|pixel| **pixel != BLACK).count()
    };
    assert!(left_part(&titled) > left_part(&without) + 50, "{} {}", left_part(&titled), left_part(&without));
}

/// The parts of a long document make the picture of the whole one.
#[test]
fn a_long_document_is_drawn_in_parts() {
    let given =
        [("title", "T"), ("vtitle", "V"), ("width", "801"), ("areaMode", "all"), ("areaAlpha", "0.5")];
    // A path per value, since each second one is missing.
    let values: Vec<f64> =
        (0..2000).map(|idx| if idx % 2 == 0 { f64::from(idx % 37) } else { f64::NAN }).collect();
    let svg = svg(&values, &given);
    assert!(svg.len() > 2 * PART_BYTES, "{}", svg.len());
    let mut whole = Pixmap::new(801, 250).expect("small");
    draw(&svg, 250, &|| false, &mut whole).expect("valid");
    let whole: Vec<[u8; 3]> = whole.data().chunks(4).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
    let picture = Decoded::of(&values, &given);
    assert_eq!(whole.iter().zip(&picture.pixels).filter(|(a, b)| a != b).count(), 0);
    assert!(whole.iter().filter(|pixel| **pixel != BLACK).count() > 1000);
}

#[track_caller]
fn check_size(given: Given<'_>, want: Result<(u32, u32), &str>) {
    let size = BitmapSize::new(get(given)).map(|size| (size.width, size.height));
    assert_eq!(size.map_err(|error| error.to_string()), want.map_err(str::to_owned), "{given:?}");
}

#[test]
fn sizes_are_bounded() {
    check_size(&[], Ok((330, 250)));
    check_size(&[("width", "4096"), ("height", " 4096 ")], Ok((4096, 4096)));
    check_size(&[("width", "0"), ("height", "-5")], Ok((1, 1)));
    check_size(&[("width", "wide"), ("height", "nan")], Ok((330, 250)));
    check_size(&[("width", "4097")], Err("pixels of width: 4097 exceed the limit of 4096"));
    check_size(&[("height", "9000")], Err("pixels of height: 9000 exceed the limit of 4096"));
    check_size(
        &[("height", "1e300")],
        Err("pixels of height: 18446744073709551615 exceed the limit of 4096"),
    );
}

#[test]
fn long_documents_and_ended_requests_are_refused() {
    let size = BitmapSize { width: 10, height: 10 };
    let small = svg(&[1.0], &[]);
    let mut out = Vec::new();
    assert_eq!(render_png(&small, size, &|| true, &mut out), Err(EvalError::Canceled));
    let long = format!("{small}{}", " ".repeat(BITMAP_SVG_BYTES_MAX));
    let error = render_png(&long, size, &|| false, &mut out).expect_err("long").to_string();
    assert!(error.ends_with("exceed the limit of 16777216"), "{error}");
    assert!(out.is_empty());
    assert_eq!(size.memory_bytes("12345"), 445);
}

/// Peaks, waves and a constant as lines, areas and stairs, wide and see-through: drawn in bands of rows they
/// are the picture of the whole, but for anti-aliased pixels where an edge is cut.
#[test]
fn bands_of_rows_are_the_picture_of_the_whole() {
    let peaks: Vec<f64> = (0..60).map(|idx| f64::from(idx * 7919 % 101)).collect();
    let waves: Vec<f64> = (0..60).map(|idx| (f64::from(idx) / 5.0).sin()).collect();
    for values in [&peaks[..], &waves, &[1.0; 60]] {
        for more in [
            ("lineWidth", "1"),
            ("lineWidth", "25"),
            ("areaMode", "all"),
            ("lineMode", "staircase"),
            ("colorList", "0af80880"),
        ] {
            let svg = svg(values, &[("width", "120"), ("height", "100"), more]);
            let [whole, bands] = [100, 16].map(|row_count| {
                let mut pixels = Pixmap::new(120, 100).expect("small");
                draw(&svg, row_count, &|| false, &mut pixels).expect("valid");
                pixels
            });
            let differences = || whole.data().iter().zip(bands.data()).map(|(a, b)| a.abs_diff(*b));
            let unequal_count = differences().filter(|difference| *difference > 1).count();
            assert!(differences().max() <= Some(64), "{more:?}: {:?}", differences().max());
            assert!(unequal_count * 50 < whole.data().len(), "{more:?}: {unequal_count} bytes differ");
            assert!(whole.data().chunks(4).any(|pixel| pixel[..3] != BLACK), "{more:?}");
        }
    }
}

/// Draws a picture and ends its request at each check but those skipped; returns the number of checks.
#[track_caller]
fn check_ends(values: &[f64], given: Given<'_>) -> usize {
    let svg = svg(values, given);
    let size = BitmapSize::new(get(given)).expect("small");
    let draw_until = |end: usize| {
        let asked = std::cell::Cell::new(0);
        let is_canceled = || {
            asked.set(asked.get() + 1);
            asked.get() > end
        };
        let result = render_png(&svg, size, &is_canceled, &mut Vec::new());
        (result, asked.get())
    };
    let (result, count) = draw_until(usize::MAX);
    assert_eq!(result, Ok(()), "{given:?}");
    for end in [0, count / 2, count - 1] {
        let ended = (Err(EvalError::Canceled), end + 1);
        assert_eq!(draw_until(end), ended, "{given:?}: drawn on after the end at check {end} of {count}");
    }
    count
}

/// A request that ended while its picture was encoded, or while one long element was drawn, went on for
/// seconds on a busy machine: it was asked before parts of the document alone.
#[test]
fn a_request_ends_within_a_long_element_and_while_pixels_are_encoded() {
    let peaks: Vec<f64> = (0..2000).map(|idx| f64::from(idx * 7919 % 101)).collect();
    let sides = [("width", "800"), ("height", "150")];
    let bands = 150_usize.div_ceil(BAND_ROWS);
    let encoded = 150_usize.div_ceil(ENCODED_ROWS);
    for (values, more, elements) in [
        (&peaks[..], ("lineWidth", "1"), 1),
        (&peaks, ("lineMode", "staircase"), 1),
        (&peaks, ("areaMode", "all"), 2),
        (&peaks[..2], ("lineWidth", "1"), 0),
        (&peaks[..2], ("areaMode", "all"), 0),
        (&peaks[..3], ("lineMode", "staircase"), 0),
        (&peaks[..3], ("graphOnly", "true"), 0),
        (&peaks[..3], ("hideLegend", "true"), 0),
        (&[], ("title", "none"), 0),
        (&peaks, ("graphType", "pie"), 0),
    ] {
        let count = check_ends(values, &[sides[0], sides[1], more]);
        let want = elements * bands + encoded;
        assert!((want..want + 8).contains(&count), "{more:?}: {count} checks instead of {want} and a few");
    }
}
