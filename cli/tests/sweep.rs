//! `sdr sim run` as its users meet it: plans, rows, interruptions and verdicts.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Columns that are of the run and not of the cell.
const OF_THE_RUN: usize = 3;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdr"));
    command.args(["sim", "run"]).args(args);
    command
}

fn run(args: &[&str]) -> Output {
    command(args).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// An empty folder of a test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sweep").join(name);
    _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Writes a file and gives its path.
fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("UTF-8").to_owned()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("UTF-8").to_owned()
}

/// The rows of a text without its header, and without what differs from run to run.
fn rows(text: &str) -> Vec<String> {
    let lasting = |line: &str| line.rsplitn(OF_THE_RUN + 1, ',').last().expect("a field").to_owned();
    text.lines().skip(1).map(lasting).collect()
}

fn rows_of(file: &str) -> Vec<String> {
    rows(&std::fs::read_to_string(file).expect("rows"))
}

fn good(args: &[&str]) -> String {
    let out = run(args);
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), ""), "{args:?}");
    text(&out.stdout).to_owned()
}

/// Twelve cells, a second together.
const PLAN: &str = "
[defaults]
rtt = '5ms'
rate = '100Gbit'
loss = [1e-3, '1%']
samples = 40
[[grid]]
scheme = ['hybrid', 'ec:32,8', 'sr-nack']
size = ['1MiB', 65536]
";

#[test]
fn a_row_has_exactly_its_columns() {
    let dir = folder("columns");
    let plan = file(
        &dir,
        "plan.toml",
        "[[grid]]\nscheme = 'ec:32,8'\nsize = '128KiB'\nsamples = 3\nestimate = '1e-3,16'",
    );
    let json = path(&dir, "rows.json");
    let rows = good(&[&plan, "--json", &json]);
    let mut lines = rows.lines();
    assert_eq!(
        lines.next().expect("a header"),
        "scheme,size,mtu,rate,rtt,distance,medium,loss,burst,jitter,reorder,dup,corrupt,queue,estimate,alpha,samples,\
         seed,cell_seed,mean_ms,p50_ms,p99_ms,p999_ms,max_ms,lower_bound_ms,slowdown_mean,slowdown_p50,slowdown_p99,\
         slowdown_p999,slowdown_max,slowdown_error,mean_low,mean_high,p999_low,p999_high,sent,lost,retransmitted,parity,\
         control,wire_extra,wire_low,wire_high,max_mean,max_p999,max_wire,verdict,elapsed_s,events_per_second,\
         packets_per_second"
    );
    let row = lines.next().expect("a row");
    assert!(
        row.starts_with("\"ec:32,8\",128KiB,4KiB,400Gbit,25ms,,,1e-5,1,0ns,0,0,0,,\"1e-3,16\",,3,1,"),
        "{row}"
    );
    assert_eq!(lines.next(), None);
    let document: Value =
        serde_json::from_str(&std::fs::read_to_string(json).expect("a file")).expect("JSON");
    assert_eq!((&document["cells"], &document["interrupted"]), (&1.into(), &false.into()));
    let row = &document["rows"][0];
    assert_eq!((&row["scheme"], &row["samples"]), (&"ec:32,8".into(), &3.into()));
    assert_eq!((&row["distance"], &row["p999_high"]), (&Value::Null, &Value::Null));
    // 32 packets and 8 of parity.
    assert_eq!((row["sent"].as_f64(), row["wire_extra"].as_f64()), (Some(40.0), Some(0.25)));
}

#[test]
fn rows_do_not_depend_on_threads_or_shards() {
    let dir = folder("shards");
    let plan = file(&dir, "plan.toml", PLAN);
    let whole = rows(&good(&[&plan, "--threads", "1"]));
    assert_eq!(whole.len(), 12);
    assert_eq!(rows(&good(&[&plan, "--threads", "3"])), whole);

    let parts = [1, 2, 3, 4, 5].map(|i| {
        let out = path(&dir, &format!("part-{i}.csv"));
        good(&[&plan, "--shard", &format!("{i}/5"), "--out", &out]);
        out
    });
    let together: Vec<_> = parts.iter().flat_map(|part| rows_of(part)).collect();
    assert_eq!(together.len(), 12);
    assert_eq!(together.into_iter().collect::<BTreeSet<_>>(), whole.into_iter().collect());

    // As the help puts them together, and as people do.
    let (all, careless) = (path(&dir, "all.csv"), path(&dir, "careless.csv"));
    let shell = format!(
        "cd {}; (head -n 1 part-1.csv; tail -q -n +2 part-*.csv) > all.csv; cat part-*.csv > careless.csv",
        dir.display()
    );
    assert!(Command::new("sh").args(["-c", &shell]).status().expect("a shell").success());
    for out in [all, careless] {
        assert!(good(&[&plan, "--out", &out]).contains("12 rows of 12 cells, 0 of them run now"));
        assert_eq!(rows_of(&out).len(), 12);
    }
}

