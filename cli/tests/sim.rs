//! `sdr sim` as its users meet it: the program, its output and its exit code.

use serde_json::Value;
use std::process::{Command, Output};

fn sdr(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sdr")).args(args).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn json(args: &[&str]) -> Value {
    let out = sdr(&[&["sim", "--json"], args].concat());
    assert_eq!(out.status.code(), Some(0), "{args:?}: {}", text(&out.stderr));
    assert_eq!(text(&out.stderr), "");
    serde_json::from_slice(&out.stdout).expect("one JSON document")
}

fn number(document: &Value, path: &str) -> f64 {
    document.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {document}"))
}

#[test]
fn json_has_exactly_its_names() {
    let document = json(&["--samples", "2", "--size", "64KiB"]);
    let names = |path: &str| -> Vec<String> {
        document.pointer(path).and_then(Value::as_object).expect("an object").keys().cloned().collect()
    };
    let sorted = |list: &str| {
        let mut names: Vec<_> = list.split_whitespace().map(str::to_owned).collect();
        names.sort();
        names
    };
    assert_eq!(
        names(""),
        sorted(
            "scheme explanation link message_bytes packet_bytes samples seed threads mean_ms p50_ms p99_ms p999_ms max_ms \
             lower_bound_ms slowdown packets elapsed_s packets_per_second packets_per_second_per_thread events_per_second \
             interrupted"
        )
    );
    assert_eq!(names("/slowdown"), sorted("mean p50 p99 p999 max"));
    assert_eq!(
        names("/packets"),
        sorted("sent received lost retransmitted parity duplicate late corrupt local_drops control")
    );
}

#[test]
fn without_loss_the_bound_is_met() {
    let link = "rtt=25ms,rate=400Gbit";
    let document = json(&["--link", link, "--size", "128MiB", "--samples", "2", "--seed", "5"]);
    // 25 ms + 2^27 * 8 / 4e11 s
    assert!((number(&document, "/lower_bound_ms") - 27.684_354_56).abs() < 1e-6);
    for (time, slowdown) in
        [("mean_ms", "mean"), ("p50_ms", "p50"), ("p99_ms", "p99"), ("p999_ms", "p999"), ("max_ms", "max")]
    {
        let slowdown = number(&document, &format!("/slowdown/{slowdown}"));
        assert!((1.0..1.001).contains(&slowdown), "{slowdown}");
        let time = number(&document, &format!("/{time}"));
        assert!((time - slowdown * 27.684_354_56).abs() < 1e-4, "{time} ms, {slowdown}");
    }
    let counts = [("sent", 65_536.0), ("received", 65_536.0), ("lost", 0.0), ("retransmitted", 0.0)];
    for (name, count) in
        counts.into_iter().chain([("duplicate", 0.0), ("corrupt", 0.0), ("local_drops", 0.0)])
    {
        assert_eq!(number(&document, &format!("/packets/{name}")), count, "{name}");
    }
    assert_eq!((&document["scheme"], &document["link"]), (&"sr".into(), &link.into()));
    assert_eq!((&document["seed"], &document["interrupted"]), (&5.into(), &false.into()));
    assert_eq!((&document["message_bytes"], &document["packet_bytes"]), (&(128 << 20).into(), &4096.into()));
}

#[test]
fn a_seed_gives_the_same_result_on_any_number_of_threads() {
    let on = |threads: &str, seed: &str| {
        let link = ["--rate", "10Gbit", "--rtt", "2ms", "--loss", "1e-2", "--burst", "4", "--jitter", "10us"];
        let rest = ["--size", "1MiB", "--samples", "30", "--threads", threads, "--seed", seed];
        let mut document = json(&[&link[..], &rest[..]].concat());
        let map = document.as_object_mut().expect("an object");
        assert_eq!(map["threads"].to_string(), threads);
        let of_the_run = ["packets_per_second", "packets_per_second_per_thread", "events_per_second"];
        for name in of_the_run.into_iter().chain(["threads", "elapsed_s", "seed"]) {
            assert!(map.remove(name).is_some());
        }
        document
    };
    assert_eq!(on("1", "7"), on("2", "7"));
    assert_ne!(on("1", "7"), on("1", "8"));
}

