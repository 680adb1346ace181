//! Bytes per series of a sidecar, and series per second that its pages decode to.
//!
//! `cargo bench -p chronolith-format --bench sidecar_size`. `cargo test` runs one round over few series.
//!
//! Families: container metrics of a cluster (1000 pods per metric), the same as histogram buckets, one metric
//! per host and core, and the block of Mimir's published benchmark. Each is written without chunks, with one
//! chunk per series, and with 48, whose lengths differ as in real blocks. Every series is read back and
//! compared. Then pages of container metrics with 12 chunks are packed by each compressor of the tree. Times
//! are the best of several rounds of wall clock on one thread.

use std::io::{Read, Write};

use chronolith_base::{Clock, SystemClock};
use chronolith_format::block::chunks::ChunkRef;
use chronolith_format::block::index::ChunkMeta;
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::sidecar::{SeriesPage, SidecarHead, SidecarWriter, SizedChunk};
use chronolith_model::TimeUnit;

/// Size of a measurement.
#[derive(Clone, Copy)]
struct Size {
    series_count: u64,
    round_count: usize,
}

const MEASURED: Size = Size { series_count: 100_000, round_count: 7 };
const TESTED: Size = Size { series_count: 1500, round_count: 1 };
const CHUNK_COUNTS: [u32; 3] = [0, 1, 48];
const START_MS: i64 = 1_699_920_000_000;

type Pairs = Vec<(&'static str, String)>;

/// Name and labels of series `n`.
struct Family {
    name: &'static str,
    labels: fn(u64) -> Pairs,
}

const FAMILIES: [Family; 4] = [
    Family { name: "containers", labels: container },
    Family { name: "buckets", labels: bucket },
    Family { name: "cores", labels: core },
    Family { name: "published", labels: published },
];

/// SplitMix64: random bits from a number.
fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Name of a pod as Kubernetes makes it: deployment, hash of the template, five random characters.
fn pod(n: u64) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let deployment = n / 10;
    let random = |salt: u64, count: usize| -> String {
        let mut bits = mix(salt);
        let mut letter = || {
            let found = LETTERS[(bits % 27) as usize];
            bits /= 27;
            char::from(found)
        };
        (0..count).map(|_| letter()).collect()
    };
    format!("app-{deployment:03}-{}-{}", random(deployment, 10), random(n + (1 << 32), 5))
}

fn container(n: u64) -> Pairs {
    let pod_idx = n % 1000;
    vec![
        ("__name__", format!("container_metric_{:03}_total", n / 1000)),
        ("container", format!("app-{:03}", pod_idx / 10)),
        ("endpoint", "https-metrics".to_owned()),
        ("image", format!("registry.example.com/team/app-{:03}:v1.{}.3", pod_idx / 10, pod_idx / 10 % 7)),
        ("instance", format!("10.0.{}.{}:10250", mix(pod_idx) % 4, mix(pod_idx) / 4 % 16)),
        ("job", "kubelet".to_owned()),
        ("metrics_path", "/metrics/cadvisor".to_owned()),
        ("namespace", format!("team-{:02}", pod_idx / 50)),
        ("node", format!("node-{:02}.cluster.example.com", mix(pod_idx) % 64)),
        ("pod", pod(pod_idx)),
        ("service", "kubelet".to_owned()),
    ]
}

