//! `sdr bench`, `emulate` and `info` as their users meet them: programs, their output and exit codes. Nothing here asks how
//! fast anything was.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

fn sdr(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sdr")).args(args).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// The document of a run that ends well.
fn json(args: &[&str]) -> Value {
    let out = sdr(args);
    assert_eq!(out.status.code(), Some(0), "{args:?}: {}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("one JSON document")
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

    /// The next line on its stderr.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).expect("text");
        line
    }

    #[cfg(unix)]
    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().expect("kill").success());
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server, and the address it listens on.
fn server(more: &[&str]) -> (Beside, String) {
    let mut server = Beside::start(&[&["bench", "server", "--listen", "127.0.0.1:0"], more].concat());
    let line = server.line();
    let at = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
    (server, at)
}

fn sorted(list: &str) -> Vec<String> {
    let mut names: Vec<_> = list.split_whitespace().map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn loopback_over_a_lossy_link_delivers_every_byte() {
    let link = "rtt=2ms,rate=200Mbit,loss=0.01,seed=3";
    let size = ["--size", "300001", "--count", "8", "--inflight", "2", "--interval", "20ms"];
    let common = ["bench", "loopback", "--fabric", "udp", "--scheme", "sr", "--link", link, "--json"];
    let document = json(&[&common[..], &size].concat());
    for (name, value) in [
        ("message_bytes", 300_001.0),
        ("messages", 8.0),
        ("corrupt_messages", 0.0),
        ("failed_messages", 0.0),
        ("slot_wait_s", 0.0),
        ("packets/parity", 0.0),
    ] {
        assert_eq!(number(&document, &format!("/{name}")), value, "{name}");
    }
    assert_eq!(
        (&document["scheme"], &document["fabric"], &document["link"]),
        (&"sr".into(), &"udp".into(), &link.into())
    );
    // 2 ms + 300,001 B at 200 Mbit/s
    assert!((number(&document, "/lower_bound_ms") - 14.000_04).abs() < 1e-6);
    assert!(number(&document, "/slowdown/mean") > 1.0);
    assert!(number(&document, "/packets/sent") >= 8.0 * 37.0);
    assert!(number(&document, "/packets/received") >= 8.0 * 37.0);
    let intervals = document["intervals"].as_array().expect("a list");
    let of_intervals: f64 = intervals.iter().map(|i| number(i, "/messages")).sum();
    assert_eq!(of_intervals, 8.0);

    let names = |path: &str| -> Vec<String> {
        document.pointer(path).and_then(Value::as_object).expect("an object").keys().cloned().collect()
    };
    let top = names("");
    for name in sorted(
        "scheme fabric link message_bytes messages corrupt_messages failed_messages elapsed_s goodput_gbps msg_rate \
         lower_bound_ms completion_ms slowdown packets slot_wait_s cpu_s peak_rss_bytes intervals",
    ) {
        assert!(top.contains(&name), "{name} in {top:?}");
    }
    assert_eq!(names("/completion_ms"), sorted("mean p50 p90 p99 p999 max"));
    assert_eq!(names("/slowdown"), sorted("mean p50 p99 p999"));
    assert_eq!(
        names("/packets"),
        sorted("sent received lost retransmitted parity duplicate late corrupt local_drops")
    );
}

#[test]
fn the_memory_fabric_delivers_every_byte_with_each_scheme() {
    for scheme in ["sr", "sr-nack"] {
        let link = "rtt=2ms,rate=200Mbit,loss=0.01,corrupt=1e-3,seed=3";
        let common =
            ["bench", "loopback", "--fabric", "memory", "--scheme", scheme, "--link", link, "--json"];
        let document =
            json(&[&common[..], &["--size", "300001", "--count", "8", "--inflight", "2"]].concat());
        for (name, value) in [("messages", 8.0), ("corrupt_messages", 0.0), ("failed_messages", 0.0)] {
            assert_eq!(number(&document, &format!("/{name}")), value, "{scheme}: {name}");
        }
        assert_eq!(document["fabric"], "memory");
    }
}

#[test]
fn many_messages_have_a_long_story_of_their_times() {
    let args = [
        "bench",
        "loopback",
        "--fabric",
        "memory",
        "--size",
        "4KiB",
        "--inflight",
        "16",
        "--count",
        "8000",
        "--json",
    ];
    let document = json(&args);
    assert_eq!((number(&document, "/messages"), number(&document, "/packets/late") >= 0.0), (8_000.0, true));
    assert!(number(&document, "/packets/received") >= 8_000.0);
}

#[test]
fn both_directions_several_connections_and_all_sizes() {
    let link = ["--link", "rtt=1ms,rate=400Mbit", "--json", "--count", "3", "--size", "100kB"];
    let run = |more: &[&str]| json(&[&["bench", "loopback"][..], &link, more].concat());
    let both = run(&["-b", "-P", "2"]);
    assert_eq!((number(&both, "/messages"), &both["direction"]), (12.0, &"both".into()));
    let back = run(&["-R", "--no-verify", "--channels", "1", "--mtu", "1000"]);
    assert_eq!((number(&back, "/messages"), &back["direction"]), (3.0, &"from the server".into()));
    assert_eq!(number(&back, "/packet_bytes"), 1_000.0);
    assert_eq!(number(&back, "/chunk_bytes"), 64_000.0);
    let paced = json(&["bench", "loopback", "--rate", "50Mbit", "--count", "1", "--size", "64KiB", "--json"]);
    assert_eq!((number(&paced, "/rate_gbps"), &paced["link"]), (0.05, &Value::Null));
    // 64 KiB at 50 Mbit/s, and a round trip that was measured. The last of eight packets leaves an eighth before that time,
    // for no wire holds it up.
    assert!(number(&paced, "/lower_bound_ms") > 10.48 && number(&paced, "/slowdown/mean") > 0.5);
    let out = sdr(&["bench", "loopback", "--lat", "--count", "5", "--size", "64", "--chunk", "1"]);
    let table = text(&out.stdout);
    for part in ["t_typical[usec]", "99.9% percentile[usec]", "#iterations", "--chunk 1B is 1 whole packet"] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
}

#[test]
fn a_server_takes_clients_at_once_and_after_one_was_killed() {
    let (mut server, at) = server(&[]);
    let link = "rtt=2ms,rate=100Mbit";
    let client = |more: &[&str]| {
        let common = ["bench", "client", &at, "--size", "64KiB", "--link", link, "--json"];
        Beside::start(&[&common[..], more].concat())
    };
    let mut doomed = client(&["--duration", "60s"]);
    let mut two = [client(&["--count", "20"]), client(&["--count", "20", "-R", "-P", "2"])];
    for (client, messages) in two.iter_mut().zip([20.0, 40.0]) {
        let stdout = client.child.stdout.take().expect("piped");
        let document: Value = serde_json::from_reader(stdout).expect("one JSON document");
        assert_eq!(number(&document, "/messages"), messages);
        assert_eq!(number(&document, "/failed_messages") + number(&document, "/corrupt_messages"), 0.0);
        assert_eq!(client.child.wait().expect("it ends").code(), Some(0));
    }
    doomed.child.kill().expect("it runs");
    doomed.child.wait().expect("it ends");
    // The served two, then the killed one, in the words of the typed error.
    let lines: Vec<_> = (0..3).map(|_| server.line()).collect();
    let lost: Vec<_> = lines.iter().filter(|line| line.contains("peer silent")).collect();
    assert_eq!(lost.len(), 1, "{lines:?}");
    assert_eq!(
        lines.iter().filter(|line| line.contains("20 messages") || line.contains("40 messages")).count(),
        2
    );
    let next =
        json(&["bench", "client", &at, "--size", "1MiB", "--count", "2", "--rate", "500Mbit", "--json"]);
    assert_eq!(number(&next, "/messages"), 2.0);
    assert!(server.child.try_wait().expect("a child").is_none(), "it goes on");
}

#[test]
fn a_server_for_one_ends_after_one() {
    let (mut server, at) = server(&["-1"]);
    json(&["bench", "client", &at, "--size", "4KiB", "--count", "2", "--json"]);
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn connecting_to_nothing_fails_in_one_line() {
    // Bound and silent: nobody else can take the port meanwhile.
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = silent.local_addr().expect("an address").to_string();
    let out = sdr(&["bench", "client", &at, "--count", "1"]);
    let stderr = text(&out.stderr);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(1), ""), "{stderr}");
    assert!(stderr.lines().count() == 1 && stderr.contains(&format!("no answer from {at}")), "{stderr}");
}

#[test]
fn emulate_relays_both_ways_and_tells() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    }
    let to = server.local_addr().expect("an address").to_string();
    let link = ["--link", "rtt=2ms,rate=10Mbit", "--json"];
    let mut relay =
        Beside::start(&[&["emulate", "--listen", "127.0.0.1:0", "--forward", &to][..], &link].concat());
    let line = relay.line();
    let at = line.split_whitespace().next().expect("an address").to_owned();
    let mut buf = [0; 64];
    client.send_to(b"there", &at).expect("sent");
    let (n, from) = server.recv_from(&mut buf).expect("relayed");
    assert_eq!(&buf[..n], b"there");
    server.send_to(b"and back", from).expect("sent");
    let (n, _) = client.recv_from(&mut buf).expect("relayed");
    assert_eq!(&buf[..n], b"and back");
    #[cfg(unix)]
    {
        relay.signal("-INT");
        let stdout = relay.child.stdout.take().expect("piped");
        let document: Value = serde_json::from_reader(stdout).expect("one JSON document");
        for (name, value) in
            [("/to_server/out", 1.0), ("/to_clients/out", 1.0), ("/clients", 1.0), ("/to_server/lost", 0.0)]
        {
            assert_eq!(number(&document, name), value, "{name}");
        }
        assert_eq!(relay.child.wait().expect("it ends").code(), Some(130));
    }
    let brief =
        ["emulate", "--listen", "127.0.0.1:0", "--forward", &to, "--link", "rtt=1ms", "--duration", "50ms"];
    let out = sdr(&brief);
    assert_eq!(out.status.code(), Some(0));
    assert!(text(&out.stdout).contains("#queue_drops"));
}