#[test]
fn distance_stands_for_the_round_trip() {
    let few = ["--samples", "1", "--size", "4KiB", "--rate", "1Tbit", "--loss", "0", "--distance", "3750km"];
    let vacuum = number(&json(&few), "/lower_bound_ms");
    assert!((vacuum - 25.017_340).abs() < 1e-4, "{vacuum}");
    let fibre = number(&json(&[&few[..], &["--medium", "fibre"]].concat()), "/lower_bound_ms");
    assert!((fibre - 36.725_407).abs() < 1e-4, "{fibre}");
}

#[test]
fn eight_gib_are_simulated_without_payload() {
    let document = json(&["--size", "8GiB", "--samples", "1"]);
    assert!(number(&document, "/packets/received") >= 2_097_152.0);
}

#[test]
fn bad_input_is_one_line_that_names_it() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--scheme", "magic"], &["\"magic\"", "choose auto, sr, sr-nack"]),
        (&["--loss", "1"], &["\"1\"", "[0, 1)"]),
        (&["--loss", "-0.1"], &["\"-0.1\"", "[0, 1)"]),
        (&["--loss", "nan"], &["\"nan\"", "[0, 1)"]),
        (&["--size", "0"], &["--size 0B", "1B to 16GiB"]),
        (&["--size", "17GiB"], &["--size 17GiB", "1B to 16GiB", "4194304 packets"]),
        (&["--size", "8MiB", "--mtu", "1B"], &["--size 8MiB", "1B to 4MiB"]),
        (&["--size", "big"], &["\"big\"", "4KiB"]),
        (&["--mtu", "0"], &["'0'", "1B to 1MiB"]),
        (&["--mtu", "2MiB"], &["'2MiB'", "1B to 1MiB"]),
        (&["--rate", "0Gbit"], &["\"0Gbit\"", "above 0"]),
        (&["--samples", "0"], &["'0'", "1 to 1000000"]),
        (&["--samples", "-3"], &["'-3'", "1 to 1000000"]),
        (&["--samples", "1000001"], &["'1000001'", "1 to 1000000"]),
        (&["--threads", "0"], &["'0'", "1 to 1024"]),
        (&["--burst", "0.5"], &["'0.5'", "1 to 1e9"]),
        (&["--loss", "0.9", "--burst", "4"], &["0.9", "4", "0.8"]),
        (&["--rtt", "25ms", "--distance", "3750km"], &["25ms", "3750km", "one of them"]),
        (&["--medium", "fibre"], &["--distance"]),
        (&["--alpha", "-1"], &["'-1'", "0 to 1000"]),
        (&["--link", "rtt=1ms"], &["rate=400Gbit"]),
        (&["--link", "rtt=1ms,speed=3"], &["\"speed\"", "keys are"]),
        (&["--link", "rtt=1ms,rate=1Gbit", "--loss", "0.1"], &["--loss 0.1", "one of them"]),
        (&["--link", "rtt=1ms,rate=1Gbit,seed=3", "--seed", "4"], &["seed=3", "--seed 4"]),
        (&["--rate", "1bit"], &["1bit", "1000.000 s"]),
        (&["--rtt", "0s", "--size", "1", "--rate", "1000Tbit"], &["1 ns"]),
        (&["--los", "0.1"], &["--los", "--loss"]),
        (&["--size"], &["--size"]),
        (&["more"], &["more"]),
    ];
    for (args, parts) in cases {
        let out = sdr(&[&["sim"], *args].concat());
        let stderr = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {stderr}");
        assert_eq!((text(&out.stdout), stderr.lines().count()), ("", 1), "{args:?}: {stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{args:?}: {parts:?} in {stderr}");
        assert!(stderr.ends_with("; see 'sdr sim --help'\n"), "{stderr}");
    }
}

#[test]
fn an_unknown_command_is_wrong_usage() {
    let out = sdr(&["fly"]);
    assert_eq!(out.status.code(), Some(2));
    assert_eq!(text(&out.stderr), "sdr: unrecognized subcommand 'fly'; see 'sdr --help'\n");
}