fn bucket(n: u64) -> Pairs {
    const BOUNDS: [&str; 10] = ["+Inf", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5"];
    let pod_idx = n / 10 % 100;
    vec![
        ("__name__", format!("http_request_duration_{:03}_seconds_bucket", n / 1000)),
        ("code", ["200", "404", "500"][(n / 10 % 3) as usize].to_owned()),
        ("handler", format!("/api/v1/{}", ["query", "series", "labels"][(n / 30 % 3) as usize])),
        ("instance", format!("10.0.1.{pod_idx}:8080")),
        ("job", "api".to_owned()),
        ("le", BOUNDS[(n % 10) as usize].to_owned()),
        ("namespace", "production".to_owned()),
        ("pod", pod(pod_idx)),
    ]
}

fn core(n: u64) -> Pairs {
    vec![
        ("__name__", format!("node_cpu_{}_seconds_total", n / 100_000)),
        ("cpu", format!("{}", n / 8 % 64)),
        ("instance", format!("host-{:04}.dc1.example.com:9100", n / 512 % 1000)),
        ("job", "node".to_owned()),
        (
            "mode",
            ["idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user"][(n % 8) as usize]
                .to_owned(),
        ),
    ]
}

fn published(n: u64) -> Pairs {
    vec![("foo", "bar".to_owned()), ("i", format!("{:07}aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd", n * 5760))]
}

/// Chunks of series `n`, placed after the chunks of the previous series.
fn chunks(n: u64, count: u32, end: &mut u64) -> Vec<SizedChunk> {
    // Series of one target are scraped together.
    let shift = (mix(n % 1000) % 15_000).cast_signed();
    let chunk = |k: u32| {
        let len = 150 + (mix(n) % 500) as u32 + (mix(n << 8 | u64::from(k)) % 60) as u32;
        let min_time = START_MS + shift + i64::from(k) * 1_800_000;
        let meta = ChunkMeta { min_time, max_time: min_time + 1_785_000, chunk_ref: ChunkRef(*end) };
        *end += u64::from(len);
        SizedChunk { meta, len }
    };
    (0..count).map(chunk).collect()
}

/// A sidecar and what it took.
struct Written {
    bytes: Vec<u8>,
    write_ns: u64,
}

fn write(series: &[(Pairs, Vec<SizedChunk>)], clock: &SystemClock) -> Written {
    let mut bytes = Vec::new();
    let start = clock.mono_ns();
    let mut writer = SidecarWriter::new(Ulid::new(0, 0), TimeUnit::Milli, |out: &[u8]| {
        bytes.extend_from_slice(out);
    });
    for (series_ref, (labels, chunks)) in (1u32..).zip(series) {
        let pairs = labels.iter().map(|(name, value)| (*name, value.as_str()));
        writer.add_series(series_ref * 8, pairs, chunks).expect("is in order");
    }
    writer.finish(&[], None);
    Written { bytes, write_ns: clock.mono_ns() - start }
}

/// Decodes all pages; returns the number of labels and chunks.
fn read_all(bytes: &[u8], head: &SidecarHead, page: &mut SeriesPage) -> usize {
    let mut count = 0;
    for entry in &head.pages {
        let start = entry.offset as usize;
        page.decode(entry, &bytes[start..start + entry.len as usize]).expect("decodes");
        count += page.iter().map(|series| series.pairs().count() + series.chunks.len()).sum::<usize>();
    }
    count
}

fn check(bytes: &[u8], head: &SidecarHead, series: &[(Pairs, Vec<SizedChunk>)]) {
    let mut page = SeriesPage::new();
    let mut wanted = series.iter();
    for entry in &head.pages {
        let start = entry.offset as usize;
        page.decode(entry, &bytes[start..start + entry.len as usize]).expect("decodes");
        for found in page.iter() {
            let (labels, chunks) = wanted.next().expect("no series more");
            assert!(found.pairs().eq(labels.iter().map(|(name, value)| (*name, value.as_str()))));
            assert_eq!(found.chunks, chunks);
        }
    }
    assert!(wanted.next().is_none());
}

fn measure(family: &Family, chunk_count: u32, size: Size) {
    let clock = SystemClock::new();
    let mut end = 8;
    let labels = (0..size.series_count).map(|n| (n, (family.labels)(n)));
    let mut labels: Vec<(u64, Pairs)> = labels.collect();
    labels.sort_by(|a, b| a.1.cmp(&b.1));
    let series: Vec<(Pairs, Vec<SizedChunk>)> =
        labels.into_iter().map(|(n, labels)| (labels, chunks(n, chunk_count, &mut end))).collect();
    let Written { bytes, write_ns } = write(&series, &clock);
    let head = SidecarHead::decode(&bytes).expect("decodes");
    check(&bytes, &head, &series);
    let mut page = SeriesPage::new();
    let mut best_ns = u64::MAX;
    for _ in 0..size.round_count {
        let start = clock.mono_ns();
        std::hint::black_box(read_all(&bytes, &head, &mut page));
        best_ns = best_ns.min(clock.mono_ns() - start);
    }
    let count = series.len() as f64;
    let page_bytes: u64 = head.pages.iter().map(|page| u64::from(page.len)).sum();
    println!(
        "{:12} {chunk_count:3} {:7.1} {:5.1} {:6} {:8.0} {:8.0} {:8.2} {:8.2}",
        family.name,
        page_bytes as f64 / count,
        (bytes.len() as u64 - page_bytes) as f64 / count,
        head.pages.len(),
        count / head.pages.len() as f64,
        page_bytes as f64 / head.pages.len() as f64,
        count * 1e3 / write_ns.max(1) as f64,
        count * 1e3 / best_ns.max(1) as f64,
    );
}

/// Prints size and unpacking rate of the raw pages of a sidecar under each compressor of the tree.
fn compare_codecs(size: Size) {
    let clock = SystemClock::new();
    let mut end = 8;
    let count = size.series_count.min(20_000);
    let series: Vec<(Pairs, Vec<SizedChunk>)> =
        (0..count).map(|n| (container(n), chunks(n, 12, &mut end))).collect();
    let bytes = write(&series, &clock).bytes;
    let head = SidecarHead::decode(&bytes).expect("decodes");
    let page = |offset: u64, len: u32| &bytes[offset as usize..offset as usize + len as usize];
    let zstd: Vec<&[u8]> = head.pages.iter().map(|entry| frame(page(entry.offset, entry.len))).collect();
    let raw: Vec<Vec<u8>> = zstd.iter().map(|frame| unpack_zstd(frame)).collect();
    let raw_bytes: usize = raw.iter().map(Vec::len).sum();
    let report = |name: &str, packed_bytes: usize, unpack: &dyn Fn()| {
        let mut best_ns = u64::MAX;
        for _ in 0..size.round_count {
            let start = clock.mono_ns();
            unpack();
            best_ns = best_ns.min(clock.mono_ns() - start);
        }
        let per_series = packed_bytes as f64 / count as f64;
        let rate = raw_bytes as f64 * 1e3 / best_ns.max(1) as f64;
        println!("{name:8} {per_series:6.1} B/series, unpacked at {rate:6.0} MB/s");
    };
    let zstd_bytes = zstd.iter().map(|frame| frame.len()).sum();
    report("zstd", zstd_bytes, &|| zstd.iter().for_each(|frame| drop(unpack_zstd(frame))));
    let snappy: Vec<Vec<u8>> =
        raw.iter().map(|raw| snap::raw::Encoder::new().compress_vec(raw).unwrap()).collect();
    let unpack_snappy = |packed: &[u8]| drop(snap::raw::Decoder::new().decompress_vec(packed).unwrap());
    let snappy_bytes = snappy.iter().map(Vec::len).sum();
    report("snappy", snappy_bytes, &|| snappy.iter().for_each(|packed| unpack_snappy(packed)));
    let deflate: Vec<Vec<u8>> = raw.iter().map(|raw| pack_deflate(raw)).collect();
    let deflate_bytes = deflate.iter().map(Vec::len).sum();
    report("deflate", deflate_bytes, &|| deflate.iter().for_each(|packed| unpack_deflate(packed)));
    report("plain", raw_bytes, &|| raw.iter().for_each(|raw| drop(raw.clone())));
}

/// Content of a packed page: after codec and length, before the checksum.
fn frame(page: &[u8]) -> &[u8] {
    assert_eq!(page[0], 1, "pages of this size are compressed");
    let len_bytes = 1 + page[1..].iter().take_while(|byte| **byte >= 0x80).count();
    &page[1 + len_bytes..page.len() - 4]
}

fn unpack_zstd(frame: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(frame).expect("is a frame");
    decoder.read_to_end(&mut out).expect("decodes");
    out
}

fn pack_deflate(raw: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(raw).expect("memory");
    encoder.finish().expect("memory")
}

fn unpack_deflate(packed: &[u8]) {
    let mut out = Vec::new();
    flate2::bufread::DeflateDecoder::new(packed).read_to_end(&mut out).expect("decodes");
}

fn main() {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let size = if is_measured { MEASURED } else { TESTED };
    println!("family   chunks  B/series  rest  pages  series/p  bytes/p  M/s written, decoded");
    for family in &FAMILIES {
        for chunk_count in CHUNK_COUNTS {
            measure(family, chunk_count, size);
        }
    }
    compare_codecs(size);
}