#[test]
fn info_says_what_there_is_and_why_not() {
    let document = json(&["info", "--json"]);
    assert_eq!(document["encryption"], "none");
    assert!(document["schemes"].as_array().expect("a list").contains(&"sr".into()));
    assert!(number(&document, "/cores") >= 1.0);
    for part in ["rdma", "gpu"] {
        assert!(document[part]["why"].is_string() || document[part]["why"].is_null());
    }
    assert!(number(&document, "/udp/recv_buffer_bytes") > 0.0 || document["udp"]["why"].is_string());
    assert!(text(&sdr(&["info"]).stdout).contains("Encryption    : none"));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_with_what_was_measured() {
    // Before the program has started well the signal ends it at once: then it is given longer.
    for wait in [1, 4, 10].map(Duration::from_secs) {
        let args = [
            "bench",
            "loopback",
            "--link",
            "rtt=1ms,rate=100Mbit",
            "--size",
            "10kB",
            "--duration",
            "60s",
            "--json",
        ];
        let mut run = Beside::start(&args);
        #[expect(clippy::disallowed_methods, reason = "a person waits before Ctrl-C")]
        std::thread::sleep(wait);
        run.signal("-INT");
        let mut stdout = run.child.stdout.take().expect("piped");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut text).expect("text");
        let code = run.child.wait().expect("it ends").code();
        if text.is_empty() {
            continue;
        }
        assert_eq!(code, Some(130));
        let document: Value = serde_json::from_str(&text).expect("one JSON document");
        assert_eq!((&document["interrupted"], number(&document, "/failed_messages")), (&true.into(), 0.0));
        assert!(number(&document, "/messages") >= 1.0);
        return;
    }
    panic!("the signal was never handled");
}