#[test]
fn help_goes_to_stdout() {
    for args in [&["--help"][..], &["sim", "--help"], &["sim", "-h"], &["--version"]] {
        let out = sdr(args);
        assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), ""), "{args:?}");
        assert!(!out.stdout.is_empty(), "{args:?}");
    }
    assert!(text(&sdr(&["--help"]).stdout).contains("\n  sdr sim "));
    // Without a command it is what was missing.
    assert!(text(&sdr(&[]).stderr).contains("\n  sdr sim "));
    assert!(text(&sdr(&["sim", "--help"]).stdout).contains("nearest rank"));
}

#[test]
fn the_table_says_what_its_tail_is_worth() {
    let table = |samples: &str| {
        let out = sdr(&["sim", "--size", "4KiB", "--samples", samples]);
        assert_eq!(out.status.code(), Some(0));
        text(&out.stdout).to_owned()
    };
    let few = table("200");
    for part in ["#bytes", "t_p99.9[ms]", "slowdown", "Mpacket/s", "With 200 samples p99.9 is the maximum."] {
        assert!(few.contains(part), "{part} in\n{few}");
    }
    assert!(!table("1000").contains("the maximum"));
}

#[test]
fn a_sample_that_fails_is_exit_code_1() {
    let out = sdr(&["sim", "--loss", "0.9999", "--size", "64KiB", "--samples", "1"]);
    assert_eq!(out.status.code(), Some(1));
    let stderr = text(&out.stderr);
    assert!(
        out.stdout.is_empty() && stderr.lines().count() == 1 && stderr.contains("peer silent"),
        "{stderr}"
    );
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_with_what_was_measured() {
    use std::process::Stdio;
    use std::time::Duration;
    // Before the program has started well the signal ends it at once: then it is given longer.
    for wait in [1, 4, 16].map(Duration::from_secs) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sdr"));
        command.args(["sim", "--json", "--samples", "1000000"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the program starts");
        #[expect(clippy::disallowed_methods, reason = "a person waits before Ctrl-C")]
        std::thread::sleep(wait);
        let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
        assert!(kill.success());
        let out = child.wait_with_output().expect("the program ends");
        let Some(code) = out.status.code() else { continue };
        assert_eq!(code, 130, "{}", text(&out.stderr));
        let document: Value = serde_json::from_slice(&out.stdout).expect("one JSON document");
        assert_eq!(document["interrupted"], true);
        let samples = number(&document, "/samples");
        assert!((1.0..1e6).contains(&samples), "{samples} samples");
        assert!(number(&document, "/slowdown/mean") >= 1.0);
        return;
    }
    panic!("the signal was never handled");
}

#[test]
fn connections_that_share_a_link_are_compared() {
    let link = ["--rate", "1Gbit", "--rtt", "5ms", "--queue", "1bdp"];
    let out =
        sdr(&[&["sim", "flows", "--flows", "2", "--duration", "1s", "--compare", "--json"], &link[..]]
            .concat());
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    let document: serde_json::Value = serde_json::from_str(&text).expect("one document");
    let run = |i: usize, key: &str| document["runs"][i][key].as_f64().expect("a number");
    assert_eq!(
        (&document["runs"][0]["congestion"], &document["runs"][1]["congestion"]),
        (&"delay".into(), &"fixed".into())
    );
    assert!(run(0, "utilisation") > 0.9 && run(0, "jain") > 0.9 && run(0, "queue_loss") < 0.01, "{text}");
    assert!(run(1, "queue_loss") > 0.2, "{text}");
}

#[test]
fn flows_that_cannot_be_are_refused() {
    for (args, line) in [
        (&["--queue", "0bdp"][..], "0.001bdp"),
        (&["--flows", "0"], "1 to 64"),
        (&["--duration", "1ms"], "at least 40 round trips"),
        (&["--congestion", "none"], "fixed, delay"),
    ] {
        let out = sdr(&[&["sim", "flows"], args].concat());
        let stderr = String::from_utf8(out.stderr).expect("UTF-8");
        assert_eq!(out.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(line) && stderr.ends_with("see 'sdr sim flows --help'\n"), "{stderr}");
    }
}
