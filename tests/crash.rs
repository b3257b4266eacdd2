//! `kill -9`, at named points and at any moment, under the oracle.

use std::{thread, time::Duration};

use crate::support::{Oracle, SOON, broker, runs};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use rustix::process::Signal;
use serde_json::json;

/// Where a process can be made to die.
const POINTS: &[&str] =
    &["producer-enqueued", "producer-acked", "before-commit", "after-commit", "before-apply", "after-settle"];

/// A session that ends soon after its member died, so that the next one need not wait for it.
const SHORT_SESSION: &str = r#"
    [kafka.consumer]
    "session.timeout.ms" = "1000"
    "heartbeat.interval.ms" = "300"
"#;

#[test]
fn nothing_is_lost_or_made_up_when_the_process_is_killed() {
    let mut random = StdRng::seed_from_u64(3);
    let mut oracle = Oracle::new(broker(), "crash", 3);
    let kills = runs(20, 200);
    for kill in 0..kills {
        oracle.produce(600, kill);
        // A slow acknowledgement: most kills find records that were sent and not acknowledged.
        let linger = if kill % 2 == 0 { "5" } else { "300" };
        let config = oracle.config("", &format!("{SHORT_SESSION}\n[kafka.producer]\n\"linger.ms\" = \"{linger}\""));
        let mut process = if random.random_bool(0.5) {
            let point = POINTS[random.random_range(0..POINTS.len())];
            let after = random.random_range(0..40);
            oracle.start(&config, &[("FAILPOINTS", &format!("{point}={after}*off->return"))])
        } else {
            oracle.start(&config, &[])
        };
        // The kill is what is tested, so the moment is any.
        thread::sleep(Duration::from_millis(random.random_range(300..2500)));
        process.signal(Signal::KILL);
        process.wait(SOON);
        oracle.check();
    }
    let config = oracle.config("", SHORT_SESSION);
    let _process = oracle.start(&config, &[]);
    let verdicts = oracle.check_end(4 * SOON);
    let (dead_letters, duplicates) = (verdicts.rejected, verdicts.duplicates);
    println!(
        "figure: {}",
        json!({ "name": "crash", "kills": kills, "dead_letters": dead_letters, "duplicates": duplicates })
    );
}
