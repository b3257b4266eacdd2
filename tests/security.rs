//! TLS and logging in (SASL): that it works, and what is said when it does not.

use std::{fs, process::Output, sync::LazyLock};

use crate::support::{
    Oracle, Process, SOON, binary, free_port,
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
    format!(
        "[kafka.common]\n\"security.protocol\" = \"SSL\"\n\"ssl.ca.location\" = \"{}\"",
        secured.authority.display()
    )
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
    assert!(said[0].contains("security.protocol = ") && said[1].contains(topic), "all is said: {said:?}");
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

/// What both `run` and `check` say before they end with 1.
fn refused(topic: &str, servers: &str, common: &str, password: &str) -> String {
    let oracle = Oracle::new(&secured().broker, topic, 1);
    let config = config(&oracle, secured(), servers, common);
    let mut process = Process::start_with(&config, &[("PASSWORD", password)]);
    assert_eq!(process.wait(SOON).code(), Some(1), "{}", process.stderr());
    let log = process.stderr();
    let said = last_words(&check(&config, password));
    assert!(!log.contains(password) && !said.contains(password), "{log}\n{said}");
    for words in [log.lines().last().unwrap_or_default(), &said] {
        assert!(words.starts_with("error: ") && words.contains(servers), "{log}\n{said}");
    }
    said
}

/// The one sentence of a check that failed.
fn last_words(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    said
}

#[test]
fn a_wrong_password_ends_the_start() {
    for (topic, login) in [("wrong-plain", PLAIN), ("wrong-scram", SCRAM)] {
        let said = refused(topic, &secured().sasl, &sasl(secured(), login), "a-wrong-password");
        let who = format!("refused this client (user \"{}\", {})", login.user, login.mechanism);
        assert!(said.contains(&who), "{said}");
        assert!(said.trim_end().ends_with("\"sasl.username\" and \"sasl.password\" in [kafka.common]"), "{said}");
    }
}

#[test]
fn an_unknown_authority_ends_the_start() {
    let common = "[kafka.common]\n\"security.protocol\" = \"SSL\"";
    let said = refused("unknown-authority", &secured().tls, common, "no-password-at-all");
    assert!(said.contains("no TLS connection") && said.contains("\"ssl.ca.location\" in [kafka.common]"), "{said}");
}

/// The client cannot tell a broker that hangs up from one that goes away, so it is waited for, with a hint.
#[test]
fn talking_tls_on_one_side_only_is_said_while_it_is_waited() {
    let secured = secured();
    for (topic, servers, common) in
        [("tls-there", &secured.tls, String::new()), ("tls-here", &secured.broker.servers, tls(secured))]
    {
        let oracle = Oracle::new(&secured.broker, topic, 1);
        let mut process = Process::start(&config(&oracle, secured, servers, &common));
        process.await_log("The brokers do not answer; asking again reason=");
        assert!(process.is_running(), "{}", process.stderr());
    }
}

/// A broker that restarts, with another password and then with the old one, is waited for.
#[test]
fn a_process_that_runs_outlives_a_restart_and_a_password_that_is_taken_back() {
    let secured = Secured::start();
    let mut oracle = Oracle::new(&secured.broker, "taken-back", 2);
    let config = config(&oracle, &secured, &secured.sasl, &sasl(&secured, PLAIN));
    oracle.produce(200, 1);
    let mut process = oracle.start(&config, &[("PASSWORD", PLAIN.password)]);
    oracle.await_committed(SOON);
    let restart = |password| {
        secured.broker.stop();
        secured.set_plain_password(password);
        secured.broker.resume();
    };
    restart("another-password");
    oracle.produce(200, 2);
    process.await_log("Authentication failed: Invalid username or password");
    oracle.check();
    restart(PLAIN.password);
    oracle.check_end(2 * SOON);
    assert!(process.is_running(), "{}", process.stderr());
}
