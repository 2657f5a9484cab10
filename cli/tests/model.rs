//! `sdr model` as its users meet it: the program, its output and its exit code.

use serde_json::Value;
use std::process::{Command, Output};

fn sdr(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sdr")).args(args).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn json(args: &[&str]) -> Value {
    let out = sdr(&[&["model", "--json"], args].concat());
    assert_eq!(out.status.code(), Some(0), "{args:?}: {}", text(&out.stderr));
    assert_eq!(text(&out.stderr), "");
    serde_json::from_slice(&out.stdout).expect("one JSON document")
}

fn number(document: &Value, path: &str) -> f64 {
    document.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {document}"))
}

#[test]
fn json_has_exactly_its_names() {
    let sorted = |list: &str| {
        let mut names: Vec<_> = list.split_whitespace().map(str::to_owned).collect();
        names.sort();
        names
    };
    let message = "scheme message_bytes packet_bytes rate_bps rtt_ms loss burst mean_ms p50_ms p99_ms p999_ms \
                   lower_bound_ms slowdown fallback_probability extra_bytes";
    let document = json(&["--size", "64KiB"]);
    let names = |document: &Value, path: &str| -> Vec<String> {
        document.pointer(path).and_then(Value::as_object).expect("an object").keys().cloned().collect()
    };
    assert_eq!(names(&document, ""), sorted(message));
    assert_eq!(names(&document, "/slowdown"), sorted("mean p50 p99 p999"));
    let ring = json(&["--size", "64KiB", "--allreduce", "4"]);
    assert_eq!(names(&ring, ""), sorted(&format!("{message} allreduce")));
    assert_eq!(names(&ring, "/allreduce"), sorted("sites rounds mean_bound_ms samples"));
}

/// 400 Gbit/s, 25 ms, 128 MiB: the defaults.
#[test]
fn slowdowns_are_those_of_the_figures() {
    for (args, name, wanted) in [
        (&["--scheme", "sr"][..], "mean", 1.74),
        (&["--loss", "1e-2"], "mean", 6.36),
        (&["--scheme", "sr-nack"], "mean", 1.238),
        (&["--scheme", "ec:32,8"], "mean", 1.024),
        (&["--scheme", "ec:32,8"], "p999", 1.024),
        (&["--scheme", "hybrid", "--loss", "1e-2"], "mean", 1.003),
        (&["--scheme", "hybrid", "--loss", "1e-2"], "p999", 1.005),
        (&["--size", "8GiB"], "mean", 1.34),
        (&["--size", "8GiB", "--distance", "1500km", "--medium", "vacuum"], "mean", 1.12),
    ] {
        let document = json(args);
        let slowdown = number(&document, &format!("/slowdown/{name}"));
        assert!((slowdown / wanted - 1.0).abs() < 0.01, "{args:?}: {slowdown}, wanted {wanted}");
        let bound = number(&document, "/lower_bound_ms");
        assert!((number(&document, &format!("/{name}_ms")) / bound - slowdown).abs() < 1e-9);
    }
    // 25 ms + 2^27 * 8 / 4e11 s
    assert!((number(&json(&[]), "/lower_bound_ms") - 27.684_354_56).abs() < 1e-9);
    let fallback = number(&json(&["--scheme", "xor:32,8", "--loss", "1e-3"]), "/fallback_probability");
    assert!((fallback / 0.079 - 1.0).abs() < 0.01, "{fallback}");
}

#[test]
fn without_loss_the_bound_is_met() {
    for scheme in ["sr", "sr-nack", "hybrid"] {
        let document = json(&["--scheme", scheme, "--loss", "0", "--burst", "4", "--size", "100001B"]);
        for name in ["mean", "p50", "p99", "p999"] {
            assert!((number(&document, &format!("/slowdown/{name}")) - 1.0).abs() < 1e-12, "{document}");
        }
        assert_eq!(number(&document, "/fallback_probability"), 0.0);
    }
}

