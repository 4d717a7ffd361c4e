//! The queue of a disk: cases computed by hand, and the theory of queues.

use frieze_base::Rng;
use frieze_whatif::{DiskModel, DiskQueue, DiskRequest, IoPurpose, RuleSet, ServedRequest};

const MODEL: DiskModel = DiskModel { seek_ns: 10_000_000, bytes_per_s: 100e6, slice_bytes: 1 << 20 };

fn request(at_ns: u64, file: u32, offset: u64, bytes: u32) -> DiskRequest {
    let pages = bytes.div_ceil(4096).max(1);
    DiskRequest {
        at_ns,
        offset,
        file,
        bytes,
        pages,
        purpose: IoPurpose::Read,
        counts: true,
        foreground: true,
        call: 0,
        hop_ns: 0,
    }
}

fn run(model: DiskModel, requests: &[DiskRequest]) -> (DiskQueue, Vec<ServedRequest>) {
    let (mut disk, mut all) = (DiskQueue::new(model, RuleSet::ALL), Vec::new());
    for request in requests {
        disk.arrive(*request, &mut |served| all.push(served));
    }
    disk.drain(&mut |served| all.push(served));
    (disk, all)
}

#[test]
fn cases_computed_by_hand_end_when_they_should() {
    let text = include_str!("../testdata/disk.txt");
    let mut count = 0;
    for case in text.split("\ncase ").skip(1) {
        let (name, lines) = case.split_once('\n').unwrap();
        let (mut model, mut wanted, mut split) = (MODEL, Vec::new(), u64::MAX);
        for line in lines.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["slice", bytes] => model.slice_bytes = bytes.parse().unwrap(),
                ["split", bytes] => split = bytes.parse().unwrap(),
                [at, file, offset, bytes, end] => {
                    let ms = |text: &str| (text.parse::<f64>().unwrap() * 1e6).round() as u64;
                    let number = |text: &str| text.parse::<u64>().unwrap();
                    wanted.push((ms(at), number(file) as u32, number(offset), number(bytes), ms(end)));
                }
                _ => panic!("{name}: cannot read {line:?}"),
            }
        }
        let mut requests = Vec::new();
        for (at, file, offset, bytes, _) in &wanted {
            let mut from = 0;
            while from == 0 || from < *bytes {
                let piece = split.min(bytes - from);
                requests.push(request(*at, *file, offset + from, piece as u32));
                from += piece.max(1);
            }
        }
        let (_, served) = run(model, &requests);
        for (at, file, offset, bytes, end) in &wanted {
            let is_of = |served: &&ServedRequest| {
                let of = &served.request;
                of.file == *file && of.offset + u64::from(of.bytes) == offset + bytes && of.at_ns == *at
            };
            let found = served.iter().find(is_of).unwrap_or_else(|| panic!("{name}: {file} {offset} is not served"));
            assert_eq!(found.end_ns, *end, "{name}: file {file} at {offset}");
        }
        count += 1;
    }
    assert_eq!(count, 9);
}

#[test]
fn a_random_load_waits_as_long_as_theory_says() {
    for utilisation in [0.3, 0.5, 0.7] {
        let service_ns = 10_000_000.0 + 4096.0 * 10.0;
        let (mut rng, mut now) = (Rng::new(7), 0.0f64);
        let requests: Vec<DiskRequest> = (0..400_000u32)
            .map(|number| {
                let uniform = (rng.next() >> 11) as f64 / (1u64 << 53) as f64;
                now -= (1.0 - uniform).ln() * service_ns / utilisation;
                // Every request is for another file.
                request(now as u64, number, 0, 4096)
            })
            .collect();
        let (disk, served) = run(MODEL, &requests);
        let wait: f64 = served.iter().map(|served| (served.begin_ns - served.request.at_ns) as f64).sum();
        let mean = wait / served.len() as f64;
        let theory = utilisation * service_ns / (2.0 * (1.0 - utilisation));
        assert!((mean / theory - 1.0).abs() < 0.02, "at {utilisation}: {mean} ns, M/D/1 says {theory}");
        let exec: u64 = served.iter().map(ServedRequest::exec_ns).sum();
        assert_eq!(exec, disk.busy_ns(), "a disk is busy while it serves");
        let end = served.iter().map(|served| served.end_ns).max().unwrap();
        assert!((disk.busy_ns() as f64 / end as f64 - utilisation).abs() < 0.01);
    }
}

#[test]
fn sums_over_pages_of_a_run_are_those_of_its_pages() {
    // Sixteen pages that wait 5 ms, then a seek, then one page after the other.
    let served = ServedRequest {
        request: DiskRequest { pages: 16, ..request(0, 1, 0, 65_536) },
        begin_ns: 5_000_000,
        seek_ns: 10_000_000,
        end_ns: 15_000_000 + 16 * 40_960,
    };
    let latency: u64 = (1..=16).map(|page| 15_000_000 + page * 40_960).sum();
    assert_eq!(served.latency_ns_of_pages(), latency);
    assert_eq!(served.exec_ns(), 10_000_000 + 16 * 40_960);
}

#[test]
fn every_request_is_served_once_and_the_disk_never_rests_while_one_waits() {
    let mut rng = Rng::new(3);
    let mut now = 0;
    let requests: Vec<DiskRequest> = (0..20_000)
        .map(|_| {
            now += rng.below(12_000_000);
            request(now, rng.below(6) as u32, rng.below(1 << 24), 4096 << rng.below(5))
        })
        .collect();
    let (disk, served) = run(MODEL, &requests);
    assert_eq!((served.len(), disk.waiting()), (requests.len(), 0));
    for pair in served.windows(2) {
        assert!(pair[1].begin_ns == pair[0].end_ns.max(pair[1].request.at_ns));
    }
}
