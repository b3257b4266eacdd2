//! What an operator does to a running process: `status`, `pause`, `resume`, `skip`, `drain`, and what is refused.

use std::{fs, thread};

use crate::support::{
    Operated, Process, SOON, Scene, binary, broker, eventually, free_port,
    operator::{TOKEN, http, refused},
};
use tempfile::TempDir;

const SMALL: &str = r#"
    batch = { messages = 4, wait = "5ms" }
    settle = "50ms"
"#;

/// Eight open messages at most, then the host pauses.
const EIGHT: &str = r#"
    batch = { messages = 4, wait = "5ms" }
    open = { messages = 8, grace = "100ms", then = "pause" }
    settle = "50ms"
"#;

fn path(operated: &Operated) -> String {
    operated.process.folder().path().join("deadletter.toml").display().to_string()
}

#[test]
fn status_says_how_each_partition_stands() {
    let scene = Scene::new(broker(), "standing", 2, &[]);
    scene.produce(0, &["A", "A", "D", "D", "A"]);
    let operated = Operated::start(&scene.config(r#"settle = "never""#, SMALL));
    let lane = |partition: usize| operated.lanes()[partition].clone();
    let settled = |lane: &serde_json::Value| lane["position"] == 5 && lane["committed"] == 2;
    let first = operated.eventually("the first two are committed", || Some(lane(0)).filter(settled));
    assert_eq!((&first["end"], &first["open"], &first["deferred"]), (&5.into(), &2.into(), &2.into()), "{first}");
    assert!(first["oldest-open-seconds"].as_f64().unwrap() > 0.0 && first["paused"].is_null(), "{first}");
    let second = lane(1);
    assert_eq!((&second["position"], &second["end"], &second["open"]), (&0.into(), &0.into(), &0.into()), "{second}");
    let lines = operated.must(&["status"]);
    let lines: Vec<Vec<_>> = lines.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[1][..7], ["scene", "standing[0]", "5", "2", "5", "2", "2"], "{lines:?}");
    assert_eq!(lines[2][9], "-", "{lines:?}");
}

#[test]
fn a_paused_partition_waits_and_the_others_go_on() {
    let scene = Scene::new(broker(), "waits", 2, &[]);
    scene.produce(0, &["R"; 10]);
    let operated = Operated::start(&scene.config("", SMALL));
    scene.await_committed(0, 10);
    assert_eq!(operated.must(&["pause", "waits/0", "--reason", "bad deploy"]), "paused waits[0]\n");
    let paused = &operated.lanes()[0]["paused"];
    assert_eq!((&paused["by"], &paused["why"]), (&"operator".into(), &"ada: bad deploy".into()), "{paused}");
    assert_eq!(operated.get("/readyz"), (200, "ready\n".to_owned()), "an operator knows what he does");
    scene.produce(0, &["R"; 100]);
    scene.produce(1, &["R"; 100]);
    scene.await_committed(1, 100);
    assert_eq!(scene.rejected(0, "now").len(), 10);
    assert!(operated.refused(&["pause", "waits/0"]).contains("paused already: ada: bad deploy"));
    assert_eq!(operated.must(&["resume", "waits[0]"]), "resumed waits[0]\n");
    scene.await_committed(0, 110);
    assert_eq!(scene.rejected(0, "now"), (0..110).collect::<Vec<_>>(), "each once");
    assert!(operated.refused(&["resume", "waits/0"]).contains("is not paused"));
}

#[test]
fn pausing_and_resuming_under_load_loses_and_repeats_nothing() {
    let scene = Scene::new(broker(), "on-and-off", 1, &[]);
    let operated = Operated::start(&scene.config("", SMALL));
    let payloads: Vec<_> = (0..400).map(|number| ["A", "R", "D", "H"][number % 4]).collect();
    for _ in 0..10 {
        scene.produce(0, &payloads[..200]);
        operated.must(&["pause", "on-and-off/0"]);
        scene.produce(0, &payloads[..200]);
        operated.must(&["resume", "on-and-off/0"]);
    }
    scene.await_committed(0, 4000);
    let of = |class: i64| (0..4000).filter(|offset| offset % 4 == class).collect::<Vec<_>>();
    assert_eq!(scene.rejected(0, "now"), of(1), "each once");
    assert_eq!(scene.rejected(0, "late"), of(2), "each once");
}

/// Told to pause and to go on in one breath, a lane may find batches that were on their way before.
#[test]
fn a_pause_that_is_over_at_once_loses_and_repeats_nothing() {
    let scene = Scene::new(broker(), "in-one-breath", 1, &[]);
    scene.produce(0, &["R", "S"].repeat(400));
    let operated = Operated::start(&scene.config("", SMALL));
    let port = operated.port;
    let tell = |path: &str| {
        let body = r#"{"by":"ada","partition":"in-one-breath/0"}"#;
        let head = format!("POST {path} HTTP/1.1\r\nauthorization: Bearer {TOKEN}\r\n");
        http(port, &format!("{head}content-length: {}\r\n\r\n{body}", body.len())).0
    };
    for round in 1..=20 {
        thread::scope(|scope| {
            for path in ["/pause", "/resume"] {
                scope.spawn(move || tell(path));
            }
        });
        tell("/resume");
        let on = || (scene.rejected(0, "now").len() >= 10 * round).then_some(());
        operated.eventually("it goes on", on);
    }
    scene.await_committed(0, 800);
    assert_eq!(scene.rejected(0, "now"), (0..800).step_by(2).collect::<Vec<_>>(), "each once");
}

#[test]
fn a_skipped_message_is_settled_by_a_stub_that_says_who_and_why() {
    let scene = Scene::new(broker(), "skipped", 1, &[]);
    scene.produce(0, &["A", "D", "A", "D"]);
    let operated = Operated::start(&scene.config(r#"settle = "never""#, SMALL));
    scene.await_committed(0, 1);
    operated.eventually("all are delivered", || (operated.lanes()[0]["position"] == 4).then_some(()));
    let skip = |offset: &'static str| ["skip", "skipped/0", offset, "--reason", "crashes the parser"];
    assert!(operated.refused(&skip("1")).contains("only while its partition is paused"));
    operated.must(&["pause", "skipped/0"]);
    for (offset, why) in [("0", "settled already"), ("4", "not delivered yet"), ("2", "offset 2 is not open")] {
        let said = operated.refused(&skip(offset));
        assert!(said.contains(why) && said.contains("skipped[0]"), "{said}");
    }
    assert_eq!(operated.must(&skip("3")), "skipped skipped[0] offset 3\n");
    operated.eventually("the stub is there", || (scene.letters().len() == 1).then_some(()));
    assert_eq!(scene.committed(0), Some(1), "the commit waits for what is below");
    let json = operated.must(&[&skip("1")[..], &["--by", "bob", "--json"]].concat());
    assert_eq!(json, "{\"done\":\"skipped\",\"partition\":\"skipped[0]\",\"offset\":1}\n");
    scene.await_committed(0, 4);
    assert!(operated.refused(&skip("1")).contains("not open"), "once is enough");
    let letters = scene.letters();
    assert_eq!((letters.len(), &letters[0].payload), (2, &None));
    let header = |name: &str| letters[1].header(&format!("deadletter.{name}")).unwrap();
    assert_eq!((header("offset"), header("code"), header("payload-status")), ("1", "skipped", "skipped"));
    assert_eq!(header("reason"), "bob: crashes the parser");
    operated.must(&["resume", "skipped/0"]);
    scene.produce(0, &["R"]);
    scene.await_committed(0, 5);
}

#[test]
fn a_partition_that_the_host_paused_goes_on_once_an_operator_has_skipped() {
    let scene = Scene::new(broker(), "host-paused", 1, &[]);
    scene.produce(0, &["D"; 8]);
    scene.produce(0, &["R"; 20]);
    let operated = Operated::start(&scene.config(r#"settle = "never""#, EIGHT));
    operated.eventually("the host pauses", || (operated.get("/readyz").0 == 503).then_some(()));
    let (_, why) = operated.get("/readyz");
    assert!(why.contains("host-paused[0] is paused: the guest did not settle"), "{why}");
    assert_eq!(operated.get("/healthz"), (200, "ok\n".to_owned()), "it lives");
    assert_eq!(operated.lanes()[0]["paused"]["by"], "host");
    for offset in 0..8 {
        operated.must(&["skip", "host-paused/0", &offset.to_string(), "--reason", "no guest settles it"]);
    }
    scene.await_committed(0, 8);
    operated.must(&["resume", "host-paused/0"]);
    scene.await_committed(0, 28);
    assert_eq!(scene.rejected(0, "skipped"), (0..8).collect::<Vec<_>>());
    assert_eq!(scene.rejected(0, "now"), (8..28).collect::<Vec<_>>());
    assert_eq!(operated.get("/readyz").0, 200);
}

#[test]
fn drain_ends_the_process_as_sigterm_does() {
    let scene = Scene::new(broker(), "drained", 1, &[]);
    scene.produce(0, &["R"; 500]);
    let mut operated = Operated::start(&scene.config("", SMALL));
    assert_eq!(operated.must(&["drain", "--reason", "node goes"]), "draining\n");
    let status = operated.process.wait(SOON);
    assert_eq!(status.code(), Some(0), "{}", operated.process.stderr());
    let committed = scene.committed(0).unwrap_or_default();
    assert_eq!(scene.rejected(0, "now"), (0..committed).collect::<Vec<_>>(), "what was judged is committed");
    assert!(operated.process.stderr().contains("Draining for an operator, ada: node goes"));
    assert!(operated.refused(&["status"]).contains("nobody answers at http://127.0.0.1:"));
}

#[test]
fn what_cannot_be_done_is_refused_in_a_sentence() {
    let scene = Scene::new(broker(), "refusals", 1, &[]);
    let operated = Operated::start(&scene.config("", SMALL));
    let said = operated.refused(&["pause", "refusals/1"]);
    assert!(said.contains("this process does not have refusals[1] now"), "{said}");
    let elsewhere = operated.refused(&["pause", "refusals/0", "--pipeline", "another"]);
    assert!(elsewhere.contains("does not have refusals[0]"), "{elsewhere}");
    for arguments in [
        &["pause", "refusals"][..],
        &["pause", "refusals/x"],
        &["pause"],
        &["skip", "refusals/0", "x", "--reason", "y"],
        &["skip", "refusals/0", "3"],
        &["skip", "refusals/0", "9223372036854775807", "--reason", "y"],
        &["status", "--admin", "http://127.0.0.1:1"],
    ] {
        assert_eq!(operated.command(arguments).status.code(), Some(64), "{arguments:?}");
    }
    let address = format!("http://127.0.0.1:{}", operated.port);
    let with_token = |token: &str| {
        let arguments = ["pause", "refusals/0", "--admin", &address];
        binary(arguments).env("DEADLETTER_ADMIN_TOKEN", token).output().unwrap()
    };
    assert!(refused(&with_token("not-the-right-token"), 1).contains("the token is not the one of this process"));
    let without = binary(["drain", "--admin", &address]).env_remove("DEADLETTER_ADMIN_TOKEN").output().unwrap();
    assert!(refused(&without, 1).contains("a change needs the token"));
    assert!(binary(["status", "--admin", &address]).output().unwrap().status.success(), "whoever asks may see");
    assert!(with_token(TOKEN).status.success());
    let not_a_url = binary(["status", "--admin", "127.0.0.1:9464"]).output().unwrap();
    assert!(refused(&not_a_url, 64).contains("must be a URL such as http://127.0.0.1:9464"));
}

#[test]
fn a_request_that_is_too_large_or_none_is_refused_and_the_listener_goes_on() {
    let scene = Scene::new(broker(), "requests", 1, &[]);
    let operated = Operated::start(&scene.config("", SMALL));
    let port = operated.port;
    let paused_by = |body: &str| {
        let head =
            format!("POST /pause HTTP/1.1\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: {}\r\n\r\n", body.len());
        http(port, &(head + body))
    };
    assert_eq!(paused_by(&"x".repeat(1 << 20)).0, 413);
    assert_eq!(paused_by("{").0, 400);
    assert_eq!(http(port, "\x16\x03\x01 TLS\r\n\r\n").0, 400);
    assert_eq!(http(port, &format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 16))).0, 431);
    assert_eq!(http(port, "GET /metric HTTP/1.1\r\n\r\n").0, 404);
    assert_eq!(http(port, "POST /metrics HTTP/1.1\r\n\r\n").0, 405);
    assert_eq!(http(port, "GET /drain HTTP/1.1\r\n\r\n").0, 405);
    let wrong = "POST /drain HTTP/1.1\r\nauthorization: Bearer no\r\ncontent-length: 12\r\n\r\n{\"by\":\"eve\"}";
    assert_eq!(http(port, wrong).0, 401);
    // Whoever connects and says nothing does not keep the others out.
    let silent: Vec<_> = (0..20).map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    assert_eq!(operated.get("/healthz").0, 200);
    drop(silent);
    let lines = operated.process.stderr();
    assert!(!lines.contains(TOKEN), "the token is not logged");
}

#[test]
fn a_listener_without_a_token_changes_nothing() {
    let scene = Scene::new(broker(), "tokenless", 1, &[]);
    let port = free_port();
    let process = Process::start(&format!("[admin]\nlisten = \"127.0.0.1:{port}\"\n{}", scene.config("", SMALL)));
    let config = process.folder().path().join("deadletter.toml").display().to_string();
    eventually(SOON, "it listens", || (http(port, "GET /healthz HTTP/1.1\r\n\r\n").0 == 200).then_some(()));
    let drain = binary(["drain", "--config", &config]).output().unwrap();
    assert!(refused(&drain, 1).contains("has no admin.token"));
}

#[test]
fn a_port_that_is_in_use_is_named() {
    let scene = Scene::new(broker(), "in-use", 1, &[]);
    let operated = Operated::start(&scene.config("", SMALL));
    let second = fs::read_to_string(path(&operated)).unwrap();
    let mut second = Process::start_with(&second, &[("TEST_ADMIN_TOKEN", TOKEN)]);
    assert_eq!(second.wait(SOON).code(), Some(1), "{}", second.stderr());
    let said = second.stderr();
    let said = said.lines().last().unwrap_or_default();
    assert!(
        said.contains(&format!("cannot listen on 127.0.0.1:{}", operated.port)) && said.contains("in use"),
        "{said}"
    );
}

#[test]
fn a_process_that_is_not_there_is_said_to_be_away() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.toml");
    let config = |admin: &str| {
        fs::write(&file, format!("{admin}[kafka]\nbrokers = \"${{NOT_SET}}\"\n")).unwrap();
        binary(["status", "--config", &file.display().to_string()]).output().unwrap()
    };
    let port = free_port();
    let away = config(&format!("[admin]\nlisten = \"127.0.0.1:{port}\"\n"));
    assert!(refused(&away, 1).contains(&format!("nobody answers at http://127.0.0.1:{port}")));
    assert!(refused(&config(""), 64).contains("there is no [admin] in it"));
    assert!(
        refused(&config("[admin]\nlisten = \"9464\"\n"), 64).contains("admin.listen: must be an address and a port")
    );
}