#[test]
fn an_allreduce_is_the_same_each_time() {
    let ring = ["--allreduce", "4", "--loss", "1e-3", "--scheme"];
    let with = |scheme: &str| json(&[&ring[..], &[scheme]].concat());
    let (repeat, code) = (with("sr"), with("ec:32,8"));
    assert_eq!(repeat, with("sr"));
    let ratio = number(&repeat, "/p999_ms") / number(&code, "/p999_ms");
    assert!((ratio / 4.9 - 1.0).abs() < 0.1, "{ratio}");
    assert_eq!(number(&repeat, "/allreduce/rounds"), 6.0);
    assert!(number(&repeat, "/mean_ms") > number(&repeat, "/allreduce/mean_bound_ms"));
    // Six rounds of 32 MiB.
    assert!((number(&repeat, "/lower_bound_ms") - 6.0 * (25.0 + 0.671_088_64)).abs() < 1e-6);
}

#[test]
fn the_table_has_what_the_document_has() {
    let out = sdr(&["model", "--scheme", "hybrid", "--loss", "1e-2", "--burst", "16"]);
    assert_eq!(out.status.code(), Some(0));
    let table = text(&out.stdout);
    for part in
        ["hybrid", "400Gbit", "bursts of 16", "128MiB in 32768", "t_p99.9[ms]", "slowdown", "Fallback"]
    {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    let ring = sdr(&["model", "--allreduce", "2", "--size", "64KiB"]);
    let table = text(&ring.stdout);
    assert!(table.contains("2 sites") && table.contains("Mean at least"), "{table}");
}

#[test]
fn bad_input_is_one_line_that_names_it() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--scheme", "magic"], &["\"magic\"", "sr-nack, ec:K,M, xor:K,M or hybrid"]),
        (&["--scheme", "ec:32"], &["\"ec:32\"", "ec:32,8"]),
        (&["--scheme", "ec:0,8"], &["k = 0", "1 to 224"]),
        (&["--scheme", "ec:225,8"], &["k = 225", "1 to 224"]),
        (&["--scheme", "ec:32,0"], &["m = 0", "1 to 208"]),
        (&["--scheme", "ec:224,17"], &["m = 17", "1 to 16"]),
        (&["--scheme", "xor:8,9"], &["m = 9", "1 to 8"]),
        (&["--scheme", "xor:32,8", "--burst", "4"], &["--scheme xor:32,8", "--burst 4", "independent"]),
        (&["--loss", "1"], &["\"1\"", "[0, 1)"]),
        (&["--loss", "-0.1"], &["\"-0.1\"", "[0, 1)"]),
        (&["--loss", "0.999"], &["--loss 0.999", "0 to 0.99"]),
        (&["--loss", "0.9", "--burst", "4"], &["0.9", "4", "burst"]),
        (&["--burst", "0.5"], &["'0.5'", "1 to 1e9"]),
        (&["--size", "0"], &["--size 0B", "at least one byte"]),
        (&["--size", "5GiB", "--mtu", "1B"], &["--size 5GiB", "--mtu 1B", "4294967296 packets"]),
        (&["--mtu", "0"], &["'0'", "1B to 1MiB"]),
        (&["--rate", "0Gbit"], &["\"0Gbit\"", "above 0"]),
        (&["--rate", "1bit", "--size", "1GiB"], &["--size 1GiB", "--rate 1bit", "1000000 s"]),
        (&["--allreduce", "1"], &["'1'", "2 to 64"]),
        (&["--rtt", "25ms", "--distance", "3750km"], &["25ms", "3750km", "one of them"]),
        (&["--medium", "fibre"], &["--distance"]),
        (&["--samples", "3"], &["--samples"]),
    ];
    for (args, parts) in cases {
        let out = sdr(&[&["model"], *args].concat());
        let stderr = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {stderr}");
        assert_eq!((text(&out.stdout), stderr.lines().count()), ("", 1), "{args:?}: {stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{args:?}: {parts:?} in {stderr}");
        assert!(stderr.ends_with("; see 'sdr model --help'\n"), "{stderr}");
    }
}

#[test]
fn help_has_an_example() {
    let out = sdr(&["model", "--help"]);
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), ""));
    assert!(text(&out.stdout).contains("\n  sdr model --scheme "));
}
