use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    io::Write,
    time::{Duration, Instant, SystemTime},
};

use crate::{
    bindings::deadletter::processor::types::{Context, OffsetRange, Outcome, Verdict},
    mode::{reject, setting},
};

/// One way or another of not keeping to the contract, and what a guest can find out about its surroundings.
pub(crate) fn act(mode: &str, context: &Context, offsets: &[i64]) -> Result<Vec<Verdict>, String> {
    let first = offsets.first().copied().unwrap_or_default();
    match mode {
        "loop" => loop {
            std::hint::black_box(());
        },
        "sleep" => std::thread::sleep(Duration::from_secs(3600)),
        "sleep-for-ever" => loop {
            std::thread::sleep(Duration::from_secs(3600));
        },
        "alloc" => {
            let mut hoard = Vec::new();
            loop {
                hoard.push(std::hint::black_box(vec![1_u8; 1 << 20]));
            }
        }
        "panic" => panic!("no idea what to do with offset {first}"),
        "err" => return Err("out of\nluck".to_owned()),
        "lie" => return Ok(vec![reject(first + 1_000_000, "lie", String::new())]),
        "flood" => flood(),
        "recurse" => return Err(recurse(u64::from(context.partition.unsigned_abs())).to_string()),
        "reason" => return Ok(vec![reject(first, "long", "é".repeat(1 << 20))]),
        "huge" => return Ok(vec![reject(first, "huge", "x".repeat(20 << 20))]),
        "codes" => return Ok(offsets.iter().map(|at| reject(*at, &format!("code-{at}"), String::new())).collect()),
        "code" => return Ok(vec![reject(first, &setting("code"), String::new())]),
        "range" => return Ok(vec![odd_range()]),
        "probe" => return Ok(vec![reject(first, "probe", probe())]),
        other => return Err(format!("there is no mode {other}")),
    }
    Ok(vec![])
}

fn flood() {
    let line = [b'\x1b'; 1 << 16];
    for _ in 0..1_600 {
        let _ = std::io::stdout().write_all(&line);
    }
    for n in 0..100_000 {
        eprintln!("complaint {n}");
    }
}

#[allow(unconditional_recursion, reason = "the point of it")]
fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    recurse(depth + 1) + frame[7]
}

/// `first..last,first..last`, as the setting `range` has it.
fn odd_range() -> Verdict {
    let ends = |range: &str| {
        let (first, last) = range.split_once("..")?;
        Some(OffsetRange { first: first.parse().ok()?, last: last.parse().ok()? })
    };
    Verdict { offsets: setting("range").split(',').filter_map(ends).collect(), outcome: Outcome::Accept }
}

/// What the world looks like from in here: clock, random, environment, files, network.
fn probe() -> String {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map(|since| since.as_millis());
    let start = Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    let random = RandomState::new().hash_one(1);
    let mut seen = HashMap::new();
    seen.insert("wall", format!("{wall:?}"));
    seen.insert("slept", format!("{}", start.elapsed().as_secs()));
    seen.insert("random", format!("{random}"));
    seen.insert("environment", format!("{}", std::env::vars().count() + std::env::args().count()));
    seen.insert("file", format!("{}", std::fs::read_dir("/").is_ok()));
    seen.insert("socket", format!("{}", std::net::TcpStream::connect("127.0.0.1:9092").is_ok()));
    let mut lines: Vec<_> = seen.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    lines.sort();
    lines.join(" ")
}
