//! TLS and logging in (SASL): that it works, and what is said when it does not.

mod support;

use std::{fs, process::Output, sync::LazyLock};

use support::{
    Oracle, Process, SOON, binary, eventually, free_port,
    operator::http,
    security::{Login, PLAIN, SCRAM, Secured},
};
use tempfile::TempDir;

fn secured() -> &'static Secured {
    static SECURED: LazyLock<Secured> = LazyLock::new(Secured::start);
    &SECURED
}

/// `[kafka.common]` for TLS alone.
fn tls(secured: &Secured) -> String {
    format!("[kafka.common]\n\"security.protocol\" = \"SSL\"\n\"ssl.ca.location\" = {:?}", secured.authority)
}

/// `[kafka.common]` for TLS and logging in; the password comes from the environment.
fn sasl(secured: &Secured, Login { mechanism, user, .. }: Login) -> String {
    format!(
        "{}\n\"sasl.mechanism\" = \"{mechanism}\"\n\"sasl.username\" = \"{user}\"\n\"sasl.password\" = \"${{PASSWORD}}\"",
        tls(secured).replace("\"SSL\"", "\"SASL_SSL\"")
    )
}

/// A pipeline that reaches the broker at `servers`.
fn config(oracle: &Oracle<'_>, secured: &Secured, servers: &str, common: &str) -> String {
    oracle.config("", common).replace(&secured.broker.servers, servers)
}

/// `deadletter check` of a configuration.
fn check(config: &str, password: &str) -> Output {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("deadletter.toml");
    fs::write(&file, config).unwrap();
    binary(["check".as_ref(), file.as_os_str()]).env("PASSWORD", password).env_remove("RUST_LOG").output().unwrap()
}

/// Messages of every kind come to their end, some dead letters through a shadow reader, and the password stays where
/// it is.
fn works(topic: &str, servers: &str, common: &str, password: &str) {
    let mut oracle = Oracle::new(&secured().broker, topic, 2);
    let port = free_port();
    let admin = format!("[admin]\nlisten = \"127.0.0.1:{port}\"\n");
    // The client itself tells more, too.
    let config = admin + &config(&oracle, secured(), servers, &format!("{common}\n\"debug\" = \"conf,security\""));
    oracle.produce(500, 1);
    oracle.produce_of(&b"ARDE".repeat(20));
    let process = oracle.start(&config, &[("PASSWORD", password), ("RUST_LOG", "debug")]);
    oracle.await_committed(SOON);
    let get = |path: &str| http(port, &format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n")).1;
    let (status, metrics) = (get("/status"), get("/metrics"));
    oracle.check_end(SOON);
    let found =
        metrics.lines().find(|line| line.starts_with("deadletter_shadow_reads_total") && line.contains("found"));
    assert!(found.is_some_and(|line| !line.ends_with(" 0")), "nothing was read again:\n{metrics}");
    let checked = check(&config, password);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let said = [process.stderr(), status, metrics, format!("{checked:?}")];
    assert!(said[0].contains("sasl.mechanisms") && said[1].contains(topic), "all is said: {said:?}");
    let leak = said.iter().flat_map(|text| text.lines()).find(|line| line.contains(password));
    assert_eq!(leak, None);
}

#[test]
fn a_pipeline_works_over_tls() {
    works("tls", &secured().tls, &tls(secured()), "no-password-at-all");
}

#[test]
fn a_pipeline_works_with_a_plain_password_which_stays_secret() {
    works("plain", &secured().sasl, &sasl(secured(), PLAIN), PLAIN.password);
}

#[test]
fn a_pipeline_works_with_a_salted_password_which_stays_secret() {
    works("scram", &secured().sasl, &sasl(secured(), SCRAM), SCRAM.password);
}

/// What both `run` and `check` say last before they end with 1: the same.
fn refused(topic: &str, servers: &str, common: &str, password: &str) -> String {
    let oracle = Oracle::new(&secured().broker, topic, 1);
    let config = config(&oracle, secured(), servers, common);
    let mut process = Process::start_with(&config, &[("PASSWORD", password)]);
    assert_eq!(process.wait(SOON).code(), Some(1), "{}", process.stderr());
    let log = process.stderr();
    let said = log.lines().last().unwrap_or_default();
    let checked = check(&config, password);
    let error = String::from_utf8_lossy(&checked.stderr).into_owned();
    eprintln!("{log}\n{error}");
    assert_eq!((checked.status.code(), error.lines().count()), (Some(1), 1), "{error}");
    assert!(!log.contains(password) && !error.contains(password), "{log}\n{error}");
    said.to_owned()
}

#[test]
fn a_wrong_password_ends_the_start() {
    for (topic, login) in [("wrong-plain", PLAIN), ("wrong-scram", SCRAM)] {
        let said = refused(topic, &secured().sasl, &sasl(secured(), login), "a-wrong-password");
        println!("{said}");
    }
}

#[test]
fn an_unknown_authority_ends_the_start() {
    let common = "[kafka.common]\n\"security.protocol\" = \"SSL\"";
    println!("{}", refused("unknown-ca", &secured().tls, common, "no-password-at-all"));
}

#[test]
fn plain_text_to_a_broker_with_tls() {
    println!("{}", refused("no-tls", &secured().tls, "", "no-password-at-all"));
}

#[test]
fn tls_to_a_broker_without_it() {
    println!("{}", refused("no-tls-there", &secured().broker.servers, &tls(secured()), "no-password-at-all"));
}