#[test]
fn a_row_is_what_sdr_sim_gives_for_its_seed() {
    let dir = folder("seed");
    let plan = file(
        &dir,
        "plan.toml",
        "[[grid]]\nscheme = 'sr-nack'\nloss = 0.02\nsize = '1MiB'\nsamples = 20\nseed = 7\nrtt = '2ms'",
    );
    let json = path(&dir, "rows.json");
    good(&[&plan, "--json", &json]);
    let document: Value =
        serde_json::from_str(&std::fs::read_to_string(json).expect("a file")).expect("JSON");
    let row = &document["rows"][0];
    let seed = row["cell_seed"].to_string();
    let args =
        ["sim", "--scheme", "sr-nack", "--loss", "0.02", "--size", "1MiB", "--samples", "20", "--rtt", "2ms"];
    let out = Command::new(env!("CARGO_BIN_EXE_sdr")).args(args).args(["--json", "--seed", &seed]).output();
    let alone: Value = serde_json::from_slice(&out.expect("the program starts").stdout).expect("JSON");
    for name in ["mean_ms", "p999_ms", "lower_bound_ms"] {
        let [a, b] = [row, &alone].map(|d| d[name].as_f64().expect(name));
        assert!((a - b).abs() < 1e-6, "{name}: {a} {b}");
    }
    assert!(row["lost"].as_f64() > Some(0.0));
}

