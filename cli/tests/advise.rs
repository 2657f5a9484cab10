//! `sdr advise` as its users meet it, and its ranking against the simulator's.

use serde_json::Value;
use std::process::{Command, Output};

fn sdr(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sdr")).arg("advise").args(args).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn json(args: &[&str]) -> Value {
    let out = sdr(&[&["--json"], args].concat());
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), ""), "{args:?}");
    serde_json::from_slice(&out.stdout).expect("one JSON document")
}

fn schemes(document: &Value) -> &[Value] {
    document["schemes"].as_array().expect("schemes")
}

fn of<'a>(document: &'a Value, name: &str) -> &'a Value {
    schemes(document).iter().find(|s| s["scheme"] == name).unwrap_or_else(|| panic!("{name} in {document}"))
}

#[test]
fn json_has_exactly_its_names() {
    let names =
        |value: &Value| -> Vec<String> { value.as_object().expect("an object").keys().cloned().collect() };
    let sorted = |list: &str| {
        let mut names: Vec<_> = list.split_whitespace().map(str::to_owned).collect();
        names.sort();
        names
    };
    let document = json(&["--size", "64KiB", "--check", "2"]);
    let all = "message_bytes packet_bytes rate_bps rtt_ms loss burst lower_bound_ms tie schemes check";
    assert_eq!(names(&document), sorted(all));
    let times = "mean_ms p999_ms slowdown wire_extra";
    let scheme = "rank scheme fallback_probability basis basis_samples basis_reason why simulated";
    assert_eq!(names(&schemes(&document)[0]), sorted(&format!("{scheme} {times}")));
    assert_eq!(names(&schemes(&document)[0]["simulated"]), sorted(times));
    assert_eq!(names(&schemes(&document)[0]["slowdown"]), sorted("mean p999 mean_error"));
    assert_eq!(names(&document["check"]), sorted("samples agrees disagreements"));
}

#[test]
fn the_best_comes_first_and_says_why() {
    let document = json(&["--loss", "1e-3", "--size", "8MiB"]);
    let ranks: Vec<_> = schemes(&document).iter().map(|s| s["rank"].as_u64().expect("a rank")).collect();
    assert!(ranks[0] == 1 && ranks.is_sorted(), "{ranks:?}");
    let last = schemes(&document).last().expect("schemes");
    assert_eq!((&last["scheme"], &last["basis"]), (&"sr".into(), &"model".into()));
    assert_eq!(of(&document, "hybrid")["rank"], 1);
    // 3.6 x 25.2 ms; a whole timeout and a little more, that is.
    let why = last["why"].as_str().expect("a sentence");
    assert!(why.contains("2.62 round trips in the mean"), "{why}");
    let why = of(&document, "ec:32,8")["why"].as_str().expect("a sentence");
    assert!(why.contains("25.0 % more to send") && why.contains("more than 8 of 40"), "{why}");
}

#[test]
fn where_a_formula_does_not_hold_it_says_so() {
    let args = ["--loss", "1e-2", "--burst", "16", "--size", "1MiB"];
    let document = json(&args);
    assert_eq!(of(&document, "hybrid")["basis"], "model");
    let code = of(&document, "ec:32,8");
    assert_eq!(code["basis"], "simulation");
    assert!(code["basis_reason"].as_str().is_some_and(|why| why.contains("spread")), "{code}");
    let table = sdr(&args);
    for part in ["#rank", "t_p99.9[ms]", "Simulated shortly, as", "xor:32,8 (1000 messages)", " 1. hybrid: "]
    {
        assert!(text(&table.stdout).contains(part), "{part} in\n{}", text(&table.stdout));
    }
}

#[test]
fn what_codes_send_is_what_the_simulator_counts() {
    for size in ["16KiB", "64KiB", "132KiB", "1MiB"] {
        let document = json(&["--size", size, "--loss", "1e-6", "--check", "2"]);
        for scheme in schemes(&document) {
            let name = scheme["scheme"].as_str().expect("a name");
            let [predicted, simulated] = [&scheme["wire_extra"], &scheme["simulated"]["wire_extra"]]
                .map(|w| w.as_f64().expect("a number"));
            assert!(
                !name.contains(':') || (predicted - simulated).abs() < 1e-3,
                "{size} {name}: {predicted} {simulated}"
            );
        }
    }
}

#[test]
fn bad_input_is_one_line_that_names_it() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--loss", "1"], &["\"1\"", "[0, 1)"]),
        (&["--loss", "0.999"], &["--loss 0.999", "0 to 0.99"]),
        (&["--size", "0"], &["--size 0B", "at least one byte"]),
        (&["--size", "17GiB"], &["--size 17GiB", "1B to 16GiB"]),
        (&["--rate", "0Gbit"], &["\"0Gbit\"", "above 0"]),
        (&["--burst", "0.5"], &["'0.5'", "1 to 1e9"]),
        (&["--rtt", "1ms", "--distance", "1km"], &["--rtt 1ms", "one of them"]),
        (&["--check", "1"], &["'1'", "2 to 1000000"]),
        (&["--scheme", "sr"], &["--scheme"]),
    ];
    for (args, parts) in cases {
        let out = sdr(args);
        let stderr = text(&out.stderr);
        assert_eq!((out.status.code(), stderr.lines().count()), (Some(2), 1), "{args:?}: {stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{args:?}: {parts:?} in {stderr}");
        assert!(stderr.ends_with("; see 'sdr advise --help'\n"), "{stderr}");
    }
}

/// Ranks and the simulator's of `samples` messages, in each cell of the grid.
fn agrees(size: &str, samples: &str) {
    for loss in ["1e-5", "1e-3", "1e-2"] {
        for burst in ["1", "16"] {
            let args = ["--size", size, "--loss", loss, "--burst", burst, "--check", samples];
            let out = sdr(&args);
            assert_eq!(out.status.code(), Some(0), "{args:?}: {}\n{}", text(&out.stderr), text(&out.stdout));
            assert!(text(&out.stdout).contains("the simulator has the same order"));
        }
    }
}

#[test]
fn ranks_are_the_simulators_at_128_kib() {
    agrees("128KiB", "100");
}

#[test]
fn ranks_are_the_simulators_at_8_mib() {
    agrees("8MiB", "100");
}

/// Longer messages vary less: fewer of them show as much.
#[test]
fn ranks_are_the_simulators_at_128_mib() {
    agrees("128MiB", "20");
}

#[test]
#[ignore = "minutes: cargo test -p sdr-cli --test advise -- --ignored"]
fn ranks_are_the_simulators_at_128_mib_in_full() {
    agrees("128MiB", "100");
}