#[test]
fn bad_input_is_one_line_that_names_it() {
    let bench: &[(&[&str], &[&str])] = &[
        (&["--scheme", "magic"], &["\"magic\"", "choose auto"]),
        (&["--size", "0"], &["--size 0B", "1B to 32GiB"]),
        (&["--size", "33GiB"], &["--size 33GiB", "1B to 32GiB", "4194304 packets"]),
        (&["--size", "32GiB", "--inflight", "256"], &["GiB of memory"]),
        (&["--size", "2MiB", "--mtu", "1B", "--count", "1"], &["path", "packets"]),
        (&["--size", "much"], &["\"much\""]),
        (&["--mtu", "9000"], &["'9000'", "1B to 8KiB"]),
        (&["--link", "rtt=1ms,speed=3"], &["\"speed\"", "keys are"]),
        (&["--link", "rtt"], &["\"rtt\"", "key=value"]),
        (&["--count", "0"], &["'0'", "1 to"]),
        (&["--duration", "0s"], &["'0s'", "above 0"]),
        (&["--duration", "1"], &["\"1\"", "time"]),
        (&["--count", "1", "--duration", "1s"], &["--count 1", "--duration 1s", "one of them"]),
        (&["--inflight", "0"], &["'0'", "1 to 256"]),
        (&["--lat", "--inflight", "2"], &["--lat", "--inflight 2"]),
        (&["--channels", "0"], &["'0'", "1 to 16"]),
        (&["-b", "-R"], &["-b and -R"]),
        (&["-a", "--size", "1MiB"], &["-a", "--size 1MiB"]),
        (&["--fabric", "carrier-pigeon"], &["carrier-pigeon", "udp"]),
        (&["--rate", "0Gbit"], &["\"0Gbit\"", "above 0"]),
        (&["--interval", "0s"], &["'0s'", "above 0"]),
    ];
    let emulate: &[(&[&str], &[&str])] = &[
        (&[], &["--listen", "--forward", "--link"]),
        (
            &["--listen", "nowhere:x", "--forward", "127.0.0.1:1", "--link", "rtt=1ms"],
            &["\"nowhere:x\"", "host:port"],
        ),
        (&["--listen", "127.0.0.1:0", "--forward", "127.0.0.1:1", "--link", "loss=2"], &["loss", "\"2\""]),
    ];
    let client: &[(&[&str], &[&str])] =
        &[(&[], &["<ADDR>"]), (&["there:99999"], &["\"there:99999\"", "host:port"])];
    let all = [(&["bench", "loopback"][..], bench), (&["emulate"], emulate), (&["bench", "client"], client)];
    for (command, cases) in all {
        for (args, parts) in cases {
            let out = sdr(&[command, *args].concat());
            let stderr = text(&out.stderr);
            assert_eq!((text(&out.stdout), stderr.lines().count()), ("", 1), "{args:?}: {stderr}");
            assert!(parts.iter().all(|part| stderr.contains(part)), "{args:?}: {parts:?} in {stderr}");
            let work = stderr.contains("the path takes");
            assert_eq!(out.status.code(), Some(if work { 1 } else { 2 }), "{args:?}: {stderr}");
        }
    }
}

#[test]
fn an_address_that_is_taken_or_unknown_fails() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("an address").to_string();
    let cases: [(&[&str], &[&str]); 3] = [
        (&["bench", "server", "--listen", &at], &["cannot listen on", &at]),
        (
            &["emulate", "--listen", &at, "--forward", "127.0.0.1:1", "--link", "rtt=1ms"],
            &["cannot listen on", &at],
        ),
        (&["bench", "client", "no-such-host.invalid"], &["no-such-host.invalid", "resolved"]),
    ];
    for (args, parts) in cases {
        let out = sdr(args);
        let stderr = text(&out.stderr);
        assert_eq!((out.status.code(), stderr.lines().count()), (Some(1), 1), "{args:?}: {stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{args:?}: {stderr}");
    }
}