/// Waits until a file has so many lines; false when the program ended before.
fn wait_for_lines(child: &mut Child, file: &str, lines: usize) -> bool {
    loop {
        if std::fs::read(file).unwrap_or_default().iter().filter(|&&b| b == b'\n').count() >= lines {
            return true;
        }
        if child.try_wait().expect("a child").is_some() {
            return false;
        }
        #[expect(clippy::disallowed_methods, reason = "another process is waited for")]
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn a_killed_sweep_goes_on_and_loses_no_row() {
    let dir = folder("killed");
    let plan = file(&dir, "plan.toml", PLAN);
    let whole = rows(&good(&[&plan]));
    let out = path(&dir, "rows.csv");
    for lines in [1, 2, 5, 9] {
        let mut child = command(&[&plan, "--out", &out])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        wait_for_lines(&mut child, &out, lines);
        // SIGKILL on Unix.
        child.kill().expect("a child to kill");
        child.wait().expect("its end");
        let there = rows_of(&out);
        assert!(there.len() + 1 >= lines, "{there:?}");
        // A row of which only a part was written.
        let torn = &whole[there.len().min(11)];
        let mut bytes = std::fs::read(&out).expect("rows");
        if bytes.ends_with(b"\n") {
            bytes.extend_from_slice(&torn.as_bytes()[..torn.len() / 2]);
            std::fs::write(&out, bytes).expect("rows");
        }
    }
    let last = good(&[&plan, "--out", &out]);
    assert!(last.contains("12 rows of 12 cells"), "{last}");
    assert_eq!(rows_of(&out), whole);
    // A header of which only a part was written.
    let header = "scheme,size,mt";
    std::fs::write(&out, header).expect("a part");
    good(&[&plan, "--out", &out]);
    assert_eq!(rows_of(&out), whole);
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_the_rows_and_says_so() {
    let dir = folder("ctrl-c");
    let plan = file(&dir, "plan.toml", &PLAN.replace("samples = 40", "samples = [1, 100000]"));
    let (out, json) = (path(&dir, "rows.csv"), path(&dir, "rows.json"));
    let mut child = command(&[&plan, "--out", &out, "--json", &json])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    assert!(wait_for_lines(&mut child, &out, 2));
    // A second run keeps away from the file.
    let second = run(&[&plan, "--out", &out]);
    assert_eq!(second.status.code(), Some(2));
    assert!(text(&second.stderr).contains("another run writes it"), "{}", text(&second.stderr));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(kill.success());
    let ended = child.wait_with_output().expect("its end");
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended.stderr));
    assert!(text(&ended.stdout).contains(" of 24 cells"), "{}", text(&ended.stdout));
    let document: Value =
        serde_json::from_str(&std::fs::read_to_string(json).expect("a file")).expect("JSON");
    assert_eq!(document["interrupted"], true);
    assert_eq!(document["rows"].as_array().map(Vec::len), Some(rows_of(&out).len()));
}

#[test]
fn limits_are_judged_and_may_change() {
    let dir = folder("limits");
    let cell = "[[grid]]\nscheme = ['sr', 'hybrid']\nsize = '1MiB'\nloss = 1e-2\nrtt = '5ms'\nsamples = 30\n";
    let tight = file(&dir, "tight.toml", &format!("{cell}max_mean = 1.2\nmax_p999 = 1.3\nmax_wire = 0.05"));
    let out = path(&dir, "rows.csv");
    let failed = run(&[&tight, "--out", &out]);
    let stderr = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.starts_with("sdr: 2 of 2 cells are outside their limits:\n  scheme=sr size=1MiB"),
        "{stderr}"
    );
    for part in
        ["is above max_mean = 1.2, p99.9", "max_p999 = 1.3\n", "scheme=hybrid", "wire 0.", "max_wire = 0.05"]
    {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
    let verdicts = |out: &str| -> Vec<String> {
        rows_of(out).iter().map(|row| row.rsplit(',').next().expect("a field").to_owned()).collect()
    };
    assert_eq!(verdicts(&out), ["fail", "fail"]);

    let loose = file(&dir, "loose.toml", &format!("{cell}max_mean = 20\n"));
    assert!(good(&[&loose, "--out", &out]).contains("2 rows of 2 cells, 0 of them run now; 0 outside"));
    assert_eq!(verdicts(&out), ["pass", "pass"]);
    let none = file(&dir, "none.toml", cell);
    good(&[&none, "--out", &out]);
    assert_eq!(verdicts(&out), ["", ""]);
}

#[test]
fn a_plan_may_grow_but_not_lose_a_cell_that_has_a_row() {
    let dir = folder("changed");
    let grid = |sizes: &str| format!("[[grid]]\nsize = {sizes}\nscheme = 'hybrid'\nsamples = 5");
    let few = file(&dir, "few.toml", &grid("['4KiB', '8KiB']"));
    let more = file(&dir, "more.toml", &grid("['16KiB', '8KiB', '4KiB']"));
    let others = file(&dir, "others.toml", &grid("['4KiB', '16KiB']"));
    let out = path(&dir, "rows.csv");
    good(&[&few, "--out", &out]);
    assert!(good(&[&more, "--out", &out]).contains("3 rows of 3 cells, 1 of them run now"));
    let before = std::fs::read_to_string(&out).expect("rows");
    let refused = run(&[&others, "--out", &out]);
    let stderr = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    for part in ["rows.csv: line 3", "scheme=hybrid size=8KiB", "choose another --out"] {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
    assert_eq!(std::fs::read_to_string(&out).expect("rows"), before);

    for (name, content, part) in [
        ("foreign.csv", "a,b\n1,2\n".to_owned(), "not the header"),
        ("foreign.txt", "notes".to_owned(), "not the header"),
        ("short.csv", before.replacen(",400Gbit", "", 1), "line 2 is no row"),
        ("twice.csv", before.clone() + before.lines().last().expect("a row") + "\n", "same cell as line 4"),
    ] {
        let foreign = file(&dir, name, &content);
        let refused = run(&[&more, "--out", &foreign]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(part), "{}", text(&refused.stderr));
        assert_eq!(std::fs::read_to_string(&foreign).expect("a file"), content, "left as it was");
    }
}

#[test]
fn a_cell_that_fails_does_not_end_the_others() {
    let dir = folder("broken");
    let plan = file(&dir, "plan.toml", "[[grid]]\nsize = '64KiB'\nloss = [0.9999, 1e-3]\nsamples = 2");
    let out = run(&[&plan]);
    let stderr = text(&out.stderr);
    assert_eq!((out.status.code(), rows(text(&out.stdout)).len()), (Some(1), 1), "{stderr}");
    assert!(
        stderr.starts_with("sdr: 1 cells could not be simulated:\n") && stderr.contains("loss=0.9999"),
        "{stderr}"
    );
}

#[test]
fn the_smoke_plan_is_good() {
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/plans/smoke.toml");
    let rows = rows(&good(&[plan]));
    assert!(rows.len() == 5 && rows.iter().all(|row| row.ends_with(",pass")), "{rows:?}");
}

#[test]
fn bad_plans_are_one_line_that_names_it() {
    let dir = folder("bad");
    let cases: &[(&str, &[&str])] = &[
        ("", &["no grid", "[[grid]]"]),
        ("grid = []", &["empty array"]),
        ("grid = 3", &["a number", "[[grid]]"]),
        ("grid = [1]", &["[[grid]] 1", "a number"]),
        ("defaults = 1\n[[grid]]", &["[defaults]"]),
        ("[[grid]]\nsize = ", &["line 2"]),
        ("[[grid]]\n[[axes]]\n", &["\"axes\"", "[defaults] and [[grid]]"]),
        ("[[grid]]\nspeed = 3", &["[[grid]] 1", "\"speed\"", "choose size", "max_wire"]),
        ("[defaults]\nspeed = 3\n[[grid]]", &["[defaults]", "\"speed\""]),
        ("[[grid]]\n[[grid]]\nloss = []", &["[[grid]] 2", "loss = []", "at least one"]),
        ("[[grid]]\nloss = [[0.1]]", &["loss is an array", "a number"]),
        ("[[grid]]\nloss = true", &["loss is true"]),
        ("[[grid]]\nloss = 1", &["loss = 1:", "[0, 1)"]),
        ("[[grid]]\nloss = [1e-3, -0.1]", &["loss = -0.1", "[0, 1)"]),
        ("[[grid]]\nloss = nan", &["loss = NaN", "[0, 1)"]),
        ("[[grid]]\nrate = '0Gbit'", &["rate = 0Gbit", "above 0"]),
        ("[[grid]]\nrate = 400", &["rate = 400", "Gbit"]),
        ("[[grid]]\nsize = 0", &["size 0B", "1B to 16GiB"]),
        ("[[grid]]\nsize = ['4KiB', '17GiB']", &["size 17GiB", "1B to 16GiB"]),
        ("[[grid]]\nmtu = 0", &["mtu = 0", "1B to 1MiB"]),
        ("[[grid]]\nburst = 0", &["burst = 0", "1 to 1e9"]),
        ("[[grid]]\nloss = 0.9\nburst = 4", &["loss and burst", "0.9", "0.8"]),
        ("[[grid]]\nscheme = 'magic'", &["scheme = magic", "sr-nack"]),
        ("[[grid]]\nscheme = 'ec:0,8'", &["ec:0,8", "k = 0", "1 to 224"]),
        ("[[grid]]\nscheme = 'ec:225,8'", &["k = 225", "1 to 224"]),
        ("[[grid]]\nscheme = 'ec:32,0'", &["m = 0", "1 to 208"]),
        ("[[grid]]\nscheme = 'ec:224,17'", &["m = 17", "240"]),
        ("[[grid]]\nscheme = 'xor:8,9'", &["m = 9", "at most k"]),
        ("[[grid]]\nestimate = 'some'", &["estimate = some", "exact, none"]),
        ("[[grid]]\nalpha = -1", &["alpha = -1", "0 to 1000"]),
        ("[[grid]]\nsamples = 0", &["samples = 0", "1 to 1000000"]),
        ("[[grid]]\nseed = -1", &["seed = -1", "18446744073709551615"]),
        ("[[grid]]\nrtt = '1ms'\ndistance = '100km'", &["rtt 1ms", "distance 100km", "one of them"]),
        ("[[grid]]\nmedium = 'fibre'", &["medium fibre", "distance"]),
        ("[[grid]]\njitter = '20ms'", &["jitter 20ms", "12500us"]),
        ("[[grid]]\nmax_mean = 0.9", &["max_mean = 0.9", "from 1 up"]),
        ("[[grid]]\nmax_wire = -1", &["max_wire = -1", "from 0 up"]),
        ("[[grid]]\nmax_mean = [1.1, 1.2]", &["max_mean", "an array", "no axis"]),
        ("[[grid]]\nmax_mean = 2\nsamples = 1", &["samples = 1", "at least 2"]),
    ];
    for (plan, parts) in cases {
        let plan_file = file(&dir, "plan.toml", plan);
        let out = run(&[&plan_file]);
        let stderr = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{plan:?}: {stderr}");
        assert_eq!((text(&out.stdout), stderr.lines().count()), ("", 1), "{plan:?}: {stderr}");
        assert!(stderr.contains("plan.toml: "), "{stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{plan:?}: {parts:?} in {stderr}");
        assert!(stderr.ends_with("; see 'sdr sim run --help'\n"), "{stderr}");
    }
    let axis = format!("[[grid]]\nseed = {:?}\nloss = {:?}", (0..400).collect::<Vec<_>>(), vec![0.1; 300]);
    let out = run(&[&file(&dir, "plan.toml", &axis)]);
    assert!(text(&out.stderr).contains("120000 cells: choose at most 100000"), "{}", text(&out.stderr));
    let missing = path(&dir, "missing.toml");
    for (args, parts) in [
        (&[missing.as_str()][..], &["missing.toml", "could not be read"][..]),
        (&["--shard", "0/4", "x"], &["'0/4'", "i from 1 to n"]),
        (&["--shard", "5/4", "x"], &["'5/4'"]),
        (&["--threads", "0", "x"], &["'0'", "1 to 1024"]),
        (&[], &["PLAN.toml"]),
    ] {
        let out = run(args);
        let stderr = text(&out.stderr);
        assert_eq!((out.status.code(), stderr.lines().count()), (Some(2), 1), "{args:?}: {stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{args:?}: {parts:?} in {stderr}");
    }
}

#[test]
fn help_shows_a_plan() {
    let help = good(&["--help"]);
    for part in ["[[grid]]", "max_p999", "--shard", "tail -q -n +2", "CELL_SEED", "Exit codes"] {
        assert!(help.contains(part), "{part} in\n{help}");
    }
}
