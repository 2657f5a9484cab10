//! What `sdr` says when a run does not end as it should. Nothing here asks how fast anything was.

#![cfg(unix)]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

fn sdr(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sdr")).args(args).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn number(document: &Value, path: &str) -> f64 {
    document.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {document}"))
}

/// A program that runs beside the test, and is ended with it.
struct Beside {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Beside {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sdr"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        Self { child, stderr }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).expect("text");
        line
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().expect("kill").success());
    }

    /// Exit code, stdout and the rest of stderr.
    fn end(mut self) -> (Option<i32>, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        let mut stdout = self.child.stdout.take().expect("piped");
        stdout.read_to_string(&mut out).expect("text");
        self.stderr.read_to_string(&mut err).expect("text");
        (self.child.wait().expect("it ends").code(), out, err)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn server() -> (Beside, String) {
    let mut server = Beside::start(&["bench", "server", "--listen", "127.0.0.1:0"]);
    let line = server.line();
    let at = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
    (server, at)
}

#[expect(clippy::disallowed_methods, reason = "a run is ended in its middle")]
fn a_while() {
    std::thread::sleep(Duration::from_secs(2));
}

/// Message numbers are those of the run, not what the connection counts with.
fn no_long_numbers(text: &str) {
    let long = text.split(|c: char| !c.is_ascii_digit()).find(|word| word.len() > 9);
    assert_eq!(long, None, "{text}");
}

#[test]
fn a_server_that_stops_is_said_to_have_stopped() {
    for (signal, words) in [("-INT", "the server stopped"), ("-KILL", "peer silent")] {
        let (server, at) = server();
        let args = ["--size", "100kB", "--inflight", "3", "--rate", "20Mbit", "--duration", "60s", "--json"];
        let client = Beside::start(&[&["bench", "client", &at][..], &args].concat());
        a_while();
        server.signal(signal);
        let (code, out, err) = client.end();
        assert_eq!((code, err.lines().count()), (Some(1), 1), "{err}");
        let document: Value = serde_json::from_str(&out).expect("one JSON document");
        let error = document["error"].as_str().expect("a reason");
        println!("{error}");
        assert!(error.contains(words) && error.contains("unfinished"), "{error}");
        assert!(!error.contains("Normal"), "{error}");
        no_long_numbers(error);
        no_long_numbers(&err);
        // What only the server knew is not known.
        assert!(number(&document, "/messages") >= 1.0 && number(&document, "/packets/sent") >= 1.0);
        for name in ["received", "lost", "duplicate", "late"] {
            assert_eq!(document["packets"][name], Value::Null, "{name}");
        }
    }
}

#[test]
fn what_is_not_known_is_not_shown_as_a_number() {
    let (server, at) = server();
    let args = ["--size", "100kB", "--rate", "20Mbit", "--duration", "60s"];
    let client = Beside::start(&[&["bench", "client", &at][..], &args].concat());
    a_while();
    server.signal("-INT");
    let (code, out, _) = client.end();
    assert_eq!(code, Some(1));
    assert!(out.contains("#received") && out.contains("unknown"), "{out}");
}

/// Packets of the warm-up that come twice are none of those that are measured.
#[test]
fn no_more_is_received_than_was_sent() {
    let (_server, at) = server();
    let link = "rtt=5ms,rate=200Mbit,jitter=2ms,seed=3";
    let mut relay = Beside::start(&["emulate", "--listen", "127.0.0.1:0", "--forward", &at, "--link", link]);
    let line = relay.line();
    let to = line.split_whitespace().next().expect("an address").to_owned();
    for _ in 0..5 {
        let args = ["--size", "64KiB", "--inflight", "8", "--warmup", "40", "--count", "1", "--json"];
        let more = ["--rate", "100Mbit", "--scheme", "sr-nack"];
        let out = sdr(&[&["bench", "client", &to][..], &args, &more].concat());
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let document: Value = serde_json::from_slice(&out.stdout).expect("one JSON document");
        let (sent, received) = (number(&document, "/packets/sent"), number(&document, "/packets/received"));
        assert!(received <= sent, "{received} of {sent}: {}", document["packets"]);
    }
}

#[test]
fn a_link_too_slow_for_the_handshake_is_refused() {
    for (link, part) in [("rtt=10ms,rate=20kbit", "rate"), ("rtt=8s,rate=1Gbit", "rtt")] {
        for command in [&["bench", "loopback"][..], &["bench", "client", "127.0.0.1:1"]] {
            let out = sdr(&[command, &["--link", link, "--count", "1"]].concat());
            let stderr = text(&out.stderr);
            assert_eq!((out.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
            assert!(stderr.contains(part) && stderr.contains("10.000 s"), "{stderr}");
        }
    }
    // Not far above the bound it works.
    let link = "rtt=10ms,rate=400kbit";
    let out = sdr(&["bench", "loopback", "--link", link, "--count", "1", "--size", "1kB", "--json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
}

#[test]
fn an_interrupted_run_without_results_is_a_document_all_the_same() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = silent.local_addr().expect("an address").to_string();
    for list in [false, true] {
        let all: &[&str] = if list { &["-a"] } else { &[] };
        let run = Beside::start(&[&["bench", "client", &at, "--json"], all].concat());
        a_while();
        run.signal("-INT");
        let (code, out, err) = run.end();
        assert_eq!(code, Some(130), "{err}");
        let document: Value = serde_json::from_str(&out).expect("one JSON document");
        let one = if list { &document[0] } else { &document };
        assert_eq!((number(one, "/messages"), &one["interrupted"]), (0.0, &true.into()));
    }
}

#[test]
fn no_command_is_wrong_usage() {
    for args in [&[][..], &["bench"]] {
        let out = sdr(args);
        assert_eq!((out.status.code(), text(&out.stdout)), (Some(2), ""));
        assert!(text(&out.stderr).contains("Usage:"), "{}", text(&out.stderr));
    }
    assert_eq!(sdr(&["--help"]).status.code(), Some(0));
}

#[test]
fn the_columns_are_explained() {
    for command in ["loopback", "client"] {
        let out = sdr(&["bench", command, "--help"]);
        for name in ["#late", "#local_drops", "#duplicate", "#lost"] {
            assert!(text(&out.stdout).contains(&format!("{name} ")), "{name} of {command}");
        }
    }
}
